// One camera: its figures, its last minutes, its latest picture.

import { Figure, h, text, attribute, figure } from "./dom.js";
import { Parts, Seconds, frames, latency } from "./chart.js";
import { FAILED, DROPPED, MEANING, cameraVerdict, count, late, ms, msParts, outcome, percent, rate, several, span } from "./format.js";
import { Picture } from "./picture.js";
import { listen } from "./stream.js";

const STAGES = ["queue", "decode", "preprocess", "inference", "postprocess"];

export class CameraPage {
  constructor(name, { ontrouble, onevent }) {
    this.name = name;
    this.parts = { ontrouble, onevent };
    this.seconds = new Seconds();
    this.state = h("span", { class: "state", "data-key": "state" });
    this.head = [h("span", { class: "name" }, name), this.state];
    this.figures = {
      fps: new Figure("Frames per second", "fps"),
      slowest: new Figure("Slowest of 10 s", "slowest-10s", { unit: "ms" }),
      mean: new Figure("Mean of 10 s", "mean-10s", { unit: "ms" }),
      last: new Figure("Last outcome", "last"),
      size: new Figure("Picture", "size"),
      age: new Figure("Last message", "silent", { unit: "ago" }),
    };
    this.bar = new Parts("Mean time of an answer by stage", STAGES);
    this.sum = h("b");
    this.refusal = h("p", { class: "refusal" });
    this.latency = latency(true);
    this.frames = frames();
    this.picture = new Picture(name);
    this.outcomes = h("tbody");
    this.rows = new Map();
    this.received = h("b", { "data-key": "received" });
    this.element = h("div", { class: "one" },
      this.picture.element,
      h("div", { class: "side" },
        h("dl", { class: "figures" }, ...Object.values(this.figures).map(({ element }) => element)),
        h("section", { class: "card", "aria-labelledby": "stages" }, h("h2", { id: "stages", class: "split" }, "Where the time of an answer goes ", this.sum), this.bar.element),
        this.counts()),
      h("div", { class: "charts" }, this.latency.element, this.frames.element));
    this.listen();
  }

  counts() {
    return h("section", { class: "card", "aria-labelledby": "counts" }, h("h2", { id: "counts" }, "What became of its ", this.received, " frames"),
      h("table", { class: "outcomes" }, h("thead", { class: "unseen" }, h("tr", {}, ...["Outcome", "Frames", "Share", "Meaning"].map((name) => h("th", { scope: "col" }, name)))),
        this.outcomes), this.refusal);
  }

  listen() {
    const url = `/live/cameras/${encodeURIComponent(this.name)}`;
    this.stream = listen(url, "camera", (event) => this.draw(event), this.parts.ontrouble);
  }

  close() {
    this.stream.close();
    this.picture.close();
  }

  /** A camera that nobody looks at is not listened to: browsers allow six connections to a server, in all tabs. */
  visible(seen) {
    this.stream.close();
    if (seen) this.listen();
    this.picture.restart();
  }

  get title() {
    if (!this.event) return this.name;
    const { camera } = this.event;
    return camera.slowest_ms === null ? `${this.name} ${camera.state}` : `${this.name} ${camera.state}, ${ms(camera.slowest_ms)}`;
  }

  get verdict() {
    const { camera, limit_ms: limit } = this.event;
    return { ...cameraVerdict(camera, limit), head: this.head };
  }

  draw(event) {
    this.event = event;
    this.seconds.add(event);
    const { camera, limit_ms: limit } = event;
    attribute(this.element, "data-state", camera.state);
    attribute(this.state, "data-state", camera.state);
    figure(this.state, camera.state, camera.state);
    this.drawFigures(camera, limit);
    const mean = this.bar.draw(camera.stages_ms, null, ms);
    text(this.sum, camera.stages_ms ? ms(mean) : "");
    this.latency.draw(this.seconds.list, limit);
    this.frames.draw(this.seconds.list, limit);
    this.drawCounts(camera);
    this.picture.allow(event.preview);
    this.parts.onevent(event);
  }

  drawFigures(camera, limit) {
    const f = this.figures;
    const time = (tile, value, below, bad) => {
      const [shown, unit] = msParts(value);
      tile.draw(shown, value, below, bad);
      text(tile.unit, unit);
    };
    const streams = camera.streams === 1 ? "one stream" : `${several(camera.streams, "stream")} of this name`;
    f.fps.draw(rate(camera.fps), camera.fps, streams, camera.streams > 1);
    time(f.slowest, camera.slowest_ms, `limit ${limit} ms`, late(camera, limit));
    time(f.mean, camera.mean_ms, camera.mean_ms === null ? "no answer in 10 s" : "of OK answers", false);
    f.last.draw(outcome(camera.outcome), camera.outcome, MEANING[camera.outcome] ?? "", FAILED.includes(camera.outcome));
    f.size.draw(camera.size ? camera.size.join(" × ") : "–", camera.size?.join("x"), camera.size ? "pixels, upright" : "none decoded yet");
    f.age.draw(camera.silent_seconds < 1 ? "now" : span(camera.silent_seconds), camera.silent_seconds, camera.state === "gone" ? "it has left" : `connected for ${span(camera.connected_seconds)}`, camera.state === "stale");
    f.age.unit.hidden = camera.silent_seconds < 1;
  }

  drawCounts({ received, outcomes, detail, detail_outcome: refused }) {
    figure(this.received, count(received), received);
    for (const [name, number] of Object.entries(outcomes)) {
      if (number > 0 && !this.rows.has(name)) {
        const [value, share] = [h("td", { "data-key": `outcome-${name}` }), h("td")];
        const kind = DROPPED.includes(name) ? "dropped" : FAILED.includes(name) ? "failed" : name === "ok" ? "answered" : "rest";
        this.rows.set(name, { value, share });
        this.outcomes.append(h("tr", {}, h("th", { scope: "row" }, h("span", { class: `swatch ${kind}` }), outcome(name)), value, share, h("td", { class: "soft" }, MEANING[name] ?? "")));
      }
      const row = this.rows.get(name);
      if (row) {
        figure(row.value, count(number), number);
        const of = number / Math.max(1, received);
        text(row.share, number > 0 && of < 0.005 ? "< 1 %" : percent(of));
      }
    }
    this.refusal.hidden = !detail;
    text(this.refusal, detail ? `Last refusal, ${outcome(refused)}: ${detail}` : "");
  }
}

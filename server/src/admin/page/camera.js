// One camera: its figures, its last minutes, its latest picture.

import { h, text, attribute, figure } from "./dom.js";
import { Parts, Seconds, frames, latency } from "./chart.js";
import { count, ms, outcome, rate, span } from "./format.js";
import { late } from "./fleet.js";
import { Picture } from "./picture.js";
import { listen } from "./stream.js";

const STAGES = ["queue", "decode", "preprocess", "inference", "postprocess"];

export class CameraPage {
  constructor(name, { onstate, onevent }) {
    this.name = name;
    this.seconds = new Seconds();
    this.state = h("span", { class: "state", "data-key": "state" });
    this.facts = h("dl", { class: "facts" });
    this.values = new Map();
    this.refusal = h("p", { class: "refusal" });
    this.parts = new Parts("Mean time of an answer by stage", STAGES);
    this.latency = latency(100, true);
    this.frames = frames();
    this.picture = new Picture(name);
    this.outcomes = h("tbody");
    this.rows = new Map();
    this.element = h("div", { class: "one" },
      h("p", { class: "back" }, h("a", { href: "#/" }, "← All cameras")),
      h("h1", {}, h("span", { class: "name" }, name), " ", this.state),
      h("div", { class: "columns" },
        this.picture.element,
        h("section", { class: "card", "aria-labelledby": "now" }, h("h2", { id: "now" }, "Now"), this.facts, this.refusal)),
      h("section", { class: "card", "aria-labelledby": "stages" }, h("h2", { id: "stages" }, "Mean time of an answer, by stage"), this.parts.element),
      h("div", { class: "charts" }, this.latency.element, this.frames.element),
      h("section", { class: "card", "aria-labelledby": "counts" }, h("h2", { id: "counts" }, "What became of its frames"),
        h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Outcome"), h("th", { scope: "col" }, "Frames"))), this.outcomes)));
    this.onevent = onevent;
    this.stream = listen(`/live/cameras/${encodeURIComponent(name)}`, "camera", (event) => this.draw(event), onstate);
  }

  close() {
    this.stream.close();
    this.picture.close();
  }

  get title() {
    return this.event ? `${this.name}: ${this.event.camera.state}, ${ms(this.event.camera.slowest_ms)}` : this.name;
  }

  fact(name, shown, bad = false) {
    if (!this.values.has(name)) {
      const value = h("dd");
      this.values.set(name, value);
      this.facts.append(h("div", {}, h("dt", {}, name), value));
    }
    const value = this.values.get(name);
    text(value, shown);
    value.classList.toggle("bad", bad);
  }

  draw(event) {
    this.event = event;
    this.seconds.add(event);
    const { camera, limit_ms: limit } = event;
    attribute(this.element, "data-state", camera.state);
    figure(this.state, camera.state === "stale" ? `stale for ${span(camera.silent_seconds)}` : camera.state, camera.state);
    this.fact("Frames per second", rate(camera.fps));
    this.fact("Slowest answer, 10 s", ms(camera.slowest_ms), late(camera, limit));
    this.fact("Mean answer, 10 s", ms(camera.mean_ms));
    this.fact("Last outcome", outcome(camera.outcome), Boolean(camera.outcome) && camera.outcome !== "ok");
    this.fact("Picture", camera.size ? `${camera.size[0]} × ${camera.size[1]}` : "none decoded yet");
    this.fact("Streams", String(camera.streams), camera.streams > 1);
    this.fact("Connected for", span(camera.connected_seconds));
    this.fact("Last message", `${span(camera.silent_seconds)} ago`);
    this.refusal.hidden = !camera.detail;
    text(this.refusal, camera.detail ? `Last refusal, ${outcome(camera.detail_outcome)}: ${camera.detail}` : "");
    this.parts.draw(camera.stages_ms, null, ms);
    this.latency.draw(this.seconds.list);
    this.frames.draw(this.seconds.list);
    this.counts(camera.outcomes);
    this.picture.allow(event.preview);
    this.onevent(event);
  }

  counts(outcomes) {
    for (const [name, number] of Object.entries(outcomes)) {
      if (number > 0 && !this.rows.has(name)) {
        const value = h("td", { "data-key": `outcome-${name}` });
        this.rows.set(name, value);
        this.outcomes.append(h("tr", {}, h("th", { scope: "row" }, outcome(name)), value));
      }
      const value = this.rows.get(name);
      if (value) figure(value, count(number), number);
    }
  }
}

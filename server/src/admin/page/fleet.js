// All cameras: how the server is doing, and a card for each.

import { h, text, attribute, figure } from "./dom.js";
import { Parts, Seconds, Spark, frames, latency } from "./chart.js";
import { NONE, bytes, count, ms, outcome, percent, rate, span } from "./format.js";
import { listen } from "./stream.js";

const STAGES = ["decode", "preprocess", "inference", "postprocess"];
const STATES = ["stale", "gone", "live"];

const ORDERS = {
  trouble: { name: "trouble first", key: (camera, limit) => [trouble(camera, limit), camera.name] },
  name: { name: "name", key: (camera) => [camera.name] },
  slowest: { name: "slowest first", key: (camera) => [-(camera.slowest_ms ?? -1), camera.name] },
  fps: { name: "most frames first", key: (camera) => [-camera.fps, camera.name] },
};

/** Smaller is worse. */
function trouble(camera, limit) {
  if (camera.state === "stale") return 0;
  if (late(camera, limit)) return 1;
  if (camera.outcome && camera.outcome !== "ok") return 2;
  return camera.state === "live" ? 3 : 4;
}

export function late(camera, limit) {
  return camera.slowest_ms !== null && camera.slowest_ms > limit;
}

function compare(one, other) {
  for (let at = 0; at < one.length; at += 1) {
    if (one[at] < other[at]) return -1;
    if (one[at] > other[at]) return 1;
  }
  return 0;
}

/** A figure with its name and a line below. */
class Figure {
  constructor(name, key) {
    this.value = h("dd", { "data-key": key });
    this.below = h("dd", { class: "below soft" });
    this.element = h("div", { class: "figure" }, h("dt", {}, name), this.value, this.below);
  }

  draw(shown, value, below = "", bad = false) {
    figure(this.value, shown, value);
    text(this.below, below);
    this.element.classList.toggle("bad", bad);
  }
}

/** A camera in the grid. */
class Card {
  constructor(name) {
    this.state = h("span", { class: "state" });
    this.fps = h("b");
    this.slowest = h("b");
    this.last = h("span", { class: "last" });
    this.spark = new Spark();
    this.element = h("a", { class: "camera card", href: `#/camera/${encodeURIComponent(name)}`, "data-camera": name },
      h("span", { class: "name" }, name), this.state, this.spark.element,
      h("span", { class: "numbers" }, this.fps, " FPS"), h("span", { class: "numbers" }, this.slowest), this.last);
  }

  draw(camera, limit) {
    attribute(this.element, "data-state", camera.state);
    text(this.state, camera.state === "stale" ? `stale ${span(camera.silent_seconds)}` : camera.state);
    text(this.fps, rate(camera.fps));
    text(this.slowest, ms(camera.slowest_ms));
    this.slowest.parentElement.classList.toggle("bad", late(camera, limit));
    text(this.last, outcome(camera.outcome));
    attribute(this.last, "data-outcome", camera.outcome ?? "");
    this.spark.draw(camera.spark, limit);
  }
}

export class Fleet {
  constructor({ onstate, onevent }) {
    this.seconds = new Seconds();
    this.cards = new Map();
    this.figures = {
      cameras: new Figure("Cameras", "cameras-connected"),
      answered: new Figure("Answered / s", "answered"),
      dropped: new Figure("Dropped / s", "dropped"),
      short: new Figure("Slowest, 10 s", "slowest-10s"),
      long: new Figure("Slowest, 60 s", "slowest-60s"),
      headroom: new Figure("Headroom", "headroom"),
      busy: new Figure("Workers busy", "busy"),
      memory: new Figure("Memory", "memory"),
    };
    this.parts = new Parts("Cores busy by stage", STAGES);
    this.totals = h("p", { class: "totals soft" });
    this.received = h("span", { "data-key": "received" });
    this.ok = h("span", { "data-key": "ok" });
    this.totals.append("Since the start: ", this.received, " frames received, ", this.ok, " answered OK");
    this.latency = latency(100, false);
    this.frames = frames();
    this.grid = h("div", { class: "grid-of-cameras" });
    this.none = h("p", { class: "none" });
    this.filter = h("input", { type: "search", id: "filter", placeholder: "part of a name", oninput: () => this.arrange() });
    this.order = h("select", { id: "order", onchange: () => this.arrange() },
      ...Object.entries(ORDERS).map(([value, { name }]) => h("option", { value }, name)));
    this.element = h("div", { class: "fleet" },
      h("h1", {}, "Fleet"),
      h("dl", { class: "figures" }, ...Object.values(this.figures).map(({ element }) => element)),
      h("div", { class: "charts" }, this.latency.element, this.frames.element),
      h("section", { class: "card", "aria-labelledby": "stages" }, h("h2", { id: "stages" }, "Cores busy, by stage"), this.parts.element, this.totals),
      h("section", { "aria-labelledby": "list" },
        h("div", { class: "bar" }, h("h2", { id: "list" }, "Cameras"),
          h("label", { for: "filter" }, "Show ", this.filter), h("label", { for: "order" }, "Order ", this.order)),
        this.none, this.grid));
    this.onevent = onevent;
    this.stream = listen("/live/fleet", "fleet", (event) => this.draw(event), onstate);
  }

  close() {
    this.stream.close();
  }

  get title() {
    if (!this.event) return "Fleet";
    const { cameras, slowest_ms: slowest } = this.event;
    return `${cameras.connected} cameras, ${ms(slowest["10s"])}`;
  }

  draw(event) {
    this.event = event;
    this.seconds.add(event);
    const { cameras, rates, slowest_ms: slowest, limit_ms: limit, frames: { received, outcomes } } = event;
    const f = this.figures;
    f.cameras.draw(count(cameras.connected), cameras.connected, `${cameras.stale} stale, at most ${event.max_cameras}`, cameras.stale > 0);
    f.answered.draw(rate(rates.answered), rates.answered, `of ${rate(rates.received)} received`);
    f.dropped.draw(rate(rates.dropped), rates.dropped, `${rate(rates.failed)} failed`, rates.dropped > 0);
    f.short.draw(ms(slowest["10s"]), slowest["10s"], `limit ${limit} ms`, slowest["10s"] > limit);
    f.long.draw(ms(slowest["60s"]), slowest["60s"], `limit ${limit} ms`, slowest["60s"] > limit);
    f.headroom.draw(event.headroom === null ? NONE : String(event.headroom), event.headroom,
      event.headroom === null ? "not known until a camera has sent" : event.headroom < 0 ? "too many cameras" : "more such cameras fit", event.headroom !== null && event.headroom < 1);
    f.busy.draw(percent(event.busy), event.busy, `${event.workers} ${event.workers === 1 ? "worker" : "workers"}`, event.busy > 0.85);
    f.memory.draw(bytes(event.memory_bytes), event.memory_bytes);
    figure(this.received, count(received), received);
    figure(this.ok, count(outcomes.ok), outcomes.ok);
    this.parts.draw(event.stage_cores, event.workers, (cores) => cores.toFixed(2));
    this.latency.draw(this.seconds.list);
    this.frames.draw(this.seconds.list);
    this.cameras(event.list, limit);
    this.onevent(event);
  }

  cameras(list, limit) {
    const here = new Set(list.map(({ name }) => name));
    for (const [name, card] of this.cards) {
      if (!here.has(name)) {
        card.element.remove();
        this.cards.delete(name);
      }
    }
    for (const camera of list) {
      if (!this.cards.has(camera.name)) this.cards.set(camera.name, new Card(camera.name));
      this.cards.get(camera.name).draw(camera, limit);
    }
    this.arrange();
  }

  /** Brings the cards into order; only those that are in the wrong place are moved. */
  arrange() {
    if (!this.event) return;
    const { list, limit_ms: limit } = this.event;
    const wanted = this.filter.value.trim().toLowerCase();
    const { key } = ORDERS[this.order.value];
    const shown = list.filter(({ name }) => name.toLowerCase().includes(wanted));
    shown.sort((one, other) => compare(key(one, limit), key(other, limit)));
    let next = this.grid.firstElementChild;
    for (const { name } of shown) {
      const { element } = this.cards.get(name);
      if (element === next) next = next.nextElementSibling;
      else this.grid.insertBefore(element, next);
    }
    while (next) {
      const after = next.nextElementSibling;
      next.remove();
      next = after;
    }
    const states = STATES.map((state) => [state, list.filter((camera) => camera.state === state).length]);
    text(this.none, list.length === 0 ? "No camera has connected yet. Cameras send to the port that the server printed at its start."
      : shown.length === 0 ? "No camera has such a name."
        : states.filter(([, number]) => number > 0).map(([state, number]) => `${number} ${state}`).join(", "));
  }
}

// All cameras: how the server is doing, and a card for each.

import { Figure, h, text, attribute, arrange, figure } from "./dom.js";
import { Parts, Seconds, Spark, frames, latency } from "./chart.js";
import { MEANING, NONE, bytes, count, fleetVerdict, late, ms, msParts, outcome, percent, rate, several, span, trouble } from "./format.js";
import { listen } from "./stream.js";

const STAGES = ["decode", "preprocess", "inference", "postprocess"];
const STATES = ["live", "stale", "gone"];
const ORDER = "vedette-order";

/** Cards get smaller beyond this many cameras. */
const ROOMY = 60;

/** Seconds between two arrangements by figures, which would else move cards all the time. */
const ARRANGE_SECONDS = 5;

const ORDERS = {
  trouble: { name: "trouble first", key: (camera, limit) => [trouble(camera, limit), camera.name] },
  name: { name: "name", key: (camera) => [camera.name] },
  slowest: { name: "slowest first", key: (camera) => [-(camera.slowest_ms ?? -1), camera.name], figures: true },
  fps: { name: "most frames first", key: (camera) => [-camera.fps, camera.name], figures: true },
};

function compare(one, other) {
  for (let at = 0; at < one.length; at += 1) {
    if (one[at] < other[at]) return -1;
    if (one[at] > other[at]) return 1;
  }
  return 0;
}

/** A camera in the grid. */
class Card {
  constructor(name) {
    this.state = h("span", { class: "state" });
    this.fps = h("b");
    this.slowest = h("b");
    this.slowestOf = h("span", { class: "numbers" }, this.slowest);
    this.last = h("span", { class: "last" });
    this.mean = h("span", { class: "mean-of" });
    this.spark = new Spark();
    this.element = h("a", { class: "camera card", href: `#/camera/${encodeURIComponent(name)}`, "data-camera": name },
      h("span", { class: "row" }, h("span", { class: "name", title: name }, name), this.state), this.spark.element,
      h("span", { class: "row" }, h("span", { class: "numbers" }, this.fps, " FPS"), this.slowestOf),
      h("span", { class: "row" }, this.last, this.mean));
  }

  draw(camera, limit) {
    this.camera = camera;
    const isLate = late(camera, limit);
    attribute(this.element, "data-state", camera.state);
    attribute(this.element, "data-late", isLate);
    text(this.state, camera.state === "live" ? "live" : `${camera.state} ${span(camera.silent_seconds)}`);
    text(this.fps, rate(camera.fps));
    text(this.slowest, ms(camera.slowest_ms));
    this.slowestOf.classList.toggle("bad", isLate);
    attribute(this.slowestOf, "title", isLate ? "slowest answer of the last 10 s: over the limit" : "slowest answer of the last 10 s");
    text(this.last, outcome(camera.outcome));
    attribute(this.last, "data-outcome", camera.outcome ?? "");
    attribute(this.last, "title", camera.outcome ? `last frame: ${MEANING[camera.outcome] ?? ""}` : "no frame yet");
    text(this.mean, camera.mean_ms === null ? "" : `mean ${ms(camera.mean_ms)}`);
    this.spark.draw(camera.spark, limit);
  }

  /** Whether each word is in its name, state or last outcome. */
  has(words) {
    const { name, state, outcome: last } = this.camera;
    const all = `${name} ${state} ${last ?? ""} ${this.element.dataset.late === "true" ? "late" : ""}`.toLowerCase();
    return words.every((word) => all.includes(word));
  }
}

export class Fleet {
  constructor({ ontrouble, onevent }) {
    this.seconds = new Seconds();
    this.cards = new Map();
    this.order = [];
    this.arranged = 0;
    this.figures = {
      cameras: new Figure("Cameras", "cameras-connected", { meter: true }),
      answered: new Figure("Answered", "answered", { unit: "/s", meter: true }),
      dropped: new Figure("Dropped", "dropped", { unit: "/s", meter: true }),
      short: new Figure("Slowest of 10 s", "slowest-10s", { unit: "ms", meter: true }),
      long: new Figure("Slowest of a minute", "slowest-60s", { unit: "ms", meter: true }),
      headroom: new Figure("Headroom", "headroom", { unit: "cameras", meter: true }),
      busy: new Figure("Workers busy", "busy", { meter: true }),
      memory: new Figure("Memory", "memory"),
    };
    this.parts = new Parts("Cores busy by stage", STAGES);
    this.cores = h("b", { "data-key": "cores" });
    this.totals = new Map();
    this.outcomes = h("ul", { class: "legend totals" });
    this.latency = latency(false);
    this.frames = frames();
    this.element = h("div", { class: "fleet" },
      h("dl", { class: "figures" }, ...Object.values(this.figures).map(({ element }) => element),
        h("div", { class: "figure wide" }, h("dt", {}, "Cores busy by stage: ", this.cores), h("dd", { class: "in-figure" }, this.parts.element))),
      h("div", { class: "charts" }, this.latency.element, this.frames.element),
      this.outcomes, this.list());
    this.onevent = onevent;
    this.stream = listen("/live/fleet", "fleet", (event) => this.told(event), ontrouble);
  }

  list() {
    this.grid = h("div", {
      class: "grid-of-cameras",
      onpointerenter: () => this.hold("pointer", true),
      onpointerleave: () => this.hold("pointer", false),
      onfocusin: () => this.hold("focus", true),
      onfocusout: () => this.hold("focus", false),
    });
    this.held = new Set();
    this.none = h("p", { class: "none" });
    this.filter = h("input", { type: "search", id: "filter", placeholder: "name, state, outcome", oninput: () => this.arrange(true), onkeydown: (event) => this.leave(event) });
    this.choice = h("select", { id: "order", onchange: () => this.choose() },
      ...Object.entries(ORDERS).map(([value, { name }]) => h("option", { value }, name)));
    const kept = sessionStorage.getItem(ORDER);
    if (ORDERS[kept]) this.choice.value = kept;
    return h("section", { "aria-labelledby": "list" },
      h("div", { class: "bar" }, h("h2", { id: "list" }, "Cameras"), this.none,
        h("label", { for: "filter" }, "Show ", this.filter, h("kbd", { "aria-hidden": "true" }, "/")),
        h("label", { for: "order" }, "Order ", this.choice)), this.grid);
  }

  close() {
    this.stream.close();
  }

  /** Draws nothing that nobody sees, but goes on to listen: the tab's title tells. */
  visible(seen) {
    if (seen && this.event) this.draw(this.event);
  }

  get title() {
    const { event } = this;
    if (!event) return "Fleet";
    if (!event.ready) return `not ready: ${event.not_ready_reason}`;
    const { connected, stale } = event.cameras;
    const cameras = stale > 0 ? `${stale} of ${several(connected, "camera")} stale` : several(connected, "camera");
    const slowest = event.slowest_ms["10s"];
    return slowest === null ? cameras : `${cameras}, ${ms(slowest)}`;
  }

  get verdict() {
    return fleetVerdict(this.event);
  }

  told(event) {
    this.event = event;
    this.seconds.add(event);
    if (!document.hidden) this.draw(event);
    this.onevent(event);
  }

  draw(event) {
    this.drawFigures(event);
    this.latency.draw(this.seconds.list, event.limit_ms);
    this.frames.draw(this.seconds.list, event.limit_ms);
    this.drawTotals(event.frames);
    this.drawCards(event.list, event.limit_ms);
  }

  drawFigures(event) {
    const { cameras, rates, slowest_ms: slowest, limit_ms: limit, headroom, busy } = event;
    const f = this.figures;
    const time = (tile, value) => {
      const [shown, unit] = msParts(value);
      tile.draw(shown, value, value === null ? "no answer yet" : `limit ${limit} ms`, value > limit, value / limit);
      text(tile.unit, unit);
    };
    const places = `${cameras.live} live, ${cameras.stale} stale; ${count(event.max_cameras)} places`;
    f.cameras.draw(count(cameras.connected), cameras.connected, places, false, cameras.connected / event.max_cameras);
    f.cameras.element.classList.toggle("warn", cameras.stale > 0);
    f.answered.draw(rate(rates.answered), rates.answered, `of ${rate(rates.received)} received`, false, rates.received > 0 ? rates.answered / rates.received : 0);
    f.dropped.draw(rate(rates.dropped), rates.dropped, `${rate(rates.failed)} failed`, rates.dropped > 0, rates.received > 0 ? rates.dropped / rates.received : 0);
    time(f.short, slowest["10s"]);
    time(f.long, slowest["60s"]);
    const fit = headroom === null ? "not known until cameras send" : headroom < 0 ? "too many for the workers" : "more like these fit";
    f.headroom.draw(headroom === null ? NONE : String(headroom).replace("-", "−"), headroom, fit, headroom !== null && headroom < 1,
      headroom > 0 ? headroom / (headroom + cameras.connected) : 0);
    text(f.headroom.unit, Math.abs(headroom) === 1 ? "camera" : "cameras");
    f.busy.draw(percent(busy), busy, `${several(event.workers, "worker")}; plan for ${percent(0.85)}`, busy > 0.85, busy);
    f.memory.draw(bytes(event.memory_bytes), event.memory_bytes, "of this process");
    const cores = this.parts.draw(event.stage_cores, event.workers, (value) => value.toFixed(2));
    figure(this.cores, `${cores.toFixed(2)} of ${event.workers}`, cores);
  }

  /** What became of all frames since the start. */
  drawTotals({ received, outcomes }) {
    for (const [name, number] of [["received", received], ...Object.entries(outcomes)]) {
      if (!this.totals.has(name)) {
        const value = h("b", { "data-key": name });
        const row = h("li", { title: MEANING[name] ?? "" }, value, name === "received" ? " frames received since the start:" : ` ${outcome(name)}`);
        this.totals.set(name, { value, row });
        this.outcomes.append(row);
      }
      const { value, row } = this.totals.get(name);
      figure(value, count(number), number);
      row.hidden = number === 0 && name !== "received" && name !== "ok";
    }
  }

  drawCards(list, limit) {
    const here = new Set(list.map(({ name }) => name));
    let fresh = false;
    for (const name of this.cards.keys()) {
      if (!here.has(name)) fresh = this.cards.delete(name);
    }
    for (const camera of list) {
      if (!this.cards.has(camera.name)) {
        this.cards.set(camera.name, new Card(camera.name));
        fresh = true;
      }
      this.cards.get(camera.name).draw(camera, limit);
    }
    this.grid.classList.toggle("dense", list.length > ROOMY);
    this.arrange(fresh);
    this.tellCards(list);
    if (this.wanted) this.focus();
  }

  tellCards(list) {
    const number = (state) => list.filter((camera) => camera.state === state).length;
    const states = STATES.map((state) => [state, number(state)]).filter(([, cameras]) => cameras > 0);
    const shown = this.grid.childElementCount;
    const words = list.length === 0 ? "No camera is here. Cameras send to the port that the server printed at its start."
      : shown === 0 ? "No camera is like that."
        : states.map(([state, cameras]) => `${cameras} ${state}`).join(", ") + (shown < list.length ? `; ${shown} shown` : "");
    text(this.none, words + (this.held.size > 0 && this.choice.value !== "name" ? "; order held" : ""));
  }

  choose() {
    sessionStorage.setItem(ORDER, this.choice.value);
    this.order = [];
    this.arrange(true);
  }

  /** Cards do not move away from under a pointer or from a key's focus. */
  hold(by, held) {
    if (held) this.held.add(by);
    else this.held.delete(by);
    if (this.event) this.tellCards(this.event.list);
  }

  arrange(now = false) {
    if (!this.event) return;
    const { figures, key } = ORDERS[this.choice.value];
    const { now_ms: at, limit_ms: limit, list } = this.event;
    const due = this.order.length === 0 || (this.held.size === 0 && (!figures || at - this.arranged >= ARRANGE_SECONDS * 1000));
    if (due) {
      this.arranged = at;
      const keys = list.map((camera) => [key(camera, limit), camera.name]);
      this.order = keys.sort(([one], [other]) => compare(one, other)).map(([, name]) => name);
    } else if (now) {
      const known = new Set(this.order);
      this.order = [...this.order.filter((name) => this.cards.has(name)), ...list.map(({ name }) => name).filter((name) => !known.has(name))];
    }
    const words = this.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const shown = this.order.map((name) => this.cards.get(name)).filter((card) => card?.has(words));
    arrange(this.grid, shown.map(({ element }) => element));
    this.tellCards(list);
  }

  leave(event) {
    if (event.key !== "Escape" || this.filter.value === "") return;
    event.preventDefault();
    this.filter.value = "";
    this.arrange(true);
  }

  /** The camera to go back to, once its card is there. */
  select(name) {
    this.wanted = name;
  }

  focus() {
    const card = this.cards.get(this.wanted)?.element;
    this.wanted = null;
    card?.scrollIntoView({ block: "center" });
    card?.focus({ preventScroll: true });
  }
}

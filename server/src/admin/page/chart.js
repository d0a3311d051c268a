// Charts of the last minutes: lines in milliseconds, bars of frames per second, sparklines.

import { s, h, text, attribute } from "./dom.js";
import { clock, ms, step } from "./format.js";

const SECONDS = 300;
const HEIGHT = 180;
const LEFT = 44;
const BOTTOM = 20;
const TOP = 12;

/** The path through points; a gap where there is no value. */
function path(points) {
  let d = "";
  let pen = false;
  for (const [x, y] of points) {
    if (y === null) {
      pen = false;
      continue;
    }
    d += `${pen ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
    pen = true;
  }
  return d;
}

/** Seconds kept by when they were, so that one told twice counts once. */
export class Seconds {
  constructor() {
    this.list = [];
  }

  add(event) {
    if (event.history) this.list = event.history.slice(-SECONDS);
    const { last } = event;
    const newest = this.list.at(-1);
    if (last && (!newest || last.t > newest.t)) this.list.push(last);
    if (this.list.length > SECONDS) this.list.shift();
  }
}

/**
 * A chart with a read-out for pointer and arrow keys. `layers` is drawn by `draw(layer, scale)`; `describe` says
 * what a second holds, `summary` what the chart shows.
 */
export class Chart {
  constructor(title, { most, marks, describe, summary, unit }) {
    Object.assign(this, { most, marks, describe, summary, unit, at: null, seconds: [] });
    this.grid = s("g", { class: "grid" });
    this.body = s("g");
    this.cursor = s("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM });
    this.svg = s(
      "svg",
      {
        class: "chart",
        role: "img",
        tabindex: 0,
        onpointermove: (event) => this.point(event.offsetX),
        onpointerleave: () => this.pick(null),
        onblur: () => this.pick(null),
        onkeydown: (event) => this.key(event),
      },
      this.grid,
      this.body,
      this.cursor,
    );
    this.output = h("p", { class: "readout soft" });
    this.element = h("figure", { class: "card" }, h("figcaption", {}, title), this.svg, this.output);
    this.paths = marks.map((mark) => s("path", { class: mark.class }));
    this.body.append(...this.paths);
  }

  get width() {
    return this.svg.clientWidth || 600;
  }

  x(t) {
    const { t: last } = this.seconds.at(-1);
    return LEFT + ((t - (last - SECONDS + 1)) / SECONDS) * (this.width - LEFT - 4);
  }

  draw(seconds) {
    this.seconds = seconds;
    if (seconds.length === 0) return;
    const width = this.width;
    attribute(this.svg, "viewBox", `0 0 ${width} ${HEIGHT}`);
    const top = this.most(seconds);
    const size = step(top, 4);
    const limit = Math.ceil(top / size) * size || size;
    const y = (value) => HEIGHT - BOTTOM - (value / limit) * (HEIGHT - BOTTOM - TOP);
    this.lines(limit, size, y, width);
    const slot = (width - LEFT - 4) / SECONDS;
    this.marks.forEach((mark, index) => attribute(this.paths[index], "d", mark.bars
      ? bars(seconds, mark, (t) => this.x(t), y, slot)
      : path(mark.points(seconds).map(([t, value]) => [this.x(t) + slot / 2, value === null ? null : y(value)]))));
    attribute(this.svg, "aria-label", this.summary(seconds));
    this.show();
  }

  lines(limit, size, y, width) {
    const key = `${limit} ${size} ${width}`;
    if (this.scale === key) return;
    this.scale = key;
    const marks = [];
    for (let value = 0; value <= limit * 1.0001; value += size) {
      marks.push(s("line", { x1: LEFT, x2: width - 4, y1: y(value), y2: y(value) }));
      marks.push(s("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, String(+value.toPrecision(3))));
    }
    for (const minutes of width < 400 ? [5, 3, 1] : [5, 4, 3, 2, 1]) {
      const x = width - 4 - (minutes / 5) * (width - LEFT - 4);
      marks.push(s("text", { x, y: HEIGHT - 4, "text-anchor": minutes === 5 ? "start" : "middle" }, `−${minutes} min`));
    }
    marks.push(s("text", { x: LEFT - 6, y: HEIGHT - 4, "text-anchor": "end" }, this.unit));
    this.grid.replaceChildren(...marks);
  }

  point(x) {
    if (this.seconds.length === 0) return;
    const share = (x - LEFT) / (this.width - LEFT - 4);
    const t = this.seconds.at(-1).t - SECONDS + 1 + Math.floor(share * SECONDS);
    this.pick(t);
  }

  key(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 }[event.key];
    if (event.key === "Escape") this.pick(null);
    if (!by || this.seconds.length === 0) return;
    event.preventDefault();
    this.pick((this.at ?? this.seconds.at(-1).t) + (this.at === null ? 0 : by));
  }

  pick(t) {
    if (t !== null) {
      const { 0: first, [this.seconds.length - 1]: last } = this.seconds;
      t = Math.min(Math.max(t, first.t), last.t);
    }
    this.at = t;
    this.show();
  }

  show() {
    const second = this.at === null ? null : this.seconds.find(({ t }) => t >= this.at);
    this.svg.classList.toggle("picked", Boolean(second));
    if (second) {
      const x = this.x(second.t) + (this.width - LEFT - 4) / SECONDS / 2;
      attribute(this.cursor, "x1", x);
      attribute(this.cursor, "x2", x);
    }
    const shown = second ?? this.seconds.at(-1);
    text(this.output, shown ? `${second ? clock(shown.t) : "last second"}: ${this.describe(shown)}` : "");
  }
}

function bars(seconds, mark, x, y, slot) {
  let d = "";
  for (const second of seconds) {
    const [from, to] = mark.bars(second);
    if (to > from) d += `M${x(second.t).toFixed(1)} ${y(from).toFixed(1)}h${(slot * 0.86).toFixed(2)}V${y(to).toFixed(1)}h${(-slot * 0.86).toFixed(2)}z`;
  }
  return d;
}

/** Slowest answer of each second, with the limit. */
export function latency(limit, withMean) {
  const worst = (seconds) => seconds.reduce((most, { slowest_ms }) => Math.max(most, slowest_ms ?? 0), 0);
  const line = (key) => (seconds) => seconds.map((second) => [second.t, second[key]]);
  const ends = (seconds) => [[seconds.at(-1).t - SECONDS + 1, limit], [seconds.at(-1).t, limit]];
  const marks = [
    { class: "limit", points: ends },
    ...(withMean ? [{ class: "mean", points: line("mean_ms") }] : []),
    { class: "slowest", points: line("slowest_ms") },
  ];
  return new Chart(withMean ? "Slowest and mean answer of each second" : "Slowest answer of each second", {
    marks,
    unit: "ms",
    most: (seconds) => Math.max(limit * 1.1, worst(seconds) * 1.05),
    describe: (second) => `slowest ${ms(second.slowest_ms)}${withMean ? `, mean ${ms(second.mean_ms)}` : ""}, limit ${limit} ms`,
    summary: (seconds) => `Slowest answer of each second over the last five minutes: at most ${ms(worst(seconds))}, limit ${limit} ms`,
  });
}

/** Frames of each second by what became of them, stacked. */
export function frames() {
  const all = ({ answered, dropped, failed }) => answered + dropped + failed;
  const sum = (seconds, key) => seconds.reduce((total, second) => total + second[key], 0);
  return new Chart("Frames of each second", {
    unit: "/s",
    marks: [
      { class: "answered", bars: ({ answered }) => [0, answered] },
      { class: "dropped", bars: ({ answered, dropped }) => [answered, answered + dropped] },
      { class: "failed", bars: (second) => [second.answered + second.dropped, all(second)] },
    ],
    most: (seconds) => seconds.reduce((most, second) => Math.max(most, all(second)), 1),
    describe: ({ answered, dropped, failed }) => `${answered} answered, ${dropped} dropped, ${failed} failed`,
    summary: (seconds) => `Over the last five minutes: ${sum(seconds, "answered")} frames answered, ${sum(seconds, "dropped")} dropped, ${sum(seconds, "failed")} failed`,
  });
}

/** A line without axes; the limit is dashed. */
export class Spark {
  constructor() {
    this.line = s("path", { class: "slowest" });
    this.element = s("svg", { class: "spark", viewBox: "0 0 120 32", preserveAspectRatio: "none", "aria-hidden": "true" },
      s("path", { class: "limit", d: "M0 8H120" }), this.line);
  }

  draw(values, limit) {
    const y = (value) => Math.max(1, 32 - (value / limit) * 24);
    const first = 60 - values.length;
    attribute(this.line, "d", path(values.map((value, index) => [(first + index) * (120 / 59), value === null ? null : y(value)])));
  }
}

/** A bar of parts with its legend. */
export class Parts {
  constructor(label, names) {
    this.names = names;
    this.bars = names.map((name) => h("span", { class: `part ${name}` }));
    this.values = names.map(() => h("b"));
    this.bar = h("div", { class: "parts", role: "img" }, ...this.bars);
    this.legend = h("ul", { class: "legend" }, ...names.map((name, index) =>
      h("li", {}, h("span", { class: `swatch ${name}` }), `${name} `, this.values[index])));
    this.label = label;
    this.element = h("div", {}, this.bar, this.legend);
  }

  /** `whole` is what the bar's full length stands for; none: the sum. */
  draw(values, whole, show) {
    const sum = this.names.reduce((total, name) => total + (values?.[name] ?? 0), 0);
    const full = Math.max(whole ?? 0, sum, 1e-9);
    this.names.forEach((name, index) => {
      const value = values?.[name] ?? 0;
      this.bars[index].style.width = `${((value / full) * 100).toFixed(2)}%`;
      text(this.values[index], values ? show(value) : "–");
    });
    attribute(this.bar, "aria-label", `${this.label}: ${this.names.map((name) => `${name} ${values ? show(values[name] ?? 0) : "unknown"}`).join(", ")}`);
  }
}


// Charts of the last minutes: lines in milliseconds, areas of frames per second, sparklines, bars of parts.

import { s, h, text, attribute } from "./dom.js";
import { NONE, clock, ms, step } from "./format.js";

const SECONDS = 300;
const HEIGHT = 190;
const LEFT = 44;
const RIGHT = 10;
const BOTTOM = 22;
const TOP = 10;

/** Seconds of a row of the table beside a chart. */
const ROW_SECONDS = 10;

/** Height of the smallest bar: one dropped frame of hundreds must not vanish. */
const LEAST_BAR = 3;

/** The path through points; a gap where there is no value, a dot where a value stands alone. */
function line(points) {
  let d = "";
  let pen = false;
  for (const [x, y] of points) {
    if (y !== null) d += pen ? `L${x.toFixed(1)} ${y.toFixed(1)}` : `M${x.toFixed(1)} ${y.toFixed(1)}h0`;
    pen = y !== null;
  }
  return d;
}

/** What lies between points and a base. */
function area(points, base) {
  let d = "";
  let from = null;
  for (const [x, y] of [...points, [0, null]]) {
    if (y !== null) {
      d += from === null ? `M${x.toFixed(1)} ${base}V${y.toFixed(1)}` : `L${x.toFixed(1)} ${y.toFixed(1)}`;
      from ??= x;
    } else if (from !== null) {
      d += `V${base}H${from.toFixed(1)}z`;
      from = null;
    }
  }
  return d;
}

/** Dots at the points above a limit, smaller y being more. */
function above(points, limit) {
  let d = "";
  for (const [x, y] of points) if (y !== null && y < limit) d += `M${x.toFixed(1)} ${y.toFixed(1)}h0`;
  return d;
}

/** Points with a gap wherever a second is missing. */
function gaps(seconds, key) {
  const points = [];
  let before = null;
  for (const second of seconds) {
    if (before !== null && second.t - before > 1) points.push([second.t - 1, null]);
    points.push([second.t, second[key]]);
    before = second.t;
  }
  return points;
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

/** A chart of what `kind` tells of each second, with a read-out for pointer and arrow keys, and a table. */
class Chart {
  constructor(title, kind) {
    Object.assign(this, { kind, at: null, seconds: [] });
    this.grid = s("g", { class: "grid" });
    this.paths = new Map(kind.layers.map((name) => [name, s("path", { class: name })]));
    this.cursor = s("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM });
    this.spot = s("circle", { class: "spot", r: 4 });
    this.name = s("text", { class: "limit-name", "text-anchor": "end" });
    this.svg = s("svg", {
      class: "chart",
      role: "img",
      tabindex: 0,
      onpointermove: (event) => this.point(event.offsetX),
      onpointerdown: (event) => this.point(event.offsetX),
      onpointerleave: () => this.pick(null),
      onblur: () => this.pick(null),
      onkeydown: (event) => this.key(event),
    }, this.grid, ...this.paths.values(), this.name, this.cursor, this.spot);
    this.output = h("p", { class: "readout soft" });
    this.rows = h("tbody");
    const columns = ["Time", ...kind.columns.map(([column]) => column)];
    this.table = h("details", { ontoggle: () => this.list() },
      h("summary", {}, "As a table"),
      h("div", { class: "table", tabindex: 0, role: "region", "aria-label": `${title}, as a table` }, h("table", {},
        h("thead", {}, h("tr", {}, ...columns.map((column) => h("th", { scope: "col" }, column)))), this.rows)));
    const legend = h("ul", { class: "legend" }, ...kind.legend.map(([swatch, label]) =>
      h("li", {}, h("span", { class: `swatch ${swatch}` }), label)));
    this.element = h("figure", { class: "card" },
      h("figcaption", {}, h("h2", {}, title), this.output), this.svg, h("div", { class: "under" }, legend, this.table));
    // A page that gets wider or narrower draws at once, and not with the next second.
    new ResizeObserver(() => this.draw(this.seconds, this.limit)).observe(this.svg);
  }

  x(t) {
    const { t: last } = this.seconds.at(-1);
    return LEFT + ((t - (last - SECONDS + 1)) / SECONDS) * (this.width - LEFT - RIGHT);
  }

  y(value) {
    return HEIGHT - BOTTOM - (value / this.top) * (HEIGHT - BOTTOM - TOP);
  }

  draw(seconds, limit) {
    Object.assign(this, { seconds, limit, width: this.svg.clientWidth });
    if (seconds.length === 0 || this.width === 0) return;
    attribute(this.svg, "viewBox", `0 0 ${this.width} ${HEIGHT}`);
    const most = this.kind.most(seconds, limit);
    const size = Math.max(this.kind.least ?? 0, step(most, 4));
    this.top = Math.ceil(most / size - 1e-9) * size;
    this.lines(size);
    const slot = (this.width - LEFT - RIGHT) / SECONDS;
    const drawn = this.kind.draw(seconds, { x: (t) => this.x(t), y: (value) => this.y(value), slot, limit });
    for (const [name, path] of this.paths) attribute(path, "d", drawn[name]);
    attribute(this.svg, "aria-label", this.kind.summary(seconds, limit));
    this.show();
    this.list();
  }

  lines(size) {
    const key = `${this.top} ${this.width} ${this.limit}`;
    if (this.scale === key) return;
    this.scale = key;
    const { width } = this;
    const marks = [];
    for (let value = 0; value <= this.top * 1.0001; value += size) {
      const y = this.y(value);
      marks.push(s("line", { x1: LEFT, x2: width - RIGHT, y1: y, y2: y }));
      marks.push(s("text", { x: LEFT - 7, y: y + 4, "text-anchor": "end" }, String(+value.toPrecision(3))));
    }
    for (const minutes of width < 420 ? [5, 3, 1] : [5, 4, 3, 2, 1]) {
      const x = width - RIGHT - (minutes / 5) * (width - LEFT - RIGHT);
      marks.push(s("text", { x, y: HEIGHT - 5, "text-anchor": minutes === 5 ? "start" : "middle" }, `−${minutes} min`));
    }
    marks.push(s("text", { x: width - RIGHT, y: HEIGHT - 5, "text-anchor": "end" }, "now"));
    marks.push(s("text", { x: LEFT - 7, y: HEIGHT - 5, "text-anchor": "end" }, this.kind.unit));
    this.grid.replaceChildren(...marks);
    if (!this.kind.limited) return;
    attribute(this.name, "x", width - RIGHT);
    attribute(this.name, "y", this.y(this.limit) - 5);
    text(this.name, `limit ${this.limit} ms`);
  }

  point(x) {
    if (this.seconds.length === 0) return;
    const share = (x - LEFT) / (this.width - LEFT - RIGHT);
    this.pick(this.seconds.at(-1).t - SECONDS + 1 + Math.floor(share * SECONDS));
  }

  key(event) {
    if (event.key === "Escape") this.pick(null);
    const by = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -SECONDS, End: SECONDS }[event.key];
    if (!by || this.seconds.length === 0) return;
    event.preventDefault();
    const from = this.at ?? this.seconds.at(-1).t;
    this.pick(this.at === null && by === -1 ? from : from + by);
  }

  pick(t) {
    if (t !== null && this.seconds.length > 0) t = Math.min(Math.max(t, this.seconds[0].t), this.seconds.at(-1).t);
    this.at = t;
    this.show();
  }

  show() {
    const second = this.at === null ? null : this.seconds.find(({ t }) => t >= this.at);
    this.svg.classList.toggle("picked", Boolean(second));
    if (second) {
      const x = this.x(second.t) + (this.width - LEFT - RIGHT) / SECONDS / 2;
      const value = this.kind.value(second);
      attribute(this.cursor, "x1", x);
      attribute(this.cursor, "x2", x);
      attribute(this.spot, "cx", x);
      attribute(this.spot, "cy", value === null ? -99 : this.y(value));
    }
    // What the arrow keys pick is read out; what passes by itself is not.
    attribute(this.output, "aria-live", second && document.activeElement === this.svg ? "polite" : "off");
    const shown = second ?? this.seconds.at(-1);
    text(this.output, shown ? `${second ? clock(shown.t) : "last second"}: ${this.kind.describe(shown)}` : "");
  }

  /** Fills the table while it is open: a row for ten seconds, newest first. */
  list() {
    if (!this.table.open || this.seconds.length === 0) return;
    const rows = new Map();
    for (const second of this.seconds) {
      const begin = second.t - (second.t % ROW_SECONDS);
      rows.set(begin, [...(rows.get(begin) ?? []), second]);
    }
    const newest = [...rows.keys()].at(-1);
    if (this.listed === newest) return;
    this.listed = newest;
    this.rows.replaceChildren(...[...rows].reverse().map(([begin, seconds]) => h("tr", {},
      h("th", { scope: "row" }, clock(begin)), ...this.kind.columns.map(([, read]) => h("td", {}, read(seconds))))));
  }
}

const total = (seconds, key) => seconds.reduce((sum, second) => sum + second[key], 0);

const worst = (seconds) => seconds.reduce((most, { slowest_ms: value }) => Math.max(most, value ?? 0), 0);

const worstText = (seconds) => (seconds.some(({ slowest_ms: value }) => value !== null) ? ms(worst(seconds)) : NONE);

/** Slowest answer of each second, with the limit. */
export function latency(withMean) {
  const told = ({ slowest_ms: slowest, mean_ms: mean }) => (slowest === null ? "no answer" : `slowest ${ms(slowest)}${withMean ? `, mean ${ms(mean)}` : ""}`);
  return new Chart(withMean ? "Answers of each second" : "Slowest answer of each second", {
    unit: "ms",
    limited: true,
    layers: ["under", "limit", ...(withMean ? ["mean"] : []), "slowest", "over"],
    legend: [["line-slowest", "slowest"], ...(withMean ? [["line-mean", "mean"]] : []), ["dot-over", "over the limit"]],
    columns: [["Slowest", worstText], ["Answered", (seconds) => String(total(seconds, "answered"))]],
    most: (seconds, limit) => Math.max(limit * 1.2, worst(seconds) * 1.05),
    draw: (seconds, { x, y, slot, limit }) => {
      const at = (key) => gaps(seconds, key).map(([t, value]) => [x(t) + slot / 2, value === null ? null : y(value)]);
      const slowest = at("slowest_ms");
      const end = x(seconds.at(-1).t) + slot;
      return {
        under: area(slowest, y(0)),
        limit: `M${LEFT} ${y(limit)}H${end.toFixed(1)}`,
        mean: withMean ? line(at("mean_ms")) : "",
        slowest: line(slowest),
        over: above(slowest, y(limit)),
      };
    },
    value: ({ slowest_ms: value }) => value,
    describe: told,
    summary: (seconds, limit) => `Slowest answer of each second over the last five minutes: at most ${worstText(seconds)}; the limit is ${limit} ms`,
  });
}

/** Steps of a second each, from one height to another; `least` pixels at least. */
function steps(seconds, from, to, { x, y, slot }, least = 0) {
  let d = "";
  for (const second of seconds) {
    if (to(second) <= from(second)) continue;
    const bottom = y(from(second));
    const top = Math.min(y(to(second)), bottom - least);
    d += `M${x(second.t).toFixed(1)} ${bottom.toFixed(1)}V${top.toFixed(1)}h${(slot + 0.1).toFixed(2)}V${bottom.toFixed(1)}z`;
  }
  return d;
}

/** Frames of each second by what became of them, stacked. */
export function frames() {
  const answered = (second) => second.answered;
  const dropped = (second) => second.answered + second.dropped;
  const all = (second) => dropped(second) + second.failed;
  const words = (seconds) => ["answered", "dropped", "failed"].map((key) => `${total(seconds, key)} ${key}`).join(", ");
  return new Chart("Frames of each second", {
    unit: "/s",
    least: 1,
    layers: ["answered", "dropped", "failed"],
    legend: [["answered", "answered"], ["dropped", "dropped"], ["failed", "failed"]],
    columns: ["Answered", "Dropped", "Failed"].map((name) => [name, (seconds) => String(total(seconds, name.toLowerCase()))]),
    most: (seconds) => seconds.reduce((most, second) => Math.max(most, all(second)), 1),
    draw: (seconds, scale) => ({
      answered: steps(seconds, () => 0, answered, scale),
      dropped: steps(seconds, answered, dropped, scale, LEAST_BAR),
      failed: steps(seconds, dropped, all, scale, LEAST_BAR),
    }),
    value: all,
    describe: (second) => words([second]),
    summary: (seconds) => `Frames of the last five minutes: ${words(seconds)}`,
  });
}

const SPARK = { width: 118, height: 34, limit: 9 };

/** The last minute without axes: as high as the dashed limit is as late as may be. */
export class Spark {
  constructor() {
    this.under = s("path", { class: "under" });
    this.line = s("path", { class: "slowest" });
    this.over = s("path", { class: "over" });
    const { width, height, limit } = SPARK;
    this.element = s("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", "aria-hidden": "true" },
      this.under, s("path", { class: "limit", d: `M0 ${limit}H${width}` }), this.line, this.over);
  }

  draw(values, limit) {
    const first = 60 - values.length;
    const y = (value) => Math.max(2, SPARK.height - 1 - (value / limit) * (SPARK.height - 1 - SPARK.limit));
    const points = values.map((value, at) => [(first + at) * 2, value === null ? null : y(value)]);
    attribute(this.under, "d", area(points, SPARK.height));
    attribute(this.line, "d", line(points));
    attribute(this.over, "d", above(points, SPARK.limit));
  }
}

/** A bar of parts with its legend. */
export class Parts {
  constructor(label, names) {
    Object.assign(this, { label, names });
    this.bars = names.map((name) => h("span", { class: `part ${name}` }));
    this.values = names.map((name) => h("b", { "data-key": `stage-${name}` }));
    this.bar = h("div", { class: "parts", role: "img" }, ...this.bars);
    this.legend = h("ul", { class: "legend" }, ...names.map((name, at) =>
      h("li", {}, h("span", { class: `swatch ${name}` }), `${name} `, this.values[at])));
    this.element = h("div", {}, this.bar, this.legend);
  }

  /** `whole` is what the bar's full length stands for; none: the sum. */
  draw(values, whole, show) {
    const sum = this.names.reduce((all, name) => all + (values?.[name] ?? 0), 0);
    const full = Math.max(whole ?? 0, sum, 1e-9);
    this.names.forEach((name, at) => {
      const value = values?.[name] ?? 0;
      this.bars[at].style.width = `${((value / full) * 100).toFixed(2)}%`;
      attribute(this.values[at], "data-value", values ? value : "");
      text(this.values[at], values ? show(value) : NONE);
    });
    const parts = this.names.map((name) => `${name} ${values ? show(values[name] ?? 0) : "unknown"}`);
    attribute(this.bar, "aria-label", `${this.label}: ${parts.join(", ")}`);
    return sum;
  }
}

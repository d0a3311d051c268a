// Read-outs under the pointer, or by the arrow keys. All numbers come from data attributes; without
// this script the page lacks nothing but them.
(() => {
  "use strict";
  const tip = document.getElementById("tip");
  const NS = "http://www.w3.org/2000/svg";
  const numbers = (text) => text.split(/[ ,]/).map((part) => (part === "" ? null : Number(part)));
  const even = {
    linear: (v) => v,
    log: (v) => Math.log10(v),
    nines: (v) => -Math.log10(Math.max(1 - v / 100, 1e-300)),
  };

  const axis = (svg, name) => {
    const f = even[svg.dataset[name + "Scale"]];
    const [low, high] = numbers(svg.dataset[name + "Domain"]).map(f);
    const [from, to] = numbers(svg.dataset[name + "Range"]);
    return (value) => {
      const share = (f(value) - low) / (high - low);
      return from + Math.min(1, Math.max(0, share)) * (to - from);
    };
  };

  const shown = (value, unit) => {
    const size = Math.abs(value);
    const digits = Number.isInteger(value) ? 0 : size < 10 ? 2 : size < 1000 ? 1 : 0;
    return value.toFixed(digits) + (unit ? " " + unit : "");
  };

  const xText = (svg, x) => {
    const bin = Number(svg.dataset.bin);
    // Percentiles are read out as finely as they are rare.
    const digits = svg.dataset.xScale === "nines" ? (x < 99 ? 1 : x < 99.9 ? 2 : 4) : 6;
    const round = (v) => String(Number(v.toFixed(digits)));
    const text = bin ? round(x - bin / 2) + "\u2013" + round(x + bin / 2) : round(x);
    return svg.dataset.xText.replace("{}", text);
  };

  const rows = (head, lines) => {
    tip.replaceChildren();
    const title = document.createElement("b");
    title.textContent = head;
    tip.append(title);
    for (const [name, value] of lines) {
      const row = document.createElement("div");
      for (const text of [name, value]) {
        const cell = document.createElement("span");
        cell.textContent = text;
        row.append(cell);
      }
      tip.append(row);
    }
    tip.hidden = false;
  };

  const placeTip = (x, y) => {
    const room = 14;
    const { width, height } = tip.getBoundingClientRect();
    const left = x + room + width > innerWidth ? x - room - width : x + room;
    const top = y + room + height > innerHeight ? y - room - height : y + room;
    tip.style.transform = `translate(${Math.max(4, left)}px, ${Math.max(4, top)}px)`;
  };

  const overlay = (svg) => {
    let layer = svg.querySelector(":scope > .hover");
    if (!layer) {
      layer = document.createElementNS(NS, "g");
      layer.setAttribute("class", "hover");
      svg.append(layer);
    }
    layer.replaceChildren();
    return layer;
  };

  const add = (layer, name, attributes) => {
    const element = document.createElementNS(NS, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    layer.append(element);
  };

  const series = (svg) =>
    [...svg.querySelectorAll("path[data-y]")].map((path) => ({
      path,
      name: path.dataset.name,
      unit: path.dataset.unit,
      x: numbers(path.dataset.x),
      y: numbers(path.dataset.y),
    }));

  const byX = {
    places: (svg) => {
      const at = axis(svg, "x");
      const xs = new Set(svg.all.flatMap((s) => s.x));
      return [...xs].sort((a, b) => a - b).map((x) => ({ x, px: at(x), py: 0 }));
    },
    show: (svg, { x, px }) => {
      const layer = overlay(svg);
      const [bottom, top] = numbers(svg.dataset.yRange);
      const y = axis(svg, "y");
      add(layer, "line", { class: "cross", x1: px, x2: px, y1: top, y2: bottom });
      const lines = [];
      for (const s of svg.all) {
        const value = s.y[s.x.indexOf(x)];
        if (value === null || value === undefined) continue;
        lines.push([s.name, shown(value, s.unit)]);
        if (s.path.classList.contains("line")) {
          const color = getComputedStyle(s.path).stroke;
          add(layer, "circle", { class: "spot", cx: px, cy: y(value), r: 4, stroke: color });
        }
      }
      for (const limit of svg.querySelectorAll(".limit")) lines.push(["limit", limit.dataset.name.replace("limit ", "")]);
      rows(xText(svg, x), lines);
    },
  };

  const byPoint = {
    places: (svg) => {
      const [atX, atY] = [axis(svg, "x"), axis(svg, "y")];
      return svg.all
        .flatMap((s) => s.x.map((x, i) => ({ s, x, y: s.y[i] })))
        .filter((p) => p.y !== null && p.s.path.classList.contains("mark"))
        .map((p) => ({ ...p, px: atX(p.x), py: atY(p.y) }))
        .sort((a, b) => a.px - b.px || a.py - b.py);
    },
    show: (svg, p) => {
      add(overlay(svg), "circle", { class: "pick", cx: p.px, cy: p.py, r: 9 });
      rows(xText(svg, p.x), [[p.s.name, shown(p.y, p.s.unit)]]);
    },
  };

  const byCell = {
    places: (svg) => {
      const at = axis(svg, "x");
      const bin = Number(svg.dataset.bin);
      const height = Number(svg.querySelector("[data-row-height]").dataset.rowHeight);
      const [, top] = numbers(svg.dataset.yRange);
      const width = at(bin) - at(0);
      return [...svg.querySelectorAll("[data-row]")].flatMap((row, r) => {
        const missed = numbers(row.dataset.missed);
        return numbers(row.dataset.max).map((ms, i) => ({
          row: row.dataset.row,
          x: (i + 0.5) * bin,
          px: at((i + 0.5) * bin),
          py: top + (r + 0.5) * height,
          ms,
          missed: missed[i] || 0,
          width,
          height,
        }));
      });
    },
    show: (svg, cell) => {
      const { px, py, width, height } = cell;
      add(overlay(svg), "rect", { class: "pick", x: px - width / 2, y: py - height / 2, width, height });
      const lines = [["slowest", cell.ms === null ? "no OK answer" : shown(cell.ms, "ms")]];
      if (cell.missed) lines.push(["missed", shown(cell.missed, "")]);
      rows(cell.row + ", " + xText(svg, cell.x), lines);
    },
  };

  const byBar = {
    places: (svg) => [{ x: 0, px: 0, py: 0 }],
    show: (svg) => {
      overlay(svg);
      rows(svg.dataset.xText, svg.all.map((s) => [s.name, shown(s.y[0], s.unit)]));
    },
  };

  const modes = { x: byX, point: byPoint, heat: byCell, bar: byBar };

  for (const svg of document.querySelectorAll("svg.chart[data-hover]")) {
    const mode = modes[svg.dataset.hover];
    if (!mode) continue;
    let places = null;
    let current = -1;
    const ready = () => {
      svg.all ??= series(svg);
      places ??= mode.places(svg);
      return places.length > 0;
    };
    const hide = () => {
      tip.hidden = true;
      overlay(svg);
    };
    const screen = (place) => new DOMPoint(place.px, place.py).matrixTransform(svg.getScreenCTM());
    svg.addEventListener("pointermove", (event) => {
      if (!ready()) return;
      const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
      let best = Infinity;
      places.forEach((place, i) => {
        const dy = mode === byX ? 0 : place.py - at.y;
        const distance = (place.px - at.x) ** 2 + dy * dy;
        if (distance < best) [best, current] = [distance, i];
      });
      mode.show(svg, places[current]);
      placeTip(event.clientX, event.clientY);
    });
    svg.addEventListener("pointerleave", hide);
    svg.addEventListener("blur", hide);
    svg.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (event.key === "Escape") hide();
      if (!step || !ready()) return;
      event.preventDefault();
      current = Math.min(places.length - 1, Math.max(0, current + step));
      mode.show(svg, places[current]);
      const { x, y } = screen(places[current]);
      const box = svg.getBoundingClientRect();
      placeTip(x, mode === byX ? box.top + box.height / 3 : y);
    });
  }
})();

// Elements made and changed without ever reading markup from data.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** An HTML element. Children that are text stay text. */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** An SVG element. */
export function s(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** Writes text only where it has changed: layout is what costs. */
export function text(element, value) {
  if (element.textContent !== value) element.textContent = value;
}

/** Sets an attribute only where it has changed. */
export function attribute(element, name, value) {
  if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

/** A figure for people, with its raw value for programs beside it. */
export function figure(element, shown, value) {
  text(element, shown);
  attribute(element, "data-value", value === null || value === undefined ? "" : value);
}

/** Puts children in this order, touching only those that are elsewhere, and takes away all others and text. */
export function arrange(parent, children) {
  const wanted = new Set(children);
  for (const child of [...parent.childNodes]) if (!wanted.has(child)) child.remove();
  children.forEach((child, at) => {
    if (parent.childNodes[at] !== child) parent.insertBefore(child, parent.childNodes[at] ?? null);
  });
}

/** A figure with its name, a bar where it is to be seen against something, and a line below. */
export class Figure {
  constructor(name, key, { unit = "", meter = false, wide = false } = {}) {
    this.value = h("span", { class: "value", "data-key": key });
    this.unit = h("span", { class: "unit" }, unit);
    this.fill = meter ? h("i") : null;
    this.below = h("dd", { class: "below soft" });
    this.element = h("div", { class: wide ? "figure wide" : "figure" },
      h("dt", {}, name), h("dd", {}, this.value, this.unit),
      meter ? h("dd", { class: "meter", "aria-hidden": "true" }, this.fill) : null, this.below);
  }

  /** `share` is how full the bar is. */
  draw(shown, value, below = "", bad = false, share = 0) {
    figure(this.value, shown, value);
    this.unit.hidden = value === null || value === undefined;
    text(this.below, below);
    this.element.classList.toggle("bad", bad);
    if (this.fill) this.fill.style.width = `${(Math.min(1, Math.max(0, share)) * 100).toFixed(1)}%`;
  }
}

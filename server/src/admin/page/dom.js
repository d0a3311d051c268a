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

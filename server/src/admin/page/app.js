// Which view is open, and what stands above it.

import { h, s, text, attribute, arrange } from "./dom.js";
import { CameraPage } from "./camera.js";
import { Fleet } from "./fleet.js";
import { several, span } from "./format.js";

const status = document.getElementById("status");
const served = document.getElementById("served");
const banner = document.getElementById("banner");
const back = document.getElementById("back");
const root = document.getElementById("view");

/** Signs that say by their shape what the colour says. */
const SIGNS = {
  good: "M15 25l6 6 12-14",
  warn: "M24 13v14M24 33v1",
  bad: "M24 13v14M24 33v1",
  lost: "M16 16l16 16M32 16L16 32",
  calm: "M15 24h18",
};

const sign = s("path");
const headline = h("h1", { tabindex: "-1" });
const words = h("p");
banner.append(s("svg", { viewBox: "0 0 48 48", "aria-hidden": "true" }, s("circle", { cx: 24, cy: 24, r: 22 }), sign), h("div", {}, headline, words));

let view = null;
let heard = false;

function say(phrase, kind) {
  text(status, phrase);
  attribute(status, "data-kind", kind);
}

/** `head` is text or the nodes that make it up. */
function announce(kind, head, sentence) {
  banner.hidden = false;
  attribute(banner, "data-kind", kind);
  attribute(sign, "d", SIGNS[kind]);
  if (typeof head === "string") text(headline, head);
  else arrange(headline, head);
  text(words, sentence);
}

const TROUBLES = {
  lost: (seconds) => [
    "no connection", "lost", "Connection to the server lost",
    heard ? `Nothing has come for ${span(seconds)}; what is below is as old. It is tried again every second.` : "It cannot be reached. It is tried again every second.",
  ],
  unknown: () => [
    "no such camera", "trouble", "No such camera",
    "No camera of this name is connected, or was in the last five minutes. It shows here once it connects.",
  ],
  full: () => [
    "too many pages", "trouble", "Too many live pages are open on this server",
    "Close some, or look at /metrics. It is tried again every second.",
  ],
};

function ontrouble(trouble, seconds) {
  const [phrase, kind, head, sentence] = TROUBLES[trouble](seconds);
  root.classList.add("old");
  say(phrase, kind);
  announce(trouble === "lost" ? "lost" : "warn", head, sentence);
  document.title = `${head} – Vedette`;
}

function onevent(event) {
  heard = true;
  root.classList.remove("old");
  document.title = `${view.title} – Vedette`;
  if ("ready" in event) {
    say(event.ready ? "ready" : `not ready: ${event.not_ready_reason}`, event.ready ? "ready" : "trouble");
    const { model } = event;
    const input = model.input[0] > 0 ? `, input ${model.input.join(" × ")}` : "";
    text(served, `${model.name} (${model.backend}${input}), version ${event.version}, ${several(event.workers, "worker")}, up ${span(event.uptime_seconds)}`);
  } else {
    say("connected", "ready");
  }
  const { kind, head, words: sentence } = view.verdict;
  announce(kind, head, sentence);
}

function decoded(name) {
  try {
    return decodeURIComponent(name);
  } catch {
    return name;
  }
}

function route() {
  const left = view?.name;
  const first = view === null;
  view?.close();
  heard = false;
  banner.hidden = true;
  const camera = location.hash.match(/^#\/camera\/(.+)$/);
  const parts = { ontrouble, onevent };
  headline.replaceChildren();
  view = camera ? new CameraPage(decoded(camera[1]), parts) : new Fleet(parts);
  back.replaceChildren(...(camera ? [h("p", { class: "back" }, h("a", { href: "#/" }, "← All cameras"))] : []));
  root.replaceChildren(view.element);
  root.classList.remove("old");
  document.title = `${view.title} – Vedette`;
  scrollTo(0, 0);
  // Who comes by keyboard goes on where they were.
  if (!first) (camera ? back.querySelector("a") : document.getElementById("content")).focus({ preventScroll: true });
  if (!camera && left) view.select(left);
}

addEventListener("hashchange", () => {
  // The link that skips the head goes to a place, not to a view.
  if (location.hash !== "#content") route();
});

addEventListener("keydown", (event) => {
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement?.tagName ?? "");
  const filter = document.getElementById("filter");
  if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey || !filter) return;
  event.preventDefault();
  filter.focus();
});

document.addEventListener("visibilitychange", () => view.visible(!document.hidden));
route();

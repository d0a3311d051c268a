// Which view is open, and what the head of the page says.

import { text, attribute } from "./dom.js";
import { CameraPage } from "./camera.js";
import { Fleet } from "./fleet.js";
import { span } from "./format.js";

const status = document.getElementById("status");
const served = document.getElementById("served");
const root = document.getElementById("view");

let view = null;
let lostAt = 0;

function say(words, kind) {
  text(status, words);
  attribute(status, "data-kind", kind);
}

function onstate(state) {
  if (state === "open") {
    lostAt = 0;
    return;
  }
  if (state === "unknown") {
    root.classList.add("old");
    say("no such camera now, or in the last five minutes", "trouble");
    return;
  }
  lostAt ||= Date.now();
  root.classList.add("old");
  const since = span((Date.now() - lostAt) / 1000);
  say(`no connection to the server for ${since}`, "lost");
  document.title = "no connection – Vedette";
}

function onevent(event) {
  root.classList.remove("old");
  if ("ready" in event) {
    say(event.ready ? "ready" : `not ready: ${event.not_ready_reason}`, event.ready ? "ready" : "trouble");
    const { model } = event;
    const input = model.input[0] > 0 ? `, input ${model.input.join(" × ")}` : "";
    text(served, `${model.name} (${model.backend}${input}), version ${event.version}, up ${span(event.uptime_seconds)}`);
  } else {
    say("connected", "ready");
  }
  document.title = `${view.title} – Vedette`;
}

function route() {
  view?.close();
  lostAt = 0;
  const camera = location.hash.match(/^#\/camera\/(.+)$/);
  view = camera ? new CameraPage(decodeURIComponent(camera[1]), { onstate, onevent }) : new Fleet({ onstate, onevent });
  root.replaceChildren(view.element);
  document.title = `${view.title} – Vedette`;
  scrollTo(0, 0);
}

addEventListener("hashchange", () => {
  // The link that skips the head goes to a place, not to a view.
  if (location.hash === "#content") return;
  route();
});
route();

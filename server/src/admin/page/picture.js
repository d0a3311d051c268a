// A camera's latest picture with its boxes, fetched for as long as somebody looks.

import { h, text, attribute, arrange } from "./dom.js";
import { ms, several } from "./format.js";

const TOKEN = "vedette-token";
const PAUSE_MS = 200;
const TROUBLE_MS = 2000;

/** Share of the window's height that a picture takes at most, and how much a small one is enlarged at most. */
const MOST_HEIGHT = 0.72;
const MOST_ENLARGED = 2;

// Colours that differ in lightness too, by class; each box is drawn on a dark edge, so it shows on any picture.
const COLOURS = ["#ffd23f", "#4cc9f0", "#ff7096", "#80ed99", "#f4a261", "#c77dff", "#ffffff", "#90e0ef"];

export function colour(object) {
  return COLOURS[object.class_id % COLOURS.length];
}

/** Caption and picture of an answer: the caption's length, the caption, the file. */
export function parts(buffer) {
  const length = new DataView(buffer).getUint32(0);
  const caption = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  return { caption, file: new Blob([buffer.slice(4 + length)], { type: caption.content_type }) };
}

/** What was found, the most frequent first: 2 × person, car. */
export function found(objects) {
  const numbers = new Map();
  for (const { label } of objects) numbers.set(label, (numbers.get(label) ?? 0) + 1);
  const sorted = [...numbers].sort(([, one], [, other]) => other - one);
  return sorted.map(([label, number]) => (number > 1 ? `${number} × ${label}` : label)).join(", ") || "nothing";
}

/**
 * Where a label of this size goes: above its box, below it, or in it; the first that lies in the picture and covers
 * no label that is there already.
 */
export function place(box, size, whole, taken) {
  const left = Math.max(0, Math.min(box.x, whole.width - size.width));
  const tops = [box.y - size.height, box.y + box.height, box.y, box.y + box.height - size.height];
  const inside = tops.filter((top) => top >= 0 && top + size.height <= whole.height);
  const free = inside.filter((top) => taken.every((other) => other.x + other.width <= left || left + size.width <= other.x
    || other.y + size.height <= top || top + size.height <= other.y));
  const top = free[0] ?? inside[0] ?? Math.max(0, Math.min(box.y, whole.height - size.height));
  return { x: left, y: top, ...size };
}

export class Picture {
  constructor(camera) {
    this.camera = camera;
    this.paused = false;
    this.canvas = h("canvas", { role: "img", width: 1, height: 1 });
    this.stage = h("div", { class: "stage" }, this.canvas);
    this.note = h("p", { class: "note", role: "status" });
    this.caption = h("p", { class: "caption soft" });
    this.list = h("ul", { class: "legend found", "aria-label": "What was found" });
    this.button = h("button", { type: "button", onclick: () => this.pause(!this.paused) }, "Pause");
    this.forget = h("button", { type: "button", onclick: () => this.forgetToken() }, "Forget the token");
    this.field = h("input", { type: "password", id: "token", autocomplete: "off", required: true, maxlength: 512, spellcheck: "false" });
    this.form = h("form", { onsubmit: (event) => this.give(event) },
      h("label", { for: "token" }, "The operators’ token: the line in the file of ", h("code", {}, "--admin-token-file")),
      h("div", { class: "tools" }, this.field, h("button", { type: "submit", class: "main" }, "Show pictures")));
    this.tools = h("div", { class: "tools" }, this.button, this.forget);
    this.off = h("div", { class: "off" },
      h("p", {}, "Pictures are off on this server. It shows them when it is started with"),
      h("pre", { tabindex: 0 }, "vedette-server --preview --admin-token-file FILE"),
      h("p", { class: "soft" }, "FILE holds a secret of at least 16 characters, which this page then asks for. Mind who may see what the cameras see."));
    this.element = h("section", { class: "card picture", "aria-labelledby": "picture" },
      h("div", { class: "bar" }, h("h2", { id: "picture" }, "Latest picture"), this.tools),
      this.stage, this.caption, this.note, this.list, this.form, this.off);
    this.resize = new ResizeObserver(() => this.paint());
    this.resize.observe(this.element);
    this.ticking = setInterval(() => this.tell(), 500);
    this.show("");
  }

  /** Says whether the server shows pictures. */
  allow(preview) {
    if (this.preview === preview) return;
    this.preview = preview;
    this.restart();
  }

  close() {
    this.closed = true;
    this.abort?.abort();
    this.resize.disconnect();
    clearInterval(this.ticking);
    this.bitmap?.close();
  }

  get token() {
    return sessionStorage.getItem(TOKEN);
  }

  give(event) {
    event.preventDefault();
    const token = this.field.value.trim();
    this.field.value = "";
    // A header carries nothing else.
    if (!/^[\x21-\x7e]+$/.test(token)) {
      this.show("This is not the operators’ token: it holds characters that no token has.", true);
      return;
    }
    sessionStorage.setItem(TOKEN, token);
    this.restart();
  }

  forgetToken(why = "") {
    sessionStorage.removeItem(TOKEN);
    this.bitmap?.close();
    Object.assign(this, { bitmap: null, shown: null });
    for (const name of Object.keys(this.canvas.dataset)) delete this.canvas.dataset[name];
    this.restart(why);
    this.field.focus({ preventScroll: true });
  }

  pause(paused) {
    this.paused = paused;
    text(this.button, paused ? "Go on" : "Pause");
    this.restart();
  }

  /** What is to be seen, with a note; `wrong` if it is one of trouble. */
  show(note, wrong = false) {
    const open = Boolean(this.preview && this.token);
    this.form.hidden = !this.preview || open;
    this.off.hidden = this.preview !== false;
    this.tools.hidden = !open;
    for (const element of [this.stage, this.caption, this.list]) element.hidden = !open || !this.shown;
    this.note.hidden = note === "";
    this.note.classList.toggle("wrong", wrong);
    text(this.note, note);
  }

  /** Fetches from now on, if there is somebody to see it and leave to do so. */
  restart(why = "") {
    this.abort?.abort();
    if (this.closed) return;
    if (!this.preview) this.show("");
    else if (!this.token) this.show(why || "Pictures are for those who have the operators’ token. It stays in this tab until you close it.", why !== "");
    else if (this.paused) this.show("Paused.");
    else if (!document.hidden) {
      this.show(this.shown ? "" : "Waiting for the next picture.");
      this.abort = new AbortController();
      this.fetch(this.abort.signal);
    }
  }

  async fetch(signal) {
    while (!signal.aborted) {
      let wait = TROUBLE_MS;
      try {
        wait = await this.next(signal);
      } catch {
        if (!signal.aborted) this.show("The server cannot be reached for pictures.", true);
      }
      if (!signal.aborted) await pause(wait);
    }
  }

  /** Fetches and shows one picture; how long to wait before the next. */
  async next(signal) {
    const after = this.shown?.caption.seq ?? 0;
    const url = `/live/cameras/${encodeURIComponent(this.camera)}/picture?after=${after}`;
    const answer = await fetch(url, { signal, cache: "no-store", headers: { authorization: `Bearer ${this.token}` } });
    if (answer.status === 401) {
      this.forgetToken("This is not the operators’ token. Try again.");
      return 0;
    }
    if (answer.status === 204) {
      this.show("No new picture for ten seconds.");
      return PAUSE_MS;
    }
    if (answer.status !== 200) {
      const said = (await answer.text()).trim();
      if (!signal.aborted) this.show(`No picture: ${said || `the server answers ${answer.status}`}`, true);
      return TROUBLE_MS;
    }
    const { caption, file } = parts(await answer.arrayBuffer());
    const bitmap = await createImageBitmap(file, { imageOrientation: "from-image" }).catch(() => null);
    if (signal.aborted) {
      bitmap?.close();
      return 0;
    }
    this.bitmap?.close();
    Object.assign(this, { bitmap, shown: { caption, at: performance.now() } });
    this.show(bitmap ? "" : `This browser cannot show the picture (${caption.content_type}); its boxes are where they belong.`, !bitmap);
    this.paint();
    this.tell();
    this.name();
    return PAUSE_MS;
  }

  /** Draws picture and boxes as large as there is room. */
  paint() {
    const room = this.stage.clientWidth;
    if (!this.shown || room === 0) return;
    const { canvas, bitmap } = this;
    const { width, height, objects, seq, frame_id: frame } = this.shown.caption;
    const shown = Math.min(room, width * MOST_ENLARGED, (innerHeight * MOST_HEIGHT * width) / height);
    const scale = (shown * devicePixelRatio) / width;
    canvas.width = Math.max(1, Math.round(width * scale));
    canvas.height = Math.max(1, Math.round(height * scale));
    canvas.style.width = `${Math.floor(shown)}px`;
    const pen = canvas.getContext("2d");
    if (bitmap) pen.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
    boxes(pen, objects, scale, devicePixelRatio);
    Object.assign(canvas.dataset, { seq, frameId: frame, scale, boxes: JSON.stringify(objects) });
  }

  tell() {
    if (!this.shown) return;
    const { caption: { frame_id: frame, width, height, objects, total_ms: took }, at } = this.shown;
    const age = (performance.now() - at) / 1000;
    text(this.caption, `Frame ${frame}, ${width} × ${height}, ${several(objects.length, "box", "boxes")}, answered in ${ms(took)}, ${age < 1 ? "just now" : `${Math.floor(age)} s ago`}`);
  }

  /** The boxes as text, for those who do not see the picture and those who read. */
  name() {
    const { objects } = this.shown.caption;
    attribute(this.canvas, "aria-label", `Latest picture of ${this.camera}: ${found(objects)}`);
    const sorted = [...objects].sort((one, other) => other.confidence - one.confidence).slice(0, 24);
    while (this.list.childElementCount < sorted.length) this.list.append(h("li", {}, h("span", { class: "swatch" }), h("span"), h("b")));
    arrange(this.list, [...this.list.children].slice(0, sorted.length));
    sorted.forEach((object, at) => {
      const [swatch, label, score] = this.list.children[at].children;
      swatch.style.background = colour(object);
      text(label, object.label);
      text(score, object.confidence.toFixed(2));
    });
  }
}

/** Boxes first and labels on top, the surest of all last. */
function boxes(pen, objects, scale, ratio) {
  const thick = 2 * Math.max(1, Math.round(ratio));
  const sorted = [...objects].sort((one, other) => one.confidence - other.confidence);
  const placed = sorted.map((object) => ({ object, box: scaled(object, scale, pen.canvas, thick / 2) }));
  pen.lineJoin = "round";
  for (const { object, box } of placed) {
    pen.lineWidth = thick * 2;
    pen.strokeStyle = "#000a";
    pen.strokeRect(box.x, box.y, box.width, box.height);
    pen.lineWidth = thick;
    pen.strokeStyle = colour(object);
    pen.strokeRect(box.x, box.y, box.width, box.height);
  }
  const size = 12.5 * ratio;
  const taken = [];
  pen.font = `600 ${size}px system-ui, sans-serif`;
  pen.textBaseline = "middle";
  for (const { object, box } of placed.reverse()) {
    const label = `${object.label} ${object.confidence.toFixed(2)}`;
    const room = { width: pen.measureText(label).width + size * 0.8, height: size * 1.5 };
    const at = place({ ...box, x: box.x - thick }, room, pen.canvas, taken);
    taken.push(at);
    pen.fillStyle = "#000a";
    pen.fillRect(at.x - ratio, at.y - ratio, at.width + 2 * ratio, at.height + 2 * ratio);
    pen.fillStyle = colour(object);
    pen.fillRect(at.x, at.y, at.width, at.height);
    pen.fillStyle = "#10151b";
    pen.fillText(label, at.x + size * 0.4, at.y + size * 0.78);
  }
}

/** A box in pixels of the canvas: on whole ones, so that its edges are sharp, and so far from the rim that they show. */
function scaled(object, scale, whole, rim) {
  const within = (value, most) => Math.min(most - rim, Math.max(rim, Math.round(value * scale)));
  const [x, y] = [within(object.x, whole.width), within(object.y, whole.height)];
  return { x, y, width: within(object.x + object.width, whole.width) - x, height: within(object.y + object.height, whole.height) - y };
}

function pause(milliseconds) {
  return new Promise((resolve) => { setTimeout(resolve, milliseconds); });
}

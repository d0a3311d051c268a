// A camera's latest picture with its boxes, fetched for as long as somebody looks.

import { h, text, attribute } from "./dom.js";
import { ms } from "./format.js";

const TOKEN = "vedette-token";
const PAUSE_MS = 200;
const TROUBLE_MS = 2000;

// Colours that differ in lightness too, by class; each box is drawn on a dark edge, so it shows on any picture.
const COLOURS = ["#ffd23f", "#4cc9f0", "#ff7096", "#80ed99", "#f4a261", "#c77dff", "#ffffff", "#90e0ef"];

/** Caption and picture of an answer: the caption's length, the caption, the file. */
function parts(buffer) {
  const length = new DataView(buffer).getUint32(0);
  const caption = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  return { caption, file: new Blob([buffer.slice(4 + length)], { type: caption.content_type }) };
}

export class Picture {
  constructor(camera) {
    this.camera = camera;
    this.paused = false;
    this.canvas = h("canvas", { role: "img", width: 1, height: 1 });
    this.note = h("p", { class: "soft", role: "status" });
    this.button = h("button", { type: "button", onclick: () => this.pause(!this.paused) }, "Pause");
    this.forget = h("button", { type: "button", onclick: () => this.forgetToken() }, "Forget the token");
    this.field = h("input", { type: "password", id: "token", autocomplete: "off", required: true });
    this.form = h("form", { onsubmit: (event) => this.give(event) },
      h("label", { for: "token" }, "The operators’ token (the line in --admin-token-file) "), this.field,
      h("button", { type: "submit" }, "Show pictures"));
    this.tools = h("div", { class: "tools" }, this.button, this.forget);
    this.element = h("section", { class: "card picture", "aria-labelledby": "picture" },
      h("h2", { id: "picture" }, "Latest picture"), this.canvas, this.note, this.form, this.tools);
    this.visibility = () => this.restart();
    document.addEventListener("visibilitychange", this.visibility);
    this.show(null);
  }

  /** Says whether the server shows pictures. */
  allow(preview) {
    if (this.preview === preview) return;
    this.preview = preview;
    this.restart();
  }

  close() {
    document.removeEventListener("visibilitychange", this.visibility);
    this.closed = true;
    this.abort?.abort();
  }

  get token() {
    return sessionStorage.getItem(TOKEN);
  }

  give(event) {
    event.preventDefault();
    sessionStorage.setItem(TOKEN, this.field.value.trim());
    this.field.value = "";
    this.restart();
  }

  forgetToken(why = "") {
    sessionStorage.removeItem(TOKEN);
    this.restart(why);
  }

  pause(paused) {
    this.paused = paused;
    text(this.button, paused ? "Go on" : "Pause");
    this.restart();
  }

  show(note) {
    this.form.hidden = !this.preview || Boolean(this.token);
    this.tools.hidden = !this.preview || !this.token;
    this.canvas.hidden = !this.preview || !this.token || !this.canvas.dataset.seq;
    if (note !== null) text(this.note, note);
  }

  /** Fetches from now on, if there is somebody to see it and leave to do so. */
  restart(why = "") {
    this.abort?.abort();
    if (this.closed) return;
    if (!this.preview) {
      this.show("Pictures are off. The server shows them when it is started with --preview and --admin-token-file FILE.");
    } else if (!this.token) {
      this.show(why || "Pictures are shown to those who have the operators’ token. It stays in this tab.");
    } else if (this.paused || document.hidden) {
      this.show(null);
    } else {
      this.show("Waiting for the next picture.");
      this.abort = new AbortController();
      this.fetch(this.abort.signal);
    }
  }

  async fetch(signal) {
    while (!signal.aborted) {
      try {
        const answer = await fetch(`/live/cameras/${encodeURIComponent(this.camera)}/picture`, {
          signal, headers: { authorization: `Bearer ${this.token}` },
        });
        if (answer.status === 401) return this.forgetToken("This is not the operators’ token.");
        if (answer.status === 200) {
          const { caption, file } = parts(await answer.arrayBuffer());
          await this.draw(caption, file, signal);
        } else if (answer.status === 204) {
          this.show("No picture has come for ten seconds.");
        } else {
          this.show(`The server says: ${(await answer.text()).trim() || answer.status}`);
          await pause(TROUBLE_MS);
        }
        await pause(PAUSE_MS);
      } catch (error) {
        if (signal.aborted) return undefined;
        this.show("The server cannot be reached.");
        await pause(TROUBLE_MS);
      }
    }
    return undefined;
  }

  async draw(caption, file, signal) {
    let bitmap = null;
    try {
      bitmap = await createImageBitmap(file, { imageOrientation: "from-image" });
    } catch (error) {
      this.show(`This browser cannot show the picture (${caption.content_type}).`);
    }
    if (signal.aborted) return;
    const { canvas } = this;
    const { width, height, objects } = caption;
    canvas.hidden = false;
    const shown = canvas.parentElement.clientWidth || width;
    const scale = Math.min(1, (shown * devicePixelRatio) / width);
    canvas.width = Math.max(1, Math.round(width * scale));
    canvas.height = Math.max(1, Math.round(height * scale));
    const pen = canvas.getContext("2d");
    if (bitmap) pen.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
    bitmap?.close();
    for (const object of objects) box(pen, object, scale);
    Object.assign(canvas.dataset, { seq: caption.seq, frameId: caption.frame_id, scale, boxes: JSON.stringify(objects) });
    const found = objects.length === 1 ? "1 object" : `${objects.length} objects`;
    attribute(canvas, "aria-label", `Picture of ${this.camera}: ${objects.map(({ label }) => label).join(", ") || "nothing found"}`);
    if (bitmap) this.show(`Frame ${caption.frame_id}, ${width} × ${height}, ${found}, answered in ${ms(caption.total_ms)}`);
  }
}

function box(pen, object, scale) {
  const colour = COLOURS[object.class_id % COLOURS.length];
  const line = Math.max(2, Math.round(pen.canvas.width / 320));
  const [x, y, width, height] = [object.x, object.y, object.width, object.height].map((value) => value * scale);
  pen.lineJoin = "round";
  pen.lineWidth = line * 2;
  pen.strokeStyle = "#000b";
  pen.strokeRect(x, y, width, height);
  pen.lineWidth = line;
  pen.strokeStyle = colour;
  pen.strokeRect(x, y, width, height);
  const size = Math.max(11, Math.round(pen.canvas.width / 46));
  pen.font = `600 ${size}px system-ui, sans-serif`;
  const label = `${object.label} ${object.confidence.toFixed(2)}`;
  const wide = pen.measureText(label).width + size * 0.6;
  const left = Math.max(0, Math.min(x - line / 2, pen.canvas.width - wide));
  // Above the box, or in it where there is no room above.
  const top = y - size * 1.4 >= 0 ? y - size * 1.4 : y + line;
  pen.fillStyle = colour;
  pen.fillRect(left, top, wide, size * 1.4);
  pen.fillStyle = "#10151b";
  pen.fillText(label, left + size * 0.3, top + size * 1.05);
}

function pause(milliseconds) {
  return new Promise((resolve) => { setTimeout(resolve, milliseconds); });
}

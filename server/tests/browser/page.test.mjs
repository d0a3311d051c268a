// The live page's words, numbers and geometry: node --test server/tests/browser/*.test.mjs (Node 20.19 or later)

import assert from "node:assert/strict";
import { pathToFileURL } from "node:url";
import { resolve } from "node:path";
import { test } from "node:test";

const folder = process.env.PAGE ?? new URL("../../src/admin/page/", import.meta.url).pathname;
const load = (name) => import(pathToFileURL(resolve(folder, name)));
const format = await load("format.js");
const { found, parts, place } = await load("picture.js");
const { Seconds } = await load("chart.js");

const FLEET = {
  ready: true, not_ready_reason: null, limit_ms: 100, headroom: 4,
  cameras: { connected: 30, live: 30, stale: 0 },
  rates: { received: 300, answered: 300, dropped: 0, failed: 0 },
  slowest_ms: { "10s": 41.2, "60s": 60.1 },
};
const CAMERA = { name: "a", state: "live", fps: 10, slowest_ms: 20, mean_ms: 10, outcome: "ok", silent_seconds: 0.1 };

test("numbers are as precise as they are small", () => {
  assert.equal(format.ms(8.24), "8.2\u00a0ms");
  assert.equal(format.ms(9.96), "10\u00a0ms");
  assert.equal(format.ms(1234), "1.2\u00a0s");
  assert.equal(format.ms(null), "–");
  assert.equal(format.rate(0), "0");
  assert.equal(format.rate(0.26), "0.3");
  assert.equal(format.rate(99.96), "100");
  assert.equal(format.bytes(142_000_000), "135 MiB");
  assert.equal(format.bytes(3 * 1024 ** 3), "3.0 GiB");
  assert.equal(format.bytes(null), "–");
  assert.equal(format.count(1234567), "1\u202f234\u202f567");
  assert.equal(format.percent(0.834), "83\u00a0%");
});

test("spans", () => {
  const spans = [[0.9, "0 s"], [59.9, "59 s"], [60, "1 min"], [3600, "1 h"], [5 * 3600 + 1230, "5 h 20 min"], [99 * 3600, "4 d 3 h"]];
  for (const [seconds, words] of spans) assert.equal(format.span(seconds), words);
});

test("an axis has round steps, and never more than were asked for", () => {
  for (const most of [0.3, 1, 7, 99, 100, 120, 2560, 31_000]) {
    const size = format.step(most, 4);
    assert.ok(size * 4 >= most * 0.999 && /^[125]0*$/.test(size >= 1 ? String(size) : size.toPrecision(1).replace(/^0\.0*/, "")), `${most}: ${size}`);
  }
});

test("the headline names what is worst", () => {
  const verdict = (change) => format.fleetVerdict({ ...FLEET, ...change });
  assert.deepEqual([verdict({}).kind, verdict({}).head], ["good", "All 30 cameras are answered in time"]);
  assert.match(verdict({}).words, /60\u00a0ms; the limit is 100 ms\. About 4 more/);
  assert.equal(verdict({ ready: false, not_ready_reason: "shutting down" }).head, "Not ready: shutting down");
  assert.equal(verdict({ cameras: { connected: 0, live: 0, stale: 0 } }).kind, "calm");
  assert.deepEqual(verdict({ slowest_ms: { "10s": 132, "60s": 132 }, rates: { ...FLEET.rates, dropped: 1.8 } }).head, "Answers are late");
  assert.equal(verdict({ slowest_ms: { "10s": 50, "60s": 132 } }).kind, "warn");
  assert.equal(verdict({ rates: { ...FLEET.rates, dropped: 1.8 } }).head, "Frames are dropped");
  assert.equal(verdict({ rates: { ...FLEET.rates, failed: 0.1 } }).head, "Frames fail");
  assert.equal(verdict({ cameras: { connected: 30, live: 29, stale: 1 } }).head, "1 camera has gone silent");
  assert.equal(verdict({ cameras: { connected: 30, live: 28, stale: 2 } }).head, "2 cameras have gone silent");
  assert.match(verdict({ headroom: -3, rates: { ...FLEET.rates, dropped: 9 } }).words, /3 cameras more than the workers hold/);
  assert.equal(verdict({ slowest_ms: { "10s": null, "60s": null } }).kind, "calm");
  assert.equal(verdict({ slowest_ms: { "10s": 100, "60s": 100 } }).kind, "good");
});

test("trouble comes first", () => {
  const rank = (change) => format.trouble({ ...CAMERA, ...change }, 100);
  const ranks = [{ state: "stale" }, { slowest_ms: 101 }, { outcome: "bad_image" }, { state: "gone" }, {}].map(rank);
  assert.deepEqual(ranks, [...ranks].sort());
  assert.equal(new Set(ranks).size, ranks.length);
  assert.equal(rank({ outcome: "superseded" }), rank({}));
  assert.equal(rank({ slowest_ms: null }), rank({}));
  for (const change of [{ state: "stale" }, { state: "gone" }, { slowest_ms: null }, { slowest_ms: 140 }, { outcome: "internal" }, {}]) {
    assert.ok(format.cameraVerdict({ ...CAMERA, ...change }, 100).words.length > 20);
  }
});

test("an answer is taken apart", async () => {
  const caption = new TextEncoder().encode(JSON.stringify({ seq: 7, content_type: "image/png", objects: [] }));
  const bytes = new Uint8Array([0, 0, 0, caption.length, ...caption, 1, 2, 3]);
  const answer = parts(bytes.buffer);
  assert.equal(answer.caption.seq, 7);
  assert.equal(answer.file.type, "image/png");
  assert.deepEqual([...new Uint8Array(await answer.file.arrayBuffer())], [1, 2, 3]);
});

test("what was found, as words", () => {
  assert.equal(found([]), "nothing");
  assert.equal(found([{ label: "car" }, { label: "person" }, { label: "person" }]), "2 × person, car");
});

test("labels stay in the picture and apart from each other", () => {
  const whole = { width: 640, height: 480 };
  const size = { width: 90, height: 18 };
  const taken = [];
  const boxes = [[0, 0, 60, 90], [600, 470, 40, 10], [100, 100, 50, 50], [102, 100, 50, 50], [104, 100, 50, 50], [0, 0, 640, 480]];
  for (const [x, y, width, height] of boxes) taken.push(place({ x, y, width, height }, size, whole, taken));
  for (const [at, label] of taken.entries()) {
    assert.ok(label.x >= 0 && label.y >= 0 && label.x + label.width <= 640 && label.y + label.height <= 480, JSON.stringify(label));
    for (const other of taken.slice(0, at)) {
      const apart = other.x + other.width <= label.x || label.x + label.width <= other.x || other.y + other.height <= label.y || label.y + label.height <= other.y;
      assert.ok(apart, `${JSON.stringify(label)} covers ${JSON.stringify(other)}`);
    }
  }
});

test("seconds are kept once, five minutes of them", () => {
  const seconds = new Seconds();
  seconds.add({ history: Array.from({ length: 300 }, (_, t) => ({ t })) });
  for (const t of [299, 300, 300, 301]) seconds.add({ last: { t } });
  assert.deepEqual([seconds.list.length, seconds.list[0].t, seconds.list.at(-1).t], [300, 2, 301]);
  seconds.add({ history: [{ t: 9 }] });
  assert.equal(seconds.list.length, 1);
});

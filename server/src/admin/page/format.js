// Numbers as people read them, and the sentences that they make.

export const NONE = "–";

/** Outcomes that mean that a frame was no use, by no fault of its own. */
export const DROPPED = ["superseded", "expired", "overloaded"];

/** Outcomes that mean that a frame could not be computed. */
export const FAILED = ["bad_image", "unsupported", "internal"];

/** What each outcome means. */
export const MEANING = {
  ok: "answered with what was found",
  superseded: "a newer frame of the same camera arrived first",
  expired: "its time was up before a worker was free",
  overloaded: "no room for it, or more frames than its camera may send",
  bad_image: "could not be decoded",
  unsupported: "a format that is not served",
  internal: "an error of the server",
  heartbeat: "a sign of life without a picture",
  client_gone: "the camera left before it was answered",
};

/** A time's number, and its unit apart. */
export function msParts(value) {
  if (value === null || value === undefined) return [NONE, ""];
  if (value >= 1000) return [(value / 1000).toFixed(value < 10000 ? 1 : 0), "s"];
  return [value < 9.95 ? value.toFixed(1) : String(Math.round(value)), "ms"];
}

/** Milliseconds: 8.2 ms, 41 ms, 1.2 s. */
export function ms(value) {
  return msParts(value).join("\u00a0").trim();
}

/** A number per second: 0, 0.3, 9.8, 298. */
export function rate(value) {
  if (value === null || value === undefined) return NONE;
  return value > 0 && value < 99.95 ? value.toFixed(1) : String(Math.round(value));
}

/** A share of one as a percentage. */
export function percent(value) {
  return `${Math.round(value * 100)}\u00a0%`;
}

/** Bytes in MiB or GiB. */
export function bytes(value) {
  if (value === null || value === undefined) return NONE;
  const mib = value / 1048576;
  return mib < 1024 ? `${Math.round(mib)} MiB` : `${(mib / 1024).toFixed(1)} GiB`;
}

/** A whole number with its thousands apart. */
export function count(value) {
  return value.toLocaleString("en-US").replaceAll(",", "\u202f");
}

/** A number of things: 1 camera, 3 cameras. */
export function several(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

/** A time span: 12 s, 3 min, 5 h 20 min, 4 d 3 h. */
export function span(seconds) {
  const whole = Math.floor(seconds);
  if (whole < 60) return `${whole} s`;
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
  return hours % 24 ? `${Math.floor(hours / 24)} d ${hours % 24} h` : `${Math.floor(hours / 24)} d`;
}

/** The time of day of a second since the Unix epoch. */
export function clock(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString("en-GB");
}

/** An outcome as on the wire. */
export function outcome(name) {
  return name ? name.toUpperCase() : NONE;
}

/** A step for an axis: 1, 2 or 5 times a power of ten, so that `most` has at most `steps` of them. */
export function step(most, steps) {
  const raw = Math.max(most, 1e-9) / steps;
  const power = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= raw * 0.9999);
}

/** Whether a camera's slowest answer came after the limit. */
export function late(camera, limit) {
  return camera.slowest_ms !== null && camera.slowest_ms > limit;
}

/** How much a camera asks to be looked at; smaller is worse. */
export function trouble(camera, limit) {
  if (camera.state === "stale") return 0;
  if (late(camera, limit)) return 1;
  if (FAILED.includes(camera.outcome)) return 2;
  if (camera.state === "gone") return 3;
  return 4;
}

function headroom(number) {
  if (number === null) return "";
  if (number < 0) return ` There are ${several(-number, "camera")} more than the workers hold with room to spare.`;
  return number === 0 ? " No more such cameras fit." : ` About ${several(number, "more such camera")} would fit.`;
}

/** The fleet in a headline and a sentence or two: what is worst comes first. */
export function fleetVerdict(event) {
  const { cameras, rates, slowest_ms: slowest, limit_ms: limit } = event;
  if (!event.ready) {
    return { kind: "bad", head: `Not ready: ${event.not_ready_reason}`, words: `No new cameras are taken. ${several(cameras.connected, "camera is", "cameras are")} connected.` };
  }
  if (cameras.connected === 0) {
    return { kind: "calm", head: "Ready for cameras", words: "None is connected." };
  }
  const found = [];
  if (slowest["10s"] > limit) found.push(["bad", "Answers are late", `The slowest of the last 10 s took ${ms(slowest["10s"])}; the limit is ${limit} ms.`]);
  else if (slowest["60s"] > limit) found.push(["warn", "An answer was late", `One of the last minute took ${ms(slowest["60s"])}; the limit is ${limit} ms.`]);
  if (rates.dropped > 0) found.push(["warn", "Frames are dropped", `${rate(rates.dropped)} of ${rate(rates.received)} per second are dropped unanswered.`]);
  if (rates.failed > 0) found.push(["warn", "Frames fail", `${rate(rates.failed)} of ${rate(rates.received)} per second cannot be computed.`]);
  if (cameras.stale > 0) found.push(["warn", `${several(cameras.stale, "camera has", "cameras have")} gone silent`, `${count(cameras.stale)} of ${several(cameras.connected, "camera")} ${cameras.stale === 1 ? "is connected, but sends" : "are connected, but send"} nothing.`]);
  if (found.length > 0) {
    const [[kind, head]] = found;
    return { kind, head, words: found.map(([, , words]) => words).join(" ") + (event.headroom < 0 ? headroom(event.headroom) : "") };
  }
  if (slowest["60s"] === null) {
    return { kind: "calm", head: `${several(cameras.connected, "camera is", "cameras are")} connected`, words: "None has been answered in the last minute." };
  }
  const head = cameras.connected === 1 ? "The camera is answered in time" : `All ${count(cameras.connected)} cameras are answered in time`;
  return { kind: "good", head, words: `The slowest answer of the last minute took ${ms(slowest["60s"])}; the limit is ${limit} ms.${headroom(event.headroom)}` };
}

/** A camera in a sentence or two. */
export function cameraVerdict(camera, limit) {
  if (camera.state === "gone") return { kind: "calm", words: `It has left; its last message came ${span(camera.silent_seconds)} ago. It is remembered for five minutes.` };
  if (camera.state === "stale") return { kind: "warn", words: `It is connected, and nothing has come for ${span(camera.silent_seconds)}.` };
  if (late(camera, limit)) return { kind: "bad", words: `Answers are late: the slowest of the last 10 s took ${ms(camera.slowest_ms)}; the limit is ${limit} ms.` };
  if (FAILED.includes(camera.outcome)) return { kind: "warn", words: `Its last frame failed: ${MEANING[camera.outcome]}.` };
  if (camera.slowest_ms === null) return { kind: "calm", words: "Nothing of it was answered in the last 10 s." };
  return { kind: "good", words: `Answered in time: the slowest of the last 10 s took ${ms(camera.slowest_ms)}; the limit is ${limit} ms.` };
}

// Numbers as people read them.

export const NONE = "–";

/** Milliseconds: 8.2 ms, 41 ms, 1.2 s. */
export function ms(value) {
  if (value === null || value === undefined) return NONE;
  if (value >= 1000) return `${(value / 1000).toFixed(value < 10000 ? 1 : 0)} s`;
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ms`;
}

/** A number per second: 0, 0.3, 9.8, 298. */
export function rate(value) {
  if (value === null || value === undefined) return NONE;
  return value > 0 && value < 100 ? value.toFixed(1) : String(Math.round(value));
}

/** A share of one as a percentage. */
export function percent(value) {
  return `${Math.round(value * 100)} %`;
}

/** Bytes in MiB or GiB. */
export function bytes(value) {
  if (value === null || value === undefined) return NONE;
  const mib = value / 1048576;
  return mib < 1024 ? `${Math.round(mib)} MiB` : `${(mib / 1024).toFixed(1)} GiB`;
}

/** A whole number with its thousands apart. */
export function count(value) {
  return value.toLocaleString("en-US").replaceAll(",", " ");
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

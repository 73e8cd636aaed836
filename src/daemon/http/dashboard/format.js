// format.js: numbers and times as people read them, in the units of the gnstor command. Pure.

const BINARY = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const DECIMAL = ["", "k", "M", "G", "T"];
export const NONE = "\u2013";  // in the place of a figure that there is none of

/** At most four characters: 7, 12.3, 456. */
function digits(value) {
  if (value === 0 || Math.abs(value) >= 100) return String(Math.round(value));
  return String(Number(value.toPrecision(3)));
}

function scaled(value, base, units) {
  let unit = 0;
  // As digits() rounds: 1023.9 would be 1024 of a unit.
  while (unit + 1 < units.length && Math.round(value) >= base) {
    value /= base;
    ++unit;
  }
  return [digits(value), units[unit]];
}

export function bytes(value) {
  return value === undefined || value === null ? NONE : scaled(value, 1024, BINARY).join(" ");
}

/** 12.3 k */
export function count(value) {
  if (value === undefined || value === null) return NONE;
  const [number, unit] = scaled(value, 1000, DECIMAL);
  return unit ? `${number} ${unit}` : number;
}

/** Of bytes a second; decimal, as the documents of this project. */
export function throughput(value) {
  if (value === undefined || value === null) return NONE;
  const [number, unit] = scaled(value, 1000, DECIMAL);
  return `${number} ${unit}B/s`;
}

export function megabytes(value) {
  return value === undefined || value === null ? NONE : digits(value / 1e6);
}

export function percent(part, whole) {
  return whole > 0 ? Math.min(100, (100 * part) / whole) : 0;
}

/** Rounded down: 99.99 % are no 100 %. */
export function percentText(value) {
  return value > 0 && value < 1 ? "< 1 %" : `${Math.floor(value)} %`;
}

export function duration(ms) {
  const s = Math.max(0, Math.round(ms / 1000));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

const two = (n) => String(n).padStart(2, "0");

export function timeOfDay(date) {
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

/** With the day, if it is not today. */
export function when(date, now) {
  if (Number.isNaN(date.getTime())) return NONE;
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return date.toDateString() === now.toDateString() ? timeOfDay(date) : `${day} ${timeOfDay(date)}`;
}

export function plural(n, word) {
  return `${n} ${word}${n === 1 ? "" : "s"}`;
}

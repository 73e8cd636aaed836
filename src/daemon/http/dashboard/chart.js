// chart.js: a line chart of the last minutes as SVG: gaps stay gaps, the scale begins at 0.
import { element, setAttribute, setText, svg } from "./elements.js";
import { KEPT_MS } from "./rates.js";

const HEIGHT = 132, LEFT = 62, RIGHT = 10, TOP = 8, BOTTOM = 20;
const MINUTES = KEPT_MS / 60000;

/** The smallest of 1, 2, 5 times a power of ten that is not below `value`. */
export function roundUp(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  for (const step of [1, 2, 5]) if (step * power >= value) return step * power;
  return 10 * power;
}

/** Attribute d of a path through the points of which `read` is a number. A lone point is a dot. */
export function pathOf(points, read, x, y) {
  let path = "", open = false;
  points.forEach((point, i) => {
    const value = read(point);
    if (value === null) {
      open = false;
      return;
    }
    const at = `${x(point.ms).toFixed(1)},${y(value).toFixed(1)}`;
    const next = points[i + 1];
    const alone = !open && (next === undefined || read(next) === null);
    path += open ? `L${at}` : `M${at}`;
    if (alone) path += "h0.1";
    open = true;
  });
  return path;
}

export class Chart {
  /** `lines`: {name, kind (a class), read: point to number or null}; `format`: of a value. */
  constructor(title, lines, format, least) {
    this.lines = lines;
    this.format = format;
    this.least = least;  // of the scale, so that noise of an idle array stays low
    this.values = lines.map((line) => element("b", {}));
    this.scale = [0, 1, 2].map(() => [svg("line", { class: "grid" }), svg("text", { class: "axis", "text-anchor": "end", x: LEFT - 6 })]);
    this.minutes = Array.from({ length: MINUTES + 1 }, () => svg("line", { class: "grid", y1: TOP, y2: HEIGHT - BOTTOM }));
    this.times = [svg("text", { class: "axis", y: HEIGHT - 5 }), svg("text", { class: "axis", "text-anchor": "end", y: HEIGHT - 5 })];
    setText(this.times[0], `${MINUTES} min ago`);
    setText(this.times[1], "now");
    this.paths = lines.map((line) => svg("path", { class: `line ${line.kind}` }));
    this.cursor = svg("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM });
    this.drawing = svg("svg", { class: "chart", role: "img", height: HEIGHT }, ...this.minutes, ...this.scale.flat(), ...this.times, ...this.paths, this.cursor);
    this.at = element("span", { class: "muted" });
    const legend = lines.map((line, i) => element("span", { class: "key" }, element("i", { class: `swatch ${line.kind}` }), `${line.name} `, this.values[i]));
    this.node = element("figure", {}, element("figcaption", {}, element("span", { class: "chart-title" }, title), ...legend, this.at), this.drawing);
    this.title = title;
    this.points = [];
    this.now = 0;
    this.pointed = null;  // x of the pointer
    this.drawing.addEventListener("pointermove", (event) => this.point(event.clientX - this.drawing.getBoundingClientRect().left));
    this.drawing.addEventListener("pointerleave", () => this.point(null));
  }

  draw(points, now) {
    this.points = points;
    this.now = now;
    const width = Math.max(200, this.drawing.clientWidth || 400);
    setAttribute(this.drawing, "viewBox", `0 0 ${width} ${HEIGHT}`);
    const most = Math.max(0, ...points.flatMap((point) => this.lines.map((line) => line.read(point) ?? 0)));
    const top = roundUp(Math.max(most, this.least));
    this.x = (ms) => LEFT + (width - LEFT - RIGHT) * (1 - (now - ms) / KEPT_MS);
    const y = (value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / top);
    this.scale.forEach(([line, text], i) => {
      const value = (top * i) / 2, at = y(value).toFixed(1);
      for (const [name, to] of [["x1", LEFT], ["x2", width - RIGHT], ["y1", at], ["y2", at]]) setAttribute(line, name, String(to));
      setAttribute(text, "y", String(Number(at) + 4));
      setText(text, this.format(value));
    });
    this.minutes.forEach((line, i) => ["x1", "x2"].forEach((name) => setAttribute(line, name, this.x(now - i * 60000).toFixed(1))));
    setAttribute(this.times[0], "x", String(LEFT));
    setAttribute(this.times[1], "x", String(width - RIGHT));
    this.lines.forEach((line, i) => setAttribute(this.paths[i], "d", pathOf(points, line.read, this.x, y)));
    this.tell();
  }

  point(x) {
    this.pointed = x;
    this.tell();
  }

  /** The values of the newest point, or of the one under the pointer. */
  tell() {
    let shown = this.points.at(-1);
    const pointed = this.pointed !== null && this.points.length > 0;
    if (pointed) {
      const distance = (point) => Math.abs(this.x(point.ms) - this.pointed);
      shown = this.points.reduce((best, point) => (distance(point) < distance(best) ? point : best));
      for (const end of ["x1", "x2"]) setAttribute(this.cursor, end, this.x(shown.ms).toFixed(1));
    }
    setAttribute(this.cursor, "visibility", pointed ? "visible" : "hidden");
    const values = this.lines.map((line) => (shown && line.read(shown) !== null ? this.format(line.read(shown)) : "\u2013"));
    values.forEach((value, i) => setText(this.values[i], value));
    setText(this.at, pointed ? `${Math.round((this.now - shown.ms) / 1000)} s ago` : "");
    if (!pointed) setAttribute(this.drawing, "aria-label", `${this.title}, last ${MINUTES} minutes; now: ${this.lines.map((line, i) => `${line.name} ${values[i]}`).join(", ")}`);
  }
}

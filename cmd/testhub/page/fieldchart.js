// A chart of a numeric field of the telemetry over time, a line for each device.

import {el, fill, keyed, labelled} from "./dom.js";
import {svg} from "./svg.js";

const mostFields = 50;
const mostLines = 6;
const mostPoints = 600; // of a line
const width = 600;
const height = 120;

const choice = el("select", {onchange: () => draw()});
const picture = el("figure", {class: "field-chart", hidden: true});
export const control = labelled("Chart of", choice);
export const root = picture;

let lines = new Map(); // by device; of each field its points
let newest = -1;

// add takes messages, the newest first. Messages that it has are left out.
export function add(messages) {
  if ((messages[0]?.n ?? -1) < newest) {
    clear(); // the hub was reset
  }
  messages.filter((m) => m.n > newest).reverse().forEach(take);
  newest = Math.max(newest, messages[0]?.n ?? -1);
  const names = [...new Set([...lines.values()].flatMap((fields) => [...fields.keys()]))].sort().slice(0, mostFields);
  keyed(choice, ["", ...names], (name) => name, (name) => el("option", {value: name}, name || "nothing"));
  draw();
}

export function clear() {
  lines = new Map();
  newest = -1;
}

function take(m) {
  let body;
  try {
    body = JSON.parse(m.body);
  } catch {
    return;
  }
  if (!lines.has(m.device) && lines.size === mostLines) {
    return;
  }
  const fields = lines.get(m.device) ?? new Map();
  lines.set(m.device, fields);
  for (const [name, value] of numbers(body, m.component ? `${m.component}.` : "", 4)) {
    const points = fields.get(name) ?? [];
    if (points.length === 0 && fields.size === mostFields) {
      continue;
    }
    points.push({at: Date.parse(m.received), value});
    fields.set(name, points.slice(-mostPoints));
  }
}

// numbers lists the numbers in a value with their paths, down to a depth.
function numbers(value, path, depth) {
  if (depth === 0 || value === null || typeof value !== "object" || Array.isArray(value)) {
    return [];
  }
  return Object.entries(value).flatMap(([name, v]) => (typeof v === "number" ? [[path + name, v]] :
    numbers(v, `${path}${name}.`, depth - 1)));
}

const clock = (at) => new Date(at).toLocaleTimeString([], {hour12: false});

function draw() {
  const name = choice.value;
  const shown = [...lines].map(([device, fields]) => [device, fields.get(name) ?? []]).filter(([, p]) => p.length > 0);
  picture.hidden = !name || shown.length === 0;
  if (picture.hidden) {
    fill(picture);
    return;
  }
  const all = shown.flatMap(([, points]) => points);
  const times = all.map((p) => p.at);
  const values = all.map((p) => p.value);
  const [from, to, low, high] = [Math.min(...times), Math.max(...times), Math.min(...values), Math.max(...values)];
  const x = (at) => (to === from ? width : ((at - from) / (to - from)) * width);
  const y = (v) => (high === low ? height / 2 : height - 4 - ((v - low) / (high - low)) * (height - 8));
  const image = svg("svg", {viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img",
    "aria-label": `${name} from ${clock(from)} to ${clock(to)}: ` + shown.map(([device, points]) => `${device} now ` +
      `${points.at(-1).value}`).join(", ") + `; at least ${low}, at most ${high}`});
  image.append(...shown.map(([, points], i) => svg("polyline", {class: `line line-${i}`,
    points: [points[0], ...points].map((p) => `${x(p.at).toFixed(1)},${y(p.value).toFixed(1)}`).join(" ")})));
  const legend = shown.map(([device, points], i) => el("span", {class: `key line-${i}`}, el("bdi", {}, device), " ",
    el("span", {class: "now"}, points.at(-1).value)));
  fill(picture, el("figcaption", {}, el("bdi", {}, name), ...legend), el("div", {class: "plot"}, el("div", {class: "axis"},
    el("span", {}, high), el("span", {}, low)), image, el("div", {class: "times"}, el("span", {}, clock(from)), el("span", {}, clock(to)))));
}

// Charts of rates, from totals that the hub sends each second.

import {byID, el, setText} from "./dom.js";
import {svg} from "./svg.js";

const seconds = 120;
const width = 120;
const height = 32;

class Chart {
  constructor(key, title) {
    Object.assign(this, {key, title, rates: []});
    this.now = el("span", {class: "now"}, "0");
    this.line = svg("polyline", {class: "line", points: ""});
    this.area = svg("polygon", {class: "area", points: ""});
    this.image = svg("svg", {viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img"});
    this.image.append(this.area, this.line);
    byID("charts").append(el("figure", {class: `chart ${key}`},
      el("figcaption", {}, this.now, el("span", {class: "unit"}, `${title} a second`)), this.image));
    this.draw();
  }

  add(rate) {
    this.rates = [...this.rates, rate].slice(-seconds);
    this.draw();
  }

  draw() {
    const most = Math.max(1, ...this.rates);
    const x = (i) => width - (this.rates.length - 1 - i) * (width / (seconds - 1));
    const y = (rate) => height - 2 - (rate / most) * (height - 5);
    const points = this.rates.map((r, i) => `${x(i).toFixed(1)},${y(r).toFixed(1)}`);
    this.line.setAttribute("points", points.join(" "));
    this.area.setAttribute("points", points.length > 1 ?
      `${x(0).toFixed(1)},${height} ${points.join(" ")} ${width},${height}` : "");
    const last = this.rates.at(-1) ?? 0;
    setText(this.now, Math.round(last).toLocaleString("en"));
    this.image.setAttribute("aria-label", `${this.title} a second in the last two minutes: now ${Math.round(last)}, ` +
      `at most ${Math.round(Math.max(0, ...this.rates))}`);
  }
}

const charts = [new Chart("messages", "messages"), new Chart("connects", "connects"), new Chart("refusals", "refusals")];
let before = null;

// totals adds a second to the charts.
export function totals(now) {
  const at = performance.now();
  if (before) {
    const passed = Math.max(0.5, (at - before.at) / 1000);
    charts.forEach((c) => c.add(Math.max(0, now[c.key] - before[c.key]) / (passed < 1.5 ? 1 : passed)));
  }
  before = {...now, at};
}

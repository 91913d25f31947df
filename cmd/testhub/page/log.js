// The lines that testhub prints.

import {el, fill, labelled, setText, shown, time} from "./dom.js";
import * as scope from "./scope.js";
import * as tabs from "./tabs.js";

const most = 500;
const panel = tabs.add("log", "Log", () => draw());
const words = el("input", {type: "search", autocomplete: "off", placeholder: "refused, a device, a fault", oninput: () => draw()});
const lines = el("ol", {class: "lines", tabindex: "0", "aria-label": "Lines, the newest first"});
const count = el("p", {class: "note"});
fill(panel, el("div", {class: "tools"}, labelled("Filter", words), scope.box(), count), lines);
scope.onChange(() => draw());

let kept = [];
let lost = 0;

// add keeps a line. The list is drawn once for all lines of a moment.
let planned = false;
export function add(line) {
  kept.push(line);
  if (kept.length > 2 * most) {
    kept = kept.slice(-most);
  }
  if (!planned && tabs.isOpen("log")) {
    planned = true;
    requestAnimationFrame(() => {
      planned = false;
      draw();
    });
  }
}

// miss records lines that this page was too slow for.
export function miss(n) {
  lost += n;
  add({time: new Date().toISOString(), event: "lost", text: `${n} lines are missing here: the page was too slow, or hidden`});
}

// about reports whether a line is about a device, one of its modules, or no device at all.
function about(line, id) {
  return !id || !line.device || line.device === id || line.device.startsWith(`${id}/`);
}

function draw() {
  const wanted = words.value.toLowerCase();
  const fits = kept.slice(-most).filter((l) => about(l, scope.device()) &&
    `${l.event} ${l.text}`.toLowerCase().includes(wanted)).reverse();
  fill(lines, ...fits.map((l) => el("li", {class: l.event === "refused" || l.event === "lost" ? "bad" : ""}, time(l.time), " ",
    l.service ? `${l.service} ` : "", shown(l.text))));
  setText(count, `${fits.length} lines` + (lost ? `, ${lost} missing` : ""));
}

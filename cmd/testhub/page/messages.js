// The newest telemetry, with a filter, a chart and files of what is shown.

import * as api from "./api.js";
import * as fieldchart from "./fieldchart.js";
import {csv, jsonLines, save} from "./download.js";
import {el, fill, keyed, labelled, pretty, setText, table, time} from "./dom.js";
import * as scope from "./scope.js";
import * as state from "./state.js";
import * as tabs from "./tabs.js";

const most = 200; // shown at a time
const bodyBytes = 4096; // shown of each body
let got = [];
let paused = false;

const panel = tabs.add("messages", "Messages", () => topic.touch());
const words = el("input", {type: "search", autocomplete: "off", placeholder: "id, body or property", oninput: show});
const pause = el("button", {type: "button", "aria-pressed": "false", onclick: () => {
  paused = !paused;
  pause.setAttribute("aria-pressed", String(paused));
  setText(pause, paused ? "Continue" : "Pause");
  topic.touch();
}}, "Pause");
const files = [["JSON lines", "jsonl", jsonLines], ["CSV", "csv", csv]].map(([name, ending, write]) => el("button",
  {type: "button", "aria-label": `Save as ${name}`, onclick: () => store(ending, write)}, name));
const count = el("p", {class: "note"});
const list = table("Messages, the newest first", "Time", "Device", "Id", "Body", "Properties");
fill(panel, el("div", {class: "tools"}, labelled("Filter", words), fieldchart.control, scope.box(), el("div", {class: "row"},
  pause, ...files), count), fieldchart.root, list.root);

export const topic = new state.Topic(read, () => tabs.isOpen("messages") && !paused, () => 500);
scope.onChange(() => {
  fieldchart.clear();
  topic.touch();
});

const from = (id) => (id ? `&device=${api.part(id)}` : "");

async function read() {
  const id = scope.device();
  const newest = (await api.ask("GET", `/messages?last=${most}&body=${bodyBytes}${from(id)}`)).messages.reverse();
  if (id !== scope.device()) {
    return; // another one was chosen meanwhile
  }
  got = newest;
  list.root.classList.toggle("one", id !== "" && got.every((m) => m.device === id));
  fieldchart.add(got);
  show();
}

function fitting() {
  const wanted = words.value.toLowerCase();
  return got.filter((m) => JSON.stringify(m).toLowerCase().includes(wanted));
}

function show() {
  const fits = fitting();
  keyed(list.body, fits, (m) => `${m.n} ${m.received}`, make);
  list.root.hidden = fits.length === 0;
  files.forEach((f) => {
    f.disabled = fits.length === 0;
  });
  setText(count, got.length === 0 ? "No message yet. The panel Connect has commands that send one." :
    fits.length === got.length ? `the newest ${got.length}` : `${fits.length} of the newest ${got.length}`);
}

// store saves what is shown, with whole bodies.
async function store(ending, write) {
  const wanted = new Set(fitting().map((m) => m.n));
  const first = Math.min(...wanted);
  try {
    const whole = (await api.ask("GET", `/messages?from=${first}&limit=${most}${from(scope.device())}`)).messages;
    save(`messages.${ending}`, write(whole.filter((m) => wanted.has(m.n))));
  } catch (e) {
    setText(count, e.message);
  }
}

function make(m) {
  const body = m.body ?? `base64: ${m.bodyBase64}`;
  const details = el("details", {ontoggle: () => {
    if (details.open && details.children.length === 1) {
      details.append(whole(m, body));
    }
  }}, el("summary", {}, el("code", {}, body.slice(0, 160))));
  return el("tr", {}, el("td", {}, time(m.received)), el("td", {class: "device-of"}, el("bdi", {}, m.device)),
    el("td", {}, el("bdi", {}, m.messageId ?? "")), el("td", {}, details), el("td", {}, properties(m)));
}

const system = ["contentType", "contentEncoding", "correlationId", "component", "creationTime", "expiry"];
const facts = [...system, "topic", "responseTopic", "protocol", "qos", "connection"];
const has = (m) => (name) => m[name] !== undefined && m[name] !== "";
const mostProperties = 12; // in a row
const mostValue = 60; // characters

// properties shows what a message has besides its body, cut to a line each.
function properties(m) {
  const all = [...Object.entries(m.properties ?? {}), ...system.filter(has(m)).map((name) => [name, m[name], "system"])];
  return el("ul", {class: "properties"}, ...all.slice(0, mostProperties).map(([name, value, kind]) => el("li",
    {class: kind ?? ""}, el("bdi", {class: "name"}, name.slice(0, mostValue)), " ", el("bdi", {}, String(value).slice(0, mostValue)))),
  all.length > mostProperties ? el("li", {}, `and ${all.length - mostProperties} more`) : null);
}

function whole(m, body) {
  const rows = facts.filter(has(m)).map((name) => [name, m[name]]);
  rows.push(...Object.entries(m.properties ?? {}).map(([name, value]) => [`property ${name}`, value]));
  return el("div", {}, el("pre", {tabindex: "0", "aria-label": "Body"}, pretty(body)),
    m.bytes ? el("p", {class: "note"}, `The first part of ${m.bytes} bytes.`) : null,
    el("dl", {}, ...rows.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, el("bdi", {}, String(value)))])));
}

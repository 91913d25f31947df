// The newest telemetry, with a filter.

import * as api from "./api.js";
import {el, fill, keyed, labelled, pretty, setText, table, time} from "./dom.js";
import * as state from "./state.js";
import * as tabs from "./tabs.js";

const most = 200; // shown at a time
const bodyBytes = 4096; // shown of each body
let got = [];
let paused = false;

const panel = tabs.add("messages", "Messages", () => topic.touch());
const words = el("input", {type: "search", autocomplete: "off", placeholder: "id, body or property", oninput: show});
const only = el("select", {onchange: () => topic.touch()}, el("option", {value: ""}, "all devices"),
  el("option", {value: "chosen"}, "the chosen device"));
const pause = el("button", {type: "button", "aria-pressed": "false", onclick: () => {
  paused = !paused;
  pause.setAttribute("aria-pressed", String(paused));
  setText(pause, paused ? "Continue" : "Pause");
  topic.touch();
}}, "Pause");
const count = el("p", {class: "note"});
const list = table("Messages, the newest first", "Time", "Device", "Id", "Body");
fill(panel, el("div", {class: "tools"}, labelled("Filter", words), labelled("From", only), pause, count), list.root);

export const topic = new state.Topic(read, () => tabs.isOpen("messages") && !paused, () => 500);
state.onChoose(() => topic.touch());

async function read() {
  const from = only.value && state.device() ? `&device=${api.part(state.device())}` : "";
  got = (await api.ask("GET", `/messages?last=${most}&body=${bodyBytes}${from}`)).messages.reverse();
  show();
}

// searched is everything of a message in which the filter looks.
function searched(m) {
  return JSON.stringify([m.device, m.messageId, m.body, m.properties, m.component, m.contentType]).toLowerCase();
}

function show() {
  const wanted = words.value.toLowerCase();
  const fits = got.filter((m) => searched(m).includes(wanted));
  keyed(list.body, fits, (m) => `${m.n} ${m.received}`, make);
  setText(count, fits.length === got.length ? `the newest ${got.length}` : `${fits.length} of the newest ${got.length}`);
}

function make(m) {
  const body = m.body ?? `base64: ${m.bodyBase64}`;
  const details = el("details", {ontoggle: () => {
    if (details.open && details.children.length === 1) {
      details.append(whole(m, body));
    }
  }}, el("summary", {}, el("code", {}, body.slice(0, 160))));
  return el("tr", {}, el("td", {}, time(m.received)), el("td", {}, el("bdi", {}, m.device)),
    el("td", {}, el("bdi", {}, m.messageId ?? "")), el("td", {}, details));
}

const facts = ["contentType", "contentEncoding", "correlationId", "component", "creationTime", "expiry", "topic",
  "responseTopic", "protocol", "qos", "connection"];

function whole(m, body) {
  const rows = facts.filter((name) => m[name] !== undefined && m[name] !== "").map((name) => [name, m[name]]);
  rows.push(...Object.entries(m.properties ?? {}).map(([name, value]) => [`property ${name}`, value]));
  return el("div", {}, el("pre", {tabindex: "0", "aria-label": "Body"}, pretty(body)),
    m.bytes ? el("p", {class: "note"}, `The first part of ${m.bytes} bytes.`) : null,
    el("dl", {}, ...rows.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, el("bdi", {}, String(value)))])));
}

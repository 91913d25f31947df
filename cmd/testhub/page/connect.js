// What a program needs to be the chosen device. Secrets are shown only when a person asks.

import * as api from "./api.js";
import {el, fill, setText} from "./dom.js";
import * as state from "./state.js";
import * as tabs from "./tabs.js";

const panel = tabs.add("connect", "Connect", () => topic.touch());
const show = el("button", {type: "button", "aria-pressed": "false", onclick: () => reveal(!revealed)}, "Show secrets");
const result = el("p", {class: "result", role: "status"});
const strings = el("div", {class: "copies"});
const commands = el("div", {class: "copies"});
const about = el("div", {});
const none = el("p", {class: "note"}, "There is no device.");
const all = el("div", {}, el("div", {class: "row"}, show, el("p", {class: "note"}, "Copy takes them along in any case.")), result,
  el("h3", {}, "Send a message from a shell"), commands, el("h3", {}, "For a program"), strings, el("h3", {}, "Addresses"), about);
fill(panel, none, all);

let access = null;
let revealed = false;
let made = ""; // what is shown

export const topic = new state.Topic(read, () => tabs.isOpen("connect"));
state.onChoose(() => {
  setText(result, "");
  made = "";
  access = null; // nobody copies the secrets of the device before
  fill(commands);
  fill(strings);
  reveal(false);
  topic.touch();
});

async function read() {
  const id = state.device();
  none.hidden = id !== "";
  all.hidden = id === "";
  if (!id) {
    return;
  }
  const [now, hub] = await Promise.all([api.ask("GET", `${api.device(id)}/access`), api.ask("GET", "/hub")]);
  if (id === state.device()) {
    access = now;
    draw();
    fill(about, addresses(hub));
  }
}

function reveal(yes) {
  revealed = yes;
  show.setAttribute("aria-pressed", String(yes));
  setText(show, yes ? "Hide secrets" : "Show secrets");
  draw();
}

// rows are the names of the members of an access.
const rows = [["connectionString", "Connection string"], ["brokerURL", "URL of the broker"], ["primaryKey", "Primary key"],
  ["secondaryKey", "Secondary key"], ["clientId", "Client id of MQTT"], ["userName", "User name of MQTT"],
  ["token", "Password of MQTT, or Authorization over HTTPS; for 30 days"], ["certificate", "File with its certificate and key"]];
const notes = {hubline: "go install github.com/hubline-iot/hubline/cmd/hubline@latest", node: "npm install azure-iot-device " +
  "azure-iot-device-mqtt"};

function draw() {
  const wanted = JSON.stringify([access, revealed]);
  if (!access || made === wanted) {
    return; // what has the focus stays
  }
  made = wanted;
  fill(commands, ...access.commands.map((c) => copy(c.client, c.line, notes[c.client])));
  fill(strings, ...rows.filter(([name]) => access[name]).map(([name, title]) => copy(title, access[name])));
}

// masked replaces what is secret in a text.
function masked(text) {
  if (revealed) {
    return text;
  }
  const password = access.brokerURL ? [new URL(access.brokerURL).password] : [];
  return [access.primaryKey, access.secondaryKey, access.token, ...password].filter(Boolean)
    .reduce((t, secret) => t.replaceAll(secret, "…"), text);
}

// copy shows a text with a button that copies it whole.
function copy(title, text, note) {
  const value = el("code", {tabindex: "0", "aria-label": title}, masked(text));
  const button = el("button", {type: "button", "aria-label": `Copy ${title}`, onclick: async () => {
    try {
      await navigator.clipboard.writeText(text);
      setText(result, `Copied: ${title}.`);
    } catch {
      reveal(true);
      setText(result, "This browser lets no page copy: select the text below.");
    }
  }}, "Copy");
  return el("div", {class: "copy"}, el("span", {class: "title"}, title, note ? el("span", {class: "note"}, ` ${note}`) : null), value,
    button);
}

function addresses(h) {
  const facts = [["host name", h.host], ...Object.entries(h.addresses), ["certificate to trust", h.ca],
    ["profile", h.profile], ...(h.notes ?? []).map((n) => ["note", n])].filter(([, value]) => value);
  return el("dl", {}, ...facts.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, el("bdi", {}, value))]));
}

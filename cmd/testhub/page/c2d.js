// Cloud-to-device messages of the chosen device.

import * as api from "./api.js";
import {cells, el, fill, keyed, labelled, setText, table, time} from "./dom.js";
import {parsePairs} from "./pairs.js";
import * as state from "./state.js";
import * as tabs from "./tabs.js";
import {teller} from "./told.js";

const panel = tabs.add("c2d", "Cloud-to-device", () => topic.touch());
const body = el("textarea", {rows: "4", spellcheck: "false"});
const id = el("input", {autocomplete: "off", maxlength: "128"});
const properties = el("input", {autocomplete: "off", spellcheck: "false"});
const ack = el("select", {}, ...["none", "positive", "negative", "full"].map((v) => el("option", {}, v)));
const result = el("p", {class: "result", role: "status"});
const list = table("Messages to the device, the newest first", "Time", "No", "Id", "Body", "State", "Deliveries", "Feedback");
fill(panel, el("form", {class: "two", onsubmit: send}, el("div", {}, labelled("Message id", id), labelled("Properties", properties,
  "name=value, name=value"), labelled("Feedback", ack)), el("div", {}, labelled("Body", body), el("div", {class: "row"},
  el("button", {class: "primary"}, "Send"), el("button", {type: "button", onclick: purge}, "Throw away those that wait")))),
result, list.root);

const told = teller(result, () => topic);
export const topic = new state.Topic(read, () => tabs.isOpen("c2d"));
state.onChoose(() => {
  setText(result, "");
  topic.touch();
});

async function send(event) {
  event.preventDefault();
  const message = {body: body.value, ack: ack.value, properties: parsePairs(properties.value)};
  if (id.value) {
    message.messageId = id.value;
  }
  await told(() => api.ask("POST", `${api.device(state.device())}/c2d`, JSON.stringify(message)), () => "Sent.");
}

function purge() {
  return told(() => api.ask("DELETE", `${api.device(state.device())}/c2d`), (a) => `Thrown away: ${a.purged}.`);
}

const most = 100;

async function read() {
  const device = state.device();
  const all = device ? (await api.ask("GET", `${api.device(device)}/c2d?last=${most}`)).c2d : [];
  keyed(list.body, all.reverse(), (m) => `${m.device} ${m.enqueued} ${m.sequence}`, (m) => cells(time(m.enqueued),
    m.sequence, el("bdi", {}, m.messageId ?? ""), el("code", {}, (m.body ?? `base64: ${m.bodyBase64}`).slice(0, 500)), "", "", ""),
  (row, m) => {
    setText(row.children[4], m.state);
    setText(row.children[5], m.deliveries);
    setText(row.children[6], m.feedback ?? "");
  });
}

// Direct methods of the chosen device.

import * as api from "./api.js";
import {cells, el, fill, labelled, keyed, setText, table, time} from "./dom.js";
import * as state from "./state.js";
import * as tabs from "./tabs.js";

const panel = tabs.add("methods", "Methods", () => topic.touch());
const name = el("input", {required: true, autocomplete: "off", spellcheck: "false", maxlength: "128"});
const payload = el("textarea", {rows: "4", spellcheck: "false"});
const response = el("input", {type: "number", min: "1", max: "300", value: "30", required: true});
const connect = el("input", {type: "number", min: "0", max: "300", value: "0", required: true});
const button = el("button", {class: "primary"}, "Call");
const result = el("p", {class: "result", role: "status"});
const answer = el("pre", {tabindex: "0", "aria-label": "Answer", hidden: true});
const list = table("Calls, the newest first", "Time", "Method", "Payload", "Outcome");
fill(panel, el("form", {class: "two", onsubmit: call}, el("div", {}, labelled("Method", name), el("div", {class: "row"},
  labelled("Time limit, in seconds", response), labelled("Wait for the device, in seconds", connect))),
el("div", {}, labelled("Payload", payload, "JSON, or empty"), button)), result, answer, list.root);

export const topic = new state.Topic(read, () => tabs.isOpen("methods"));
state.onChoose(() => {
  setText(result, "");
  answer.hidden = true;
  topic.touch();
});

async function call(event) {
  event.preventDefault();
  const id = state.device();
  answer.hidden = true;
  let body;
  try {
    body = JSON.stringify({name: name.value, payload: payload.value.trim() ? JSON.parse(payload.value) : undefined,
      responseTimeout: `${response.value}s`, connectTimeout: `${connect.value}s`});
  } catch (e) {
    setText(result, `The payload is no JSON: ${e.message}`);
    return;
  }
  button.disabled = true;
  setText(result, "Called. The device has not answered yet.");
  try {
    const got = await api.ask("POST", `${api.device(id)}/methods`, body);
    setText(result, `The device answers with status ${got.status}.`);
    setText(answer, got.payload === undefined ? "no payload" : JSON.stringify(got.payload, null, 2));
    answer.hidden = false;
  } catch (e) {
    setText(result, e.code ? `${e.message} (${e.code})` : e.message);
  }
  button.disabled = false;
  topic.touch();
}

const most = 50;

function outcome(c) {
  if (c.result) {
    return `${c.result.status} ${JSON.stringify(c.result.payload) ?? ""}`;
  }
  return c.error ?? "no answer yet";
}

async function read() {
  const id = state.device();
  const calls = id ? (await api.ask("GET", `${api.device(id)}/methods?last=${most}`)).calls : [];
  keyed(list.body, calls.reverse(), (c) => `${c.device} ${c.called} ${c.ended ?? ""}`, (c) => cells(time(c.called),
    el("bdi", {}, c.name), el("code", {}, c.payload === undefined ? "" : JSON.stringify(c.payload)), el("bdi", {}, outcome(c))));
}

// Enrollments and registrations of the provisioning service.

import * as api from "./api.js";
import {cells, el, fill, keyed, setText, table} from "./dom.js";
import * as state from "./state.js";
import * as tabs from "./tabs.js";

const panel = tabs.add("enrollments", "Enrollments", () => topic.touch());
tabs.offer("enrollments", false);
const enrolled = table("Enrollments", "Enrollment", "Kind", "Registrations are", "Hub of the next registration");
const registered = table("Registrations", "Device", "Enrollment", "Status", "Hub", "Moves");
const result = el("p", {class: "result", role: "status"});
const about = el("p", {class: "note"});
const both = el("div", {hidden: true}, el("h3", {}, "Enrollments"), enrolled.root, result, el("h3", {}, "Registrations"), registered.root);
fill(panel, about, both);

export const topic = new state.Topic(read, () => tabs.isOpen("enrollments"));
let hubs = null;

async function read() {
  try {
    if (!hubs) {
      const service = await api.ask("GET", "/dps");
      hubs = service.hubs.map((h) => h.host);
      setText(about, `Provisioning service ${service.host}, ID scope ${service.idScope}`);
    }
  } catch (e) {
    setText(about, e.message);
    return;
  }
  both.hidden = false;
  const [e, r] = await Promise.all([api.ask("GET", "/dps/enrollments"), api.ask("GET", "/dps/registrations")]);
  keyed(enrolled.body, e.enrollments, (one) => one.enrollment, make, update);
  keyed(registered.body, r.registrations, (one) => JSON.stringify(one), (one) => cells(el("bdi", {}, one.registration),
    el("bdi", {}, one.enrollment), [one.status, one.substatus, one.errorMessage].filter(Boolean).join(", "), one.hub ?? "", one.moves));
}

function make(one) {
  const path = `/dps/enrollments/${api.part(one.enrollment)}`;
  const toggle = el("button", {type: "button", onclick: () => act(one.enrollment, "POST",
    `${path}/${toggle.dataset.next}`)});
  const hub = el("select", {"aria-label": `Hub of ${one.enrollment}`, onchange: () => act(one.enrollment, "POST", `${path}/move`,
    JSON.stringify({hubs: [hub.value]}))}, ...hubs.map((h) => el("option", {}, h)));
  return cells(el("bdi", {}, one.enrollment), one.group ? "group" : "one device", toggle, hub);
}

function update(row, one) {
  const toggle = row.children[2].firstElementChild;
  toggle.dataset.next = one.disabled ? "enable" : "disable";
  setText(toggle, one.disabled ? "refused: allow them" : "allowed: refuse them");
  const hub = row.children[3].firstElementChild;
  if (document.activeElement !== hub) {
    hub.value = one.hubs[0] ?? hubs[0];
  }
}

async function act(name, ...request) {
  try {
    const now = await api.ask(...request);
    setText(result, `${name}: ${now.disabled ? "registrations are refused" : `registrations are allowed, at ${now.hubs[0] ?? hubs[0]}`}.`);
  } catch (e) {
    setText(result, e.message);
  }
  topic.touch();
}

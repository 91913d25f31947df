// The list of devices, and what can be done to the chosen one.

import * as api from "./api.js";
import {byID, confirmed, el, fill, keyed, setText} from "./dom.js";
import * as state from "./state.js";

const most = 200; // in the list at a time
let all = [];

export const topic = new state.Topic(read, undefined, () => (all.length > 500 ? 5000 : 500));
export const ids = () => all.map((d) => d.device);
const listeners = [];
export const onList = (f) => listeners.push(f);

async function read() {
  all = (await api.ask("GET", "/devices")).devices;
  if (!all.some((d) => d.device === state.device())) {
    state.choose(all[0]?.device ?? "");
  }
  show();
  listeners.forEach((f) => f());
}

function words(d) {
  if (!d.enabled) {
    return "disabled";
  }
  return d.connections === 0 ? "not connected" : d.connections === 1 ? "connected" : `${d.connections} connections`;
}

// session says what a hub of the profile mqttV5 knows of a connected device.
function session(s) {
  return `${s.born ? `born with the nonce ${s.nonce}` : "not born yet"}, session kept for ${s.sessionExpiry}, ` +
    `topics: ${s.topics.join(", ") || "none"}`;
}

function show() {
  const wanted = byID("device-filter").value.toLowerCase();
  const fits = all.filter((d) => d.device.toLowerCase().includes(wanted));
  keyed(byID("device-list"), fits.slice(0, most), (d) => d.device, make, update);
  const more = byID("device-more");
  more.hidden = fits.length > 0 && fits.length <= most;
  setText(more, fits.length === 0 ? "No device." : `${fits.length - most} more devices: filter the list.`);
  showChosen();
}

function make(d) {
  const [device, module] = d.device.split("/");
  return el("li", {class: module ? "module" : ""}, el("button", {type: "button", class: "device", onclick: () => state.choose(d.device)},
    el("span", {class: "dot"}), el("bdi", {class: "id"}, module ?? device), module ? el("span", {class: "hide-label"}, ` module of ${device}`) :
      null, el("span", {class: "what"})));
}

function update(e, d) {
  const button = e.firstElementChild;
  button.dataset.state = d.enabled ? (d.connections > 0 ? "on" : "off") : "disabled";
  if (d.device === state.device()) {
    button.setAttribute("aria-current", "true");
  } else {
    button.removeAttribute("aria-current");
  }
  setText(button.lastElementChild, words(d));
}

const connected = (d) => d.connections > 0;
const actions = [
  {name: "Cut", title: "Cut its connections by RST", useful: connected, run: (id) => api.ask("POST", `${api.device(id)}/reset`)},
  {name: "Close", title: "End its connections in good order", useful: connected, run: (id) => api.ask("POST", `${api.device(id)}/close`)},
  {name: "Disable", title: "Forbid it to connect", fits: (d) => d.enabled, whole: true,
    run: (id) => api.ask("POST", `${api.device(id)}/disable`)},
  {name: "Enable", title: "Allow it to connect", fits: (d) => !d.enabled, whole: true,
    run: (id) => api.ask("POST", `${api.device(id)}/enable`)},
  {name: "Remove", title: "Remove it from the registry", danger: true, run: (id) => api.ask("DELETE", api.device(id)),
    sure: (id) => confirmed("Remove the device?", `${id} and its modules, twin and messages are removed.`, "Remove")},
];

const heading = el("h2", {id: "chosen-title"});
const kind = el("span", {class: "note"});
const about = el("p", {class: "note"});
const buttons = actions.map((a) => el("button", {type: "button", class: a.danger ? "danger" : "", title: a.title,
  onclick: () => act(a)}, a.name));
const modules = el("div", {class: "row modules", hidden: true, role: "group", "aria-label": "Modules"});
const result = el("p", {class: "result", role: "status"});
byID("chosen").append(el("div", {class: "row"}, heading, kind, el("div", {class: "row end", role: "group",
  "aria-labelledby": "chosen-title"}, ...buttons)), modules, about, result);

function showChosen() {
  const d = all.find((one) => one.device === state.device());
  fill(heading, d ? el("bdi", {}, d.device) : "No device");
  about.hidden = !d?.session;
  setText(about, d?.session ? session(d.session) : "");
  setText(kind, d ? `${words(d)}, by ${d.authentication}` : "Add one at the left.");
  actions.forEach((a, i) => {
    buttons[i].hidden = !d || (a.fits && !a.fits(d)) || (a.whole && d.device.includes("/"));
    buttons[i].disabled = !!d && !!a.useful && !a.useful(d);
  });
  showModules(d?.device ?? "");
}

// showModules lists the chosen device with its modules, to choose one of them.
function showModules(id) {
  const device = id.split("/")[0];
  const family = all.filter((d) => d.device === device || d.device.startsWith(`${device}/`));
  modules.hidden = family.length < 2;
  keyed(modules, family, (d) => d.device, (d) => el("button", {type: "button", onclick: () => state.choose(d.device)},
    el("bdi", {}, d.device.includes("/") ? `module ${d.device.split("/")[1]}` : "the device itself")),
  (e, d) => e.setAttribute("aria-pressed", String(d.device === id)));
}

async function act(a) {
  const id = state.device();
  if (a.sure && !(await a.sure(id))) {
    return;
  }
  try {
    const answer = await a.run(id);
    setText(result, answer.connections === undefined ? `${a.name}: done` :
      `${a.name}: ${answer.connections} connections ended`);
  } catch (e) {
    setText(result, e.message);
  }
  topic.touch();
}

byID("device-filter").addEventListener("input", show);
state.onChoose(() => {
  setText(result, "");
  show();
});

byID("device-add").addEventListener("submit", async (event) => {
  event.preventDefault();
  const input = byID("device-id");
  const status = byID("device-result");
  byID("device-secret").hidden = true;
  try {
    const made = await api.ask("POST", "/devices", JSON.stringify({id: input.value.trim()}));
    setText(status, `${made.device} is registered.` + (made.certificate ? "" : " The panel Connect has its connection string."));
    if (made.certificate) {
      secret(made.certificate);
    }
    input.value = "";
    await read();
    state.choose(made.device);
  } catch (e) {
    setText(status, e.message);
  }
});

// secret shows a certificate with its key, which the hub does not keep, until the next device is added.
function secret(pem) {
  const value = el("textarea", {readonly: true, rows: 4, id: "device-certificate"}, pem);
  const box = byID("device-secret");
  fill(box, el("label", {for: value.id}, "Its certificate and its key, a secret: keep it"), value);
  box.hidden = false;
  value.select();
}

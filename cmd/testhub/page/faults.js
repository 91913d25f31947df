// The fault menu: every kind with its fields as the control API describes them, and the declared
// faults.

import * as api from "./api.js";
import {cells, el, fill, keyed, labelled, setText, table} from "./dom.js";
import * as devices from "./devices.js";
import * as state from "./state.js";
import * as tabs from "./tabs.js";
import {teller} from "./told.js";

const panel = tabs.add("faults", "Faults", () => topic.touch());
const filter = el("input", {type: "search", autocomplete: "off", placeholder: "word of a name or description", oninput: () => offer()});
const kind = el("select", {size: "12", onchange: () => describe()});
const does = el("p", {class: "does", id: "fault-does", "aria-live": "polite"});
const fields = el("div", {class: "fields"});
const declare = el("button", {class: "primary"}, "Declare");
const result = el("p", {class: "result", role: "status"});
const list = table("Declared faults", "No", "Kind", "Fields", "Happened", "");
const removeAll = el("button", {type: "button", onclick: () => told(() => api.ask("DELETE", "/faults"), (a) => `Removed: ${a.removed}.`)},
  "Remove all");
fill(panel, el("form", {class: "menu", onsubmit: submit}, el("div", {}, labelled("Find", filter), labelled("Kind", kind)),
  el("div", {}, does, fields, declare)), result, el("div", {class: "row"}, el("h3", {}, "Declared"), removeAll), list.root);

const told = teller(result, () => topic);
export const topic = new state.Topic(read, () => tabs.isOpen("faults"), () => 500);
let kinds = [];

const services = {"POST /dps/faults": "Provisioning service", "POST /workload/faults": "Workload API"};
const protocols = {mqtt: "MQTT", amqp: "AMQP", http: "HTTPS"};

function groupOf(k) {
  return services[k.request] ?? (k.protocols.length === 3 ? "All protocols" : k.protocols.map((p) => protocols[p]).join(" and "));
}

async function read() {
  if (kinds.length === 0) {
    const all = await api.ask("GET", "/faults/kinds");
    kinds = [...all.kinds, ...all.workload];
    offer();
  }
  const faults = (await api.ask("GET", "/faults")).faults;
  keyed(list.body, faults, (f) => f.id, make, (row, f) => setText(row.children[3], f.fired));
  removeAll.disabled = faults.length === 0;
}

function make(f) {
  const {kind: name, ...rest} = f.fault;
  const said = Object.entries(rest).map(([k, v]) => `${k} ${typeof v === "string" ? v : JSON.stringify(v)}`).join(", ");
  return cells(f.id, name, el("bdi", {}, said), f.fired, el("button", {type: "button", "aria-label": `Remove fault ${f.id}, ${name}`,
    onclick: () => told(() => api.ask("DELETE", `/faults/${f.id}`), () => `Fault ${f.id} is removed.`)}, "Remove"));
}

// offer lists the kinds that fit the filter, grouped by protocols.
function offer() {
  const before = kind.value;
  const wanted = filter.value.toLowerCase();
  const groups = new Map();
  kinds.forEach((k, i) => {
    if (`${k.kind} ${k.does}`.toLowerCase().includes(wanted)) {
      const group = groupOf(k);
      groups.set(group, [...(groups.get(group) ?? []), el("option", {value: String(i)}, k.kind)]);
    }
  });
  fill(kind, ...[...groups].map(([name, options]) => el("optgroup", {label: name}, ...options)));
  kind.value = before;
  if (kind.selectedIndex < 0 && kind.options.length > 0) {
    kind.selectedIndex = 0;
  }
  describe();
}

const known = el("datalist", {id: "fault-devices"});
const mostKnown = 200;
panel.append(known);
let described = "";

function describe() {
  const k = kinds[kind.value];
  declare.disabled = !k;
  if (described === kind.value) {
    return; // entered values stay
  }
  described = kind.value;
  setText(does, k?.does ?? "No kind fits the filter.");
  fill(fields, ...(k?.fields ?? []).map((name, i) => labelled(name, control(name, k.inputs[i], k.request), want(name, k.inputs[i]))));
}

function want(name, input) {
  return name === "device" ? "for one only; empty for all" : input.type === "choice" || input.type === "flag" ? "" : input.want;
}

// controls make the control for a type of value. Empty means that the field is left out.
const controls = {
  choice: (input) => el("select", {}, el("option", {value: ""}, ""), ...input.choices.map((c) => el("option", {}, c))),
  flag: () => el("select", {}, el("option", {value: ""}, ""), el("option", {}, "true"), el("option", {}, "false")),
};

function control(name, input, request) {
  const e = (controls[input.type] ?? (() => el("input", {autocomplete: "off", spellcheck: "false"})))(input);
  e.dataset.name = name;
  e.dataset.type = input.type;
  if (name === "device" && request === "POST /faults") {
    e.setAttribute("list", known.id);
    fill(known, ...devices.ids().slice(0, mostKnown).map((d) => el("option", {value: d})));
  }
  return e;
}

// values convert the text of a control to a value of the type. Other types are texts.
const json = (text) => {
  try {
    return JSON.parse(text);
  } catch {
    return text; // the hub says what fits
  }
};
const values = {whole: json, number: json, flag: json, list: json};

async function submit(event) {
  event.preventDefault();
  const k = kinds[kind.value];
  const fault = {kind: k.kind};
  for (const e of fields.querySelectorAll("[data-name]")) {
    if (e.value !== "") {
      fault[e.dataset.name] = (values[e.dataset.type] ?? String)(e.value);
    }
  }
  const path = k.request.slice("POST ".length);
  await told(() => api.ask("POST", path, JSON.stringify(fault)), (f) => `Fault ${f.id}, ${k.kind}, is declared.`);
}

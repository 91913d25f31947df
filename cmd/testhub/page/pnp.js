// Plug and Play: the chosen device as its model describes it. The model comes from files, which stay in
// this tab.

import * as api from "./api.js";
import {parse, parts} from "./dtdl.js";
import {el, fill, labelled, setText, table, time} from "./dom.js";
import {form} from "./schemaform.js";
import * as state from "./state.js";
import * as tabs from "./tabs.js";
import {teller} from "./told.js";

const stored = "testhub-model";
const panel = tabs.add("pnp", "Plug and Play", () => topic.touch());
const file = el("input", {type: "file", multiple: true, accept: ".json,application/json", onchange: () => take(file.files)});
const forget = el("button", {type: "button", hidden: true, onclick: () => {
  texts = [];
  model = null;
  file.value = "";
  keep();
  file.focus();
}}, "Forget the model");
const root = el("select", {onchange: () => build()});
const which = el("div", {hidden: true}, labelled("Interface", root));
const result = el("p", {class: "result", role: "status"});
const about = el("p", {class: "note"});
const view = el("div", {});
const chooser = labelled("Model", file, "files in DTDL 2 or 3, or drop them here");
chooser.classList.add("wide");
fill(panel, el("div", {class: "tools"}, chooser, which, forget), result, about, view);

panel.addEventListener("dragover", (event) => event.preventDefault());
panel.addEventListener("drop", (event) => {
  event.preventDefault();
  take(event.dataTransfer.files);
});

let texts = []; // of files, the newest first
let model = null;
let rows = []; // of telemetry and properties: each updates itself

const tell = teller(result, () => topic);
const told = (act) => tell(act, (words) => words);
export const topic = new state.Topic(read, () => tabs.isOpen("pnp"), () => 500);
state.onChoose(() => {
  setText(result, "");
  build();
});

async function take(files) {
  setText(result, "");
  for (const one of files) {
    add(await one.text().catch((e) => e.message), one.name);
  }
}

const mostFiles = 20;

// add takes a file into the model, unless it is none.
function add(text, name) {
  const more = [text, ...texts.filter((t) => t !== text)].slice(0, mostFiles);
  try {
    model = parse(more);
  } catch (e) {
    setText(result, `${name}: ${e.message}`);
    return;
  }
  texts = more;
  keep();
}

// keep stores the files and shows the interfaces.
function keep() {
  try {
    sessionStorage.setItem(stored, JSON.stringify(texts));
  } catch {
    // they are too large to survive a reload
  }
  const roots = model?.roots ?? [];
  fill(root, ...roots.map((id) => el("option", {value: id}, id)));
  which.hidden = roots.length < 2;
  forget.hidden = texts.length === 0;
  delete root.dataset.asked;
  build();
}

// build makes the view of the interface for the chosen device.
function build() {
  rows = [];
  const id = state.device();
  if (!model || !id) {
    fill(view);
    setText(about, id ? "" : "There is no device.");
    topic.touch();
    return;
  }
  fill(view, ...parts(model, root.value).map((p) => section(p, id)));
  topic.touch();
}

function section(part, id) {
  const of = (title, list, heads, row) => {
    if (list.length === 0) {
      return [];
    }
    const t = table(`${title} of ${part.title}`, ...heads);
    t.body.append(...list.map((one) => row(part, one, id)));
    return [el("h4", {}, title), t.root];
  };
  return el("section", {class: "part"}, el("h3", {}, el("bdi", {}, part.title), part.component ? el("span", {class: "note"},
    ` component ${part.component}`) : null),
  part.missing ? el("p", {class: "note"}, `No file has its interface ${part.missing}: choose that file too.`) : null,
  ...of("Telemetry", part.telemetry, ["Name", "Value", "At"], telemetryRow),
  ...of("Properties", part.properties, ["Name", "Reported", "Wanted", "State", ""], propertyRow),
  ...(part.commands.length > 0 ? [el("h4", {}, "Commands"), ...part.commands.map((one) => command(part, one, id))] : []));
}

const names = (one) => [el("bdi", {title: one.about}, one.title), one.title === one.name ? null :
  el("span", {class: "note"}, " ", el("bdi", {}, one.name))];
const described = (one) => (one.about ? el("p", {class: "note"}, one.about) : null);
const nameCell = (one) => el("td", {}, ...names(one));

// said is a value as a person reads it, with its unit.
function said(one, value) {
  if (value === undefined || value === null) {
    return "";
  }
  const chosen = one.schema.choices?.find((c) => c.value === value);
  const text = chosen ? `${chosen.title} (${value})` : typeof value === "object" ? JSON.stringify(value) : String(value);
  return one.unit ? `${text} ${one.unit}` : text;
}

function telemetryRow(part, one) {
  const value = el("td", {});
  const at = el("td", {});
  rows.push(({messages}) => {
    const m = messages.find((n) => (n.component ?? "") === part.component && Object.hasOwn(n.fields, one.name));
    if (m) {
      setText(value, said(one, m.fields[one.name]));
      fill(at, time(m.received));
    }
  });
  return el("tr", {}, nameCell(one), value, at);
}

// member is a property of a component, or of the whole device.
const member = (all, part, name) => (part.component ? all?.[part.component]?.[name] : all?.[name]);

function propertyRow(part, one, id) {
  const [reported, wanted, ack] = [el("td", {}), el("td", {}), el("td", {})];
  rows.push(({twin}) => {
    const got = member(twin.reported, part, one.name);
    const acknowledged = one.writable && got !== null && typeof got === "object" && "ac" in got && "value" in got;
    setText(reported, said(one, acknowledged ? got.value : got));
    const want = member(twin.desired, part, one.name);
    setText(wanted, one.writable ? said(one, want) : "");
    setText(ack, one.writable ? ackOf(acknowledged ? got : null, want, twin.desiredVersion) : "read only");
  });
  if (!one.writable) {
    return el("tr", {}, nameCell(one), reported, wanted, ack, el("td", {}));
  }
  const f = form(`New value of ${one.title}`, one.schema);
  const set = () => told(async () => {
    const value = f.value();
    if (value === undefined) {
      throw new Error(`${one.title}: give a value`);
    }
    const patch = part.component ? {[part.component]: {__t: "c", [one.name]: value}} : {[one.name]: value};
    await api.ask("PATCH", `${api.device(id)}/twin/desired`, JSON.stringify(patch));
    return `${one.title}: the device is asked for ${said(one, value)}.`;
  });
  return el("tr", {}, nameCell(one), reported, wanted, ack, el("td", {}, el("details", {}, el("summary", {"aria-label":
    `Change ${one.title}`}, "Change"), described(one), f.root, el("button", {type: "button", class: "primary", "aria-label": `Set ${one.title}`,
    onclick: set}, "Set"))));
}

// ackOf says what the device has answered to the wanted value.
function ackOf(ack, want, version) {
  if (want === undefined) {
    return ack ? `reported by itself (${ack.ac})` : "nothing wanted";
  }
  if (!ack) {
    return "no acknowledgement yet";
  }
  const words = `${ack.ac}${ack.ad ? ` ${ack.ad}` : ""}, version ${ack.av}`;
  if (ack.ac >= 200 && ack.ac < 300) {
    return JSON.stringify(ack.value) === JSON.stringify(want) ? `accepted: ${words}` : `waiting for version ${version}; last: ${words}`;
  }
  return ack.ac >= 400 ? `refused: ${words}` : `in progress: ${words}`;
}

function command(part, one, id) {
  const f = one.request ? form(one.request.title, one.request.schema) : null;
  const answer = el("pre", {tabindex: "0", "aria-label": `Answer of ${one.title}`, hidden: true});
  const button = el("button", {type: "button", class: "primary", "aria-label": `Call ${one.title}`, onclick: () => told(async () => {
    const payload = f?.value();
    button.disabled = true;
    answer.hidden = true;
    try {
      const name = part.component ? `${part.component}*${one.name}` : one.name;
      const got = await api.ask("POST", `${api.device(id)}/methods`, JSON.stringify({name, payload, responseTimeout: "30s"}));
      setText(answer, got.payload === undefined ? "no payload" : JSON.stringify(got.payload, null, 2));
      answer.hidden = false;
      return `${one.title}: the device answers with status ${got.status}.`;
    } finally {
      button.disabled = false;
    }
  })}, "Call");
  return el("details", {class: "command"}, el("summary", {}, ...names(one)), described(one), f?.root ?? null, button, answer);
}

const most = 200; // messages in which the newest values are
const bodyBytes = 16384; // of each; a longer body has no values here

async function read() {
  const id = state.device();
  if (!id) {
    return;
  }
  const twin = await api.ask("GET", `${api.device(id)}/twin`);
  if (!model) {
    setText(about, twin.modelId ? `The device announces ${twin.modelId}.` : "The device announces no model.");
    return;
  }
  const got = (await api.ask("GET", `/messages?last=${most}&body=${bodyBytes}&device=${api.part(id)}`)).messages.reverse();
  if (id !== state.device()) {
    return;
  }
  if (root.value !== twin.modelId && model.all.has(twin.modelId) && !root.dataset.asked) {
    root.dataset.asked = "once"; // a person may choose another one
    root.append(...(model.roots.includes(twin.modelId) ? [] : [el("option", {value: twin.modelId}, twin.modelId)]));
    root.value = twin.modelId;
    build();
    return;
  }
  const known = twin.modelId === root.value ? "the model of the file" : twin.modelId || "no model";
  setText(about, `${root.value}. The device announces ${known}.`);
  const messages = got.filter((m) => m.device === id).map((m) => ({...m, fields: objectOf(m.body)}));
  rows.forEach((update) => update({twin, messages}));
}

function objectOf(text) {
  try {
    const value = JSON.parse(text);
    return value !== null && typeof value === "object" ? value : {};
  } catch {
    return {};
  }
}

for (const text of JSON.parse(sessionStorage.getItem(stored) ?? "[]").reverse()) {
  add(text, "a file");
}

// The update service: its updates, and to which devices they are deployed.

import * as api from "./api.js";
import {cells, confirmed, el, fill, keyed, labelled, setText, table} from "./dom.js";
import {parsePairs, showPairs} from "./pairs.js";
import * as state from "./state.js";
import * as tabs from "./tabs.js";
import {teller} from "./told.js";
import * as devices from "./updatedevices.js";
import * as updateform from "./updateform.js";

const {idOf} = devices;
const panel = tabs.add("updates", "Updates", () => topic.touch());
tabs.offer("updates", false);
const result = el("p", {class: "result", role: "status"});
const published = table("Updates", "Update", "For devices with", "Steps", "Files", "");
const deployed = table("Deployments", "Update", "For", "Outcomes", "");
const reload = el("button", {type: "button", onclick: () => told(() => api.ask("POST", "/updates/reload", "{}"), (a) =>
  `Read: ${a.published.length} new or changed, ${a.removed.length} removed.`)}, "Read the directory again");
const which = el("select", {required: true});
const ids = el("input", {autocomplete: "off", spellcheck: "false"});
const properties = el("input", {autocomplete: "off", spellcheck: "false"});
const percent = el("input", {type: "number", min: "1", max: "100"});
const deploy = el("details", {class: "command"}, el("summary", {}, "Deploy an update"), el("form", {onsubmit: submit}, el("div", {class: "fields"}, labelled("Update", which), labelled("To devices", ids,
  "id, id; empty for all"), labelled("With properties", properties, "name=value, name=value; empty for all"), labelled("Share, in percent",
  percent, "empty for all of them")), el("button", {class: "primary"}, "Deploy")));
const adding = el("details", {class: "command"}, el("summary", {}, "Add an update"), updateform.make((body) => told(
  async () => api.ask("POST", "/updates", JSON.stringify(await body())), (u) => `${idOf(u.update)} is published.`)));
fill(panel, result, el("div", {class: "row"}, el("h3", {}, "Updates"), reload), published.root, adding, el("h3", {}, "Deployments"), deployed.root,
  deploy, el("h3", {}, "Devices"), devices.root);

const told = teller(result, () => topic);
export const topic = new state.Topic(read, () => tabs.isOpen("updates"), () => 1000);

async function read() {
  const [u, d, all] = await Promise.all(["", "/deployments", "/devices"].map((path) => api.ask("GET", `/updates${path}`)));
  keyed(published.body, u.updates, (one) => JSON.stringify(one), updateRow);
  published.root.hidden = u.updates.length === 0;
  keyed(which, u.updates, (one) => idOf(one.update), (one) => el("option", {value: JSON.stringify(one.update)}, idOf(one.update)));
  keyed(deployed.body, d.deployments, (one) => one.workflow, deploymentRow, (row, one) => setText(row.children[2],
    Object.entries(one.outcomes ?? {}).map(([outcome, n]) => `${n} ${outcome}`).join(", ") || "no device yet"));
  deployed.root.hidden = d.deployments.length === 0;
  devices.show(all.devices);
}

function updateRow(one) {
  const id = idOf(one.update);
  const path = ["provider", "name", "version"].map((part) => api.part(one.update[part])).join("/");
  const steps = one.steps.map((s) => s.handler || `update ${idOf(s.reference)}`).join(", ");
  const files = (one.files ?? []).map((f) => `${f.name}, ${f.size.toLocaleString("en")} bytes`).join("; ");
  return cells(el("bdi", {}, id), (one.compatibility ?? []).map(showPairs).join(" or "), steps, el("bdi", {}, files),
    el("button", {type: "button", "aria-label": `Remove ${id}`, onclick: async () => {
      if (await confirmed("Remove the update?", `${id} is offered to no device then.`, "Remove")) {
        told(() => api.ask("DELETE", `/updates/${path}`), () => `${id} is removed.`);
      }
    }}, "Remove"));
}

function deploymentRow(one) {
  const chosen = [one.devices?.join(", "), showPairs(one.properties), one.percent > 0 && `${one.percent} %`].filter(Boolean).join("; ");
  return cells(el("bdi", {title: one.workflow}, idOf(one.update)), el("bdi", {}, chosen || "all compatible devices"), "", el("button",
    {type: "button", "aria-label": `Withdraw ${idOf(one.update)}`, onclick: () => told(() => api.ask("DELETE",
      `/updates/deployments/${api.part(one.workflow)}`), () => `${idOf(one.update)} is withdrawn.`)}, "Withdraw"));
}

async function submit(event) {
  event.preventDefault();
  const body = {update: JSON.parse(which.value)};
  const some = ids.value.split(",").map((id) => id.trim()).filter(Boolean);
  if (some.length > 0) {
    body.devices = some;
  }
  if (properties.value.trim()) {
    body.properties = parsePairs(properties.value);
  }
  if (percent.value) {
    body.percent = Number(percent.value);
  }
  await told(() => api.ask("POST", "/updates/deployments", JSON.stringify(body)), (d) => `${idOf(d.update)} is deployed.`);
}

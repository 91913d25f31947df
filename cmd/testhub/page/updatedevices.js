// What devices say of their updates: outcome, codes and the results of the steps.

import {cells, el, fill, keyed, setText, table, time} from "./dom.js";
import {showPairs} from "./pairs.js";

const list = table("Devices of the update service", "Device", "Installed", "Offered", "Outcome", "Result", "Seen");
const none = el("p", {class: "note"}, "No device has asked for an update.");
export const root = el("div", {}, none, list.root);

export const idOf = (update) => (update ? `${update.provider}/${update.name}/${update.version}` : "");

export function show(devices) {
  none.hidden = devices.length > 0;
  list.root.hidden = devices.length === 0;
  keyed(list.body, devices, (d) => d.device, (d) => cells(el("div", {}, el("bdi", {}, d.device), el("p", {class: "note"})), "", "", "", "",
    ""), update);
}

function update(row, d) {
  const last = d.workflows.at(-1);
  const report = last?.reports.at(-1);
  const [device, installed, offered, outcome, result, seen] = row.children;
  setText(device.querySelector(".note"), showPairs(d.properties));
  setId(installed, d.installed);
  setId(offered, last?.update);
  setText(outcome, last?.outcome ?? "");
  fill(seen, d.seen ? time(d.seen) : null);
  const key = JSON.stringify([last?.workflow, report, last?.repeated]);
  if (result.dataset.key !== key) {
    result.dataset.key = key; // an open one stays as it is until there is another result
    fill(result, report ? results(last) : null);
  }
}

// setId shows an update, which may break after a slash.
function setId(cell, update) {
  const id = idOf(update);
  if (cell.textContent !== id) {
    fill(cell, ...id.split(/(?<=[/])/).flatMap((part) => [part, el("wbr")]));
  }
}

const words = (r) => [r.outcome, `code ${r.code}`, /[^0]/.test(r.extended ?? "") && `extended ${r.extended}`, r.origin !== "NOT_APPLICABLE" && r.origin, r.details]
  .filter(Boolean).join(", ");

// results shows the newest report, and when opened its steps and those before.
function results(workflow) {
  const newest = workflow.reports.at(-1);
  return el("details", {}, el("summary", {}, el("bdi", {}, words(newest))),
    newest.steps?.length ? el("ol", {class: "steps", "aria-label": "Steps"}, ...newest.steps.map((s) => el("li", {}, el("bdi", {}, words(s))))) :
      el("p", {class: "note"}, "It has no results of steps."),
    el("p", {class: "note"}, `Workflow ${workflow.workflow}, offered ${workflow.offers === 1 ? "once" : `${workflow.offers} times`}`),
    el("ul", {class: "steps", "aria-label": "Reports"}, ...workflow.reports.map((r) => el("li", {}, time(r.received), " ", el("bdi", {}, words(r))))));
}

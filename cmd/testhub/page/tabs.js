// Tabs as screen readers know them: one tab stop, arrow keys between them.

import {byID, el} from "./dom.js";

const all = [];
let current = null;

// add adds a panel and returns it. opened is called when a person opens it.
export function add(id, title, opened = () => {}) {
  const tab = el("button", {type: "button", role: "tab", id: `tab-${id}`, "aria-controls": id, tabindex: "-1",
    "aria-selected": "false", onclick: () => open(id), onkeydown: move}, title);
  const panel = el("div", {role: "tabpanel", id, class: "panel", "aria-labelledby": `tab-${id}`, hidden: true});
  byID("tabs").append(tab);
  byID("panels").append(panel);
  all.push({id, tab, panel, opened});
  if (!current) {
    show(id);
  }
  return panel;
}

// offer shows or hides the tab of a panel. A panel of a part that the hub does not have has none.
export function offer(id, yes) {
  all.find((t) => t.id === id).tab.hidden = !yes;
}

export const isOpen = (id) => current?.id === id;

function open(id) {
  show(id);
  current.opened();
}

function show(id) {
  for (const t of all) {
    const is = t.id === id;
    t.panel.hidden = !is;
    t.tab.setAttribute("aria-selected", String(is));
    t.tab.tabIndex = is ? 0 : -1;
    if (is) {
      current = t;
    }
  }
}

const steps = {ArrowRight: (i) => i + 1, ArrowLeft: (i) => i - 1, Home: () => 0, End: () => -1};

function move(event) {
  const step = steps[event.key];
  if (!step) {
    return;
  }
  event.preventDefault();
  const offered = all.filter((t) => !t.tab.hidden);
  const to = offered[(step(offered.indexOf(current)) + offered.length) % offered.length];
  open(to.id);
  to.tab.focus();
}

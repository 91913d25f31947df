// Files that devices upload.

import * as api from "./api.js";
import {save} from "./download.js";
import {cells, el, fill, keyed, pretty, setText, table, time} from "./dom.js";
import * as state from "./state.js";
import * as tabs from "./tabs.js";

const panel = tabs.add("uploads", "Uploads", () => topic.touch());
const list = table("Uploads, the newest first", "Begun", "File", "State", "Bytes", "");
const title = el("h3", {id: "file-title", tabindex: "-1"});
const keep = el("button", {type: "button"}, "Save");
const text = el("pre", {tabindex: "0", "aria-labelledby": "file-title"});
const file = el("section", {hidden: true, "aria-labelledby": "file-title"}, el("div", {class: "row"}, title, keep), text);
const result = el("p", {class: "result", role: "status"});
fill(panel, list.root, result, file);

export const topic = new state.Topic(read, () => tabs.isOpen("uploads"));

const most = 100;
const mostText = 64 << 10;

async function read() {
  const all = (await api.ask("GET", `/uploads?last=${most}`)).uploads;
  keyed(list.body, all.reverse(), (u) => `${u.started} ${u.file}`, (u) => cells(time(u.started), el("bdi", {}, u.file),
    "", "", ""), (row, u) => {
    setText(row.children[2], u.description ? `${u.state}: ${u.description}` : u.state);
    setText(row.children[3], u.size);
    if (u.state === "succeeded" && !row.children[4].firstElementChild) {
      row.children[4].append(el("button", {type: "button", "aria-label": `Show ${u.file}`, onclick: () => open(u.file)}, "Show"));
    }
  });
  setText(result, all.length ? "" : "No device has uploaded a file.");
}

async function open(name) {
  try {
    const f = await api.ask("GET", `/files/${name.split("/").map(api.part).join("/")}`);
    const bytes = f.body === undefined ? Uint8Array.from(atob(f.bodyBase64), (c) => c.charCodeAt(0)) : f.body;
    setText(title, f.file);
    setText(text, f.body === undefined ? `${f.size} bytes that are no text` : pretty(f.body).slice(0, mostText));
    keep.onclick = () => save(f.file, bytes);
    file.hidden = false;
    title.focus();
  } catch (e) {
    setText(result, e.message);
  }
}

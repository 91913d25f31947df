// The twin of the chosen device, with an editor that overwrites no change of anybody else.

import * as api from "./api.js";
import {el, fill, labelled, setText} from "./dom.js";
import * as state from "./state.js";
import * as tabs from "./tabs.js";

const panel = tabs.add("twin", "Twin", () => topic.touch());
const reported = el("pre", {tabindex: "0", "aria-labelledby": "reported-title"});
const reportedTitle = el("h3", {id: "reported-title"}, "Reported");
let twin = null;

// An Editor edits one part of the twin: its text, and the value and version on which that is based.
class Editor {
  constructor(name, title) {
    Object.assign(this, {name, title, base: "", version: 0});
    this.text = el("textarea", {rows: "8", spellcheck: "false", oninput: () => this.note()});
    this.save = el("button", {type: "button", class: "primary", onclick: () => this.store()}, `Save ${name}`);
    this.undo = el("button", {type: "button", onclick: () => this.load()}, "Undo");
    this.result = el("p", {class: "result", role: "status"});
    this.conflict = el("div", {class: "conflict", role: "alert", hidden: true});
    this.label = labelled(title, this.text);
    this.root = el("div", {class: "editor"}, this.label, el("div", {class: "row"}, this.save, this.undo), this.result,
      this.conflict);
  }

  theirs() {
    return JSON.stringify(twin[this.name], null, 2);
  }

  versionNow() {
    return this.name === "desired" ? twin.desiredVersion : 0;
  }

  changed() {
    return this.text.value !== this.base;
  }

  // load shows the twin as it is, without the changes in the editor.
  load() {
    this.base = this.theirs();
    this.version = this.versionNow();
    this.text.value = this.base;
    this.conflict.hidden = true;
    this.note();
  }

  // refresh shows a new version, unless the editor has changes, which stay.
  refresh() {
    if (!this.changed()) {
      this.load();
    }
    this.note();
  }

  note() {
    const version = this.version ? `, version ${this.version}` : "";
    const old = this.base !== this.theirs() ? `; there is ${this.versionNow() ? `version ${this.versionNow()}` :
      "another one"} now` : "";
    setText(this.label.firstElementChild, this.title + version + (this.changed() ? ", changed by you" : "") + old);
    this.undo.disabled = !this.changed();
  }

  // store saves the text if nobody else has changed the part meanwhile.
  async store() {
    let value;
    try {
      value = JSON.stringify(JSON.parse(this.text.value));
    } catch (e) {
      setText(this.result, `This is no JSON: ${e.message}`);
      return;
    }
    const id = state.device();
    try {
      for (;;) {
        if (this.base !== this.theirs()) {
          this.disagree();
          return;
        }
        const saved = await this.put(id, value);
        if (saved) {
          twin = saved;
          break;
        }
        twin = await api.ask("GET", `${api.device(id)}/twin`); // perhaps only the other part has changed
      }
      this.load();
      setText(this.result, this.version ? `Saved as version ${this.version}.` : "Saved.");
      editors.forEach((e) => e.refresh());
    } catch (e) {
      setText(this.result, e.message);
    }
  }

  // put returns the twin with the new value, or null if the etag is that of an older twin.
  async put(id, value) {
    try {
      return await api.ask("PUT", `${api.device(id)}/twin/${this.name}`, value, {"If-Match": `"${twin.etag}"`});
    } catch (e) {
      if (e.status === 412) {
        return null;
      }
      throw e;
    }
  }

  disagree() {
    setText(this.result, "Not saved.");
    fill(this.conflict, el("p", {}, `Somebody else has changed the ${this.name} meanwhile` +
      (this.versionNow() ? `, to version ${this.versionNow()}` : "") + ":"), el("pre", {tabindex: "0",
      "aria-label": "Their change"}, this.theirs()), el("div", {class: "row"},
      el("button", {type: "button", onclick: () => this.settle(true)}, "Take theirs"),
      el("button", {type: "button", onclick: () => this.settle(false)}, "Keep mine, on top of theirs")));
    this.conflict.hidden = false;
  }

  settle(theirs) {
    if (theirs) {
      this.load();
    } else {
      this.base = this.theirs();
      this.version = this.versionNow();
      this.conflict.hidden = true;
      this.note();
    }
    setText(this.result, theirs ? "" : "Look at your text again, then save it.");
    this.text.focus();
  }
}

const editors = [new Editor("desired", "Desired"), new Editor("tags", "Tags")];
const none = el("p", {class: "note"}, "There is no device.");
const three = el("div", {class: "three", hidden: true}, ...editors.map((e) => e.root),
  el("div", {class: "editor"}, reportedTitle, reported));
fill(panel, none, three);

export const topic = new state.Topic(read, () => tabs.isOpen("twin"));

async function read() {
  const id = state.device();
  none.hidden = id !== "";
  if (!id) {
    return;
  }
  const now = await api.ask("GET", `${api.device(id)}/twin`);
  if (id !== state.device()) {
    return; // another one was chosen meanwhile
  }
  const another = twin?.device !== id;
  twin = now;
  three.hidden = false;
  editors.forEach((e) => (another ? e.load() : e.refresh()));
  setText(reportedTitle, `Reported, version ${twin.reportedVersion}`);
  setText(reported, JSON.stringify(twin.reported, null, 2));
}

state.onChoose(() => {
  three.hidden = true; // until it is that of the device: nobody edits another one
  editors.forEach((e) => setText(e.result, ""));
  topic.touch();
});

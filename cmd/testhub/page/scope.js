// Whether Messages and Log are about the chosen device or about all. Each has a switch, and all
// switches show the same.

import {el} from "./dom.js";
import * as state from "./state.js";

let everything = false;
const boxes = [];
const listeners = [];

export function box() {
  const input = el("input", {type: "checkbox", onchange: () => {
    everything = input.checked;
    boxes.forEach((b) => {
      b.checked = everything;
    });
    listeners.forEach((f) => f());
  }});
  boxes.push(input);
  return el("label", {class: "switch"}, input, "All devices");
}

// device is the one to show; empty for all.
export const device = () => (everything ? "" : state.device());

export function onChange(f) {
  listeners.push(f);
  state.onChoose(f);
}

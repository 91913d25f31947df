// Files that the page makes: messages as JSON lines or CSV, uploads as they are.

import {el} from "./dom.js";

// save stores a file by the name at its end. Its type never makes a browser open it.
export function save(name, content) {
  const url = URL.createObjectURL(new Blob([content], {type: "application/octet-stream"}));
  el("a", {href: url, download: name.split("/").pop()}).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

export const jsonLines = (messages) => messages.map((m) => `${JSON.stringify(m)}\n`).join("");

const columns = ["n", "received", "device", "messageId", "correlationId", "contentType", "contentEncoding", "component",
  "creationTime", "expiry", "properties", "system", "body", "bodyBase64"];

// cell quotes a value. A text that a spreadsheet would take for a formula gets an apostrophe.
function cell(value) {
  const text = value === undefined ? "" : typeof value === "object" ? JSON.stringify(value) : String(value);
  const formula = /^[=+\-@\t\r]/.test(text) && !/^[+-]?\d+(\.\d+)?$/.test(text);
  return `"${(formula ? "'" : "") + text.replaceAll('"', '""')}"`;
}

export const csv = (messages) => [columns.join(","), ...messages.map((m) => columns.map((c) => cell(m[c])).join(","))]
  .map((row) => `${row}\r\n`).join("");

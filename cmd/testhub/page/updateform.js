// A form that makes an update of files, as the tools of the service do: an import manifest with sizes and
// hashes.

import {el, labelled} from "./dom.js";
import {parsePairs} from "./pairs.js";

const text = (value, more) => el("input", {autocomplete: "off", spellcheck: "false", required: true, value, ...more});
const provider = text("Contoso");
const name = text("Toaster");
const version = text("1.0");
const compatibility = text("manufacturer=Contoso, model=Toaster");
const handler = text("microsoft/swupdate:1");
const criteria = text("", {required: false});
const files = el("input", {type: "file", multiple: true, required: true});

// make returns the form. add gets a function that makes the body of a request.
export function make(add) {
  return el("form", {onsubmit: (event) => {
    event.preventDefault();
    add(body);
  }}, el("div", {class: "fields"}, labelled("Provider", provider), labelled("Name", name), labelled("Version", version, "such as 1.2"),
    labelled("Compatible devices", compatibility, "name=value, name=value"), labelled("Handler", handler),
    labelled("Installed criteria", criteria, "what the handler compares; empty for the version"), labelled("Files", files)),
  el("button", {class: "primary"}, "Add the update"));
}

const base64 = (bytes) => new Promise((resolve, reject) => {
  const reader = new FileReader();
  reader.onload = () => resolve(reader.result.slice(reader.result.indexOf(",") + 1));
  reader.onerror = () => reject(reader.error);
  reader.readAsDataURL(new Blob([bytes]));
});

async function body() {
  if (!crypto.subtle) {
    throw new Error("a browser makes hashes only for pages of this machine: put the update into the directory of -updates");
  }
  const contents = {};
  const described = [];
  for (const f of files.files) {
    const bytes = await f.arrayBuffer();
    contents[f.name] = await base64(bytes);
    described.push({filename: f.name, sizeInBytes: f.size, hashes: {sha256: await base64(await crypto.subtle.digest("SHA-256", bytes))}});
  }
  return {files: contents, importManifest: {
    updateId: {provider: provider.value, name: name.value, version: version.value}, isDeployable: true,
    compatibility: [parsePairs(compatibility.value)],
    instructions: {steps: [{handler: handler.value, files: described.map((f) => f.filename),
      handlerProperties: {installedCriteria: criteria.value || version.value}}]},
    files: described, createdDateTime: new Date().toISOString(), manifestVersion: "5.0",
  }};
}

// Requests to the control API, and its events.

import {byID} from "./dom.js";

const stored = "testhub-token";

// The token comes in the fragment of the address, which browsers send nowhere. It stays in this tab.
const given = new URLSearchParams(location.hash.slice(1)).get("token");
if (given) {
  sessionStorage.setItem(stored, given);
  history.replaceState(null, "", location.pathname);
}

function headers(more) {
  const token = sessionStorage.getItem(stored);
  return token ? {...more, Authorization: `Bearer ${token}`} : more;
}

// A Problem is a refusal of the API.
export class Problem extends Error {
  constructor(status, error) {
    super([error.field, error.problem].filter(Boolean).join(" ") + (error.fix ? `: ${error.fix}` : ""));
    this.status = status;
    this.code = error.code;
  }
}

// part is one part of a path. Modules have a slash in their name, files keep theirs.
// Browsers take a part of dots for a step up, also an escaped one, and would send another request.
export function part(name) {
  if (name === "." || name === "..") {
    throw new Problem(0, {problem: `a browser cannot name ${name} in a path`, fix: "use another id"});
  }
  return encodeURIComponent(name);
}
export const device = (id) => `/devices/${part(id)}`;

// ask sends a request and returns the answer. It fails with a Problem.
export async function ask(method, path, body, more = {}) {
  let answer;
  try {
    answer = await fetch(path, {method, body, headers: headers(more), cache: "no-store"});
  } catch {
    throw new Problem(0, {problem: "the hub does not answer", fix: "see whether testhub runs"});
  }
  const value = await answer.json().catch(() => ({error: {problem: `the hub answers ${answer.status}`}}));
  if (answer.status === 401) {
    askToken();
  }
  if (!answer.ok) {
    throw new Problem(answer.status, value.error ?? {problem: `the hub answers ${answer.status}`});
  }
  return value;
}

function askToken() {
  const dialog = byID("token");
  if (dialog.open) {
    return;
  }
  dialog.addEventListener("close", () => {
    sessionStorage.setItem(stored, byID("token-value").value);
    location.reload();
  }, {once: true});
  dialog.showModal();
}

const delays = [500, 1000, 2000, 5000];

const changed = (signal) => new Promise((resolve) => {
  document.addEventListener("visibilitychange", resolve, {once: true, signal});
});

// follow calls on[name] for each event, for ever. After a loss of the connection it continues
// behind the last event, up and down tell when it is there. A hidden page gives up its connection,
// because a browser has only six for all tabs.
export async function follow(on, up, down) {
  let last = "";
  for (let failures = 0; ; failures++) {
    while (document.hidden) {
      await changed();
    }
    const ending = new AbortController();
    changed(ending.signal).then(() => ending.abort());
    try {
      const answer = await fetch("/events?last=200",
        {headers: headers(last ? {"Last-Event-ID": last} : {}), signal: ending.signal});
      if (answer.status === 401) {
        askToken();
      }
      if (answer.ok) {
        failures = 0;
        up();
        await read(answer.body, (event) => {
          last = event.id || last;
          on[event.name]?.(event.data);
        });
      }
    } catch {
      // the connection has ended
    }
    if (ending.signal.aborted) {
      continue;
    }
    ending.abort(); // the listener
    down();
    await new Promise((resolve) => setTimeout(resolve, delays[Math.min(failures, delays.length - 1)]));
  }
}

// read splits a stream into events.
async function read(stream, take) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const {value, done} = await reader.read();
    if (done) {
      return;
    }
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const event = {};
      for (const line of block.split("\n")) {
        const at = line.indexOf(": ");
        event[line.slice(0, at)] = line.slice(at + 2);
      }
      take({id: event.id, name: event.event, data: JSON.parse(event.data)});
    }
  }
}

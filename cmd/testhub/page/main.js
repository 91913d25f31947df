// The page: which events make which panel read again.

import * as api from "./api.js";
import {totals} from "./charts.js";
import {byID, confirmed, setText} from "./dom.js";
import * as devices from "./devices.js";
import * as messages from "./messages.js";
import "./connect.js";
import * as pnp from "./pnp.js";
import * as twin from "./twin.js";
import * as methods from "./methods.js";
import * as c2d from "./c2d.js";
import * as uploads from "./uploads.js";
import * as enrollments from "./enrollments.js";
import * as updates from "./updates.js";
import * as faults from "./faults.js";
import * as log from "./log.js";
import * as state from "./state.js";
import * as tabs from "./tabs.js";

const readBy = {
  connected: [devices], disconnected: [devices], refused: [], message: [messages, pnp],
  "twin-requested": [twin, pnp], "twin-changed": [twin, pnp],
  "method-called": [methods], "method-answered": [methods], "method-failed": [methods],
  c2d: [c2d], upload: [uploads], registration: [enrollments, devices], update: [updates],
  "fault-declared": [faults], "fault-removed": [faults], fault: [faults],
};

let run = "";

api.follow({
  hello: (now) => {
    if (run && run !== now.run) {
      location.reload(); // another testhub has the address now
    }
    run = now.run;
  },
  totals,
  line: (line) => {
    log.add(line);
    (readBy[line.event] ?? []).forEach((panel) => panel.topic.touch());
    if (line.event === "reset") {
      state.touchAll();
    }
  },
  lost: ({lost}) => {
    log.miss(lost);
    state.touchAll();
  },
}, () => live("on", "live"), () => live("off", "no connection to the hub")).catch(() => live("off", "ended"));

function live(how, words) {
  byID("live").dataset.state = how;
  setText(byID("live").querySelector(".words"), words);
  if (how === "on") {
    state.touchAll();
  }
}

// Changes of the registry by back ends are no events.
setInterval(() => devices.topic.touch(), 5000);

api.ask("GET", "/hub").then((hub) => {
  const profile = hub.profile ? [`profile ${hub.profile.split(",")[0]} (preview)`] : [];
  const ports = Object.entries(hub.ports).map(([name, port]) => `${name} ${port}`);
  setText(byID("host"), [hub.host, ...profile, ...ports].join(" · "));
  document.title = `testhub ${hub.host}`;
  tabs.offer("enrollments", hub.services.includes("dps"));
  tabs.offer("updates", hub.services.includes("updates"));
}).catch((e) => setText(byID("host"), e.message));

byID("reset").addEventListener("click", async () => {
  if (await confirmed("Reset the hub?", "It cuts all connections, removes all faults, and forgets messages, twins and calls.",
    "Reset")) {
    await api.ask("POST", "/reset").catch((e) => setText(byID("host"), e.message));
    state.touchAll();
  }
});

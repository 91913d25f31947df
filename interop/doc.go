// Package interop holds no code, only tests: they let Hubline talk to programs that share none of it.
//
//   - The MQTT transport, through the device client, against the broker mosquitto: over TLS, with passwords and client certificates, over WebSocket, and over
//     connections that are cut or fall silent. An MQTT 5 client, eclipse/paho.golang, watches from the other side.
//   - The hub of package testbroker against the client MQTT.js, over TLS and WebSocket, and against MQTT 5 clients, which it refuses.
//
// What they need beside Go: the broker (Debian's package mosquitto), and Node.js with npm, which installs what node/package-lock.json says into a directory of its
// own. Tests whose peer is missing are skipped; with HUBLINE_REQUIRE_PEERS=1 they fail.
package interop

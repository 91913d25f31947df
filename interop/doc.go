// Package interop holds no code, only tests: they let Hubline talk to programs that share none of
// it.
//
//   - The MQTT transport, through the device client, against the broker mosquitto: over TLS, with
//     passwords and client certificates, over WebSocket, and over connections that are cut or fall
//     silent. An MQTT 5 client, eclipse/paho.golang, watches from the other side.
//   - The AMQP transport, through the device client, against the broker RabbitMQ 3.10 with its
//     plugin for AMQP 1.0: PLAIN and EXTERNAL, a network that fails, a queue that is full, commands
//     with all outcomes, a broker that is killed. And against a server made of the library rhea,
//     over TLS and WebSocket, that does to messages, links, sessions and connections what the test
//     says.
//   - The hub of package testbroker over MQTT against the client MQTT.js, over TLS and WebSocket,
//     and against MQTT 5 clients, which it refuses.
//   - The hub over AMQP against the libraries Azure/go-amqp (with batches, and renewal of tokens)
//     and rhea (over WebSocket too) as plain clients: CBS and SASL, telemetry, commands with all
//     outcomes in both settle modes, detached links, closed and reset connections.
//   - The hub against the official device SDK for Node.js, azure-iot-device, over amqp, amqp-ws,
//     mqtt, mqtt-ws and http: telemetry, batches (HTTP has them), commands, renewal of tokens,
//     X.509, refusals; twin, desired properties and direct methods, of devices and modules (not
//     over HTTP, which has none of it); uploads of files; and all of it again after resets.
//   - The program cmd/testhub, built and started as a process of its own, with the same SDK over
//     mqtt, amqp and http; commands, desired properties, methods and resets go through its control
//     API, which also tells what arrived.
//   - The hub's service side against the official SDK for back ends, azure-iothub, over HTTPS:
//     devices and modules in the registry, queries, twins, methods. What that SDK does over AMQP
//     (sending commands, feedback) and its bulk changes, configurations and jobs the hub does not
//     have: they fail at once.
//
// The tests against AMQP and the SDKs print a line for each thing that was seen, which begins with
// SEEN.
//
// What they need beside Go: the brokers (Debian's packages mosquitto and rabbitmq-server; no
// service of the system is touched, each test runs its own in a directory and on ports of its own),
// and Node.js with npm, which installs what node/package-lock.json says into a directory of its
// own. Tests whose peer is missing are skipped; with HUBLINE_REQUIRE_PEERS=1 they fail.
//
// # What the peers do that one would not expect
//
//   - RabbitMQ 3.10 forgets messages over a restart, acknowledged ones too, unless they are marked
//     durable: the transport marks them.
//   - RabbitMQ 3.10 answers nothing any more when a queue refuses a message
//     (rabbitmq/rabbitmq-server#2839): Options.AckTimeout of package device finds that, and the
//     message is sent again.
//   - RabbitMQ 3.10 accepts what is sent to a queue that does not exist
//     (rabbitmq/rabbitmq-server#7823). Such messages are lost, and the device cannot know.
//   - rhea 3.0 sends two answers that wait together as one with the outcome of the first, whatever
//     that of the second is; and after it has ended a session it still answers on it, which ends
//     the connection at the other side.
//   - azure-iot-device has no batches over AMQP and MQTT; over HTTP it leaves the prefix
//     "iothub-app-" on the properties of commands, and calls back from setOptions only if they say
//     how to poll.
//   - azure-iot-device over MQTT (not over WebSocket) does not connect again after a reset before
//     the application sends something; what it had subscribed to it takes for kept by the hub. A
//     twin request whose answer is lost with the connection has no end, over MQTT and AMQP.
//   - azure-iot-device has no name for the component that telemetry comes from: an application
//     property "dt-subject" is taken for it, on each of the transports.
//   - azure-iot-device leaves a method without a handler unanswered, and over MQTT answers one
//     without a payload by 400, without asking its handler.
//   - azure-iot-device cannot upload under a name that is not ASCII (its Content-Length counts
//     characters), and takes the authority that signed the store's certificate from
//     NODE_EXTRA_CA_CERTS only. It repeats blocks, but not the requests to the hub before and after
//     them.
package interop

// Package interop contains only tests: they run Hubline against programs that share no code with
// it.
//
//   - The MQTT transport, through the device client, against the broker mosquitto: over TLS, with
//     passwords and client certificates, over WebSocket, and over connections that are cut or go
//     silent. An MQTT 5 client, eclipse/paho.golang, observes from the other side.
//   - The AMQP transport, through the device client, against the broker RabbitMQ 3.10 with its
//     plugin for AMQP 1.0: PLAIN and EXTERNAL, a failing network, a full queue, cloud-to-device
//     messages with all outcomes, a broker that is killed. And against a server made with the
//     library rhea, over TLS and WebSocket, which manipulates messages, links, sessions and
//     connections as the test requests.
//   - Brokers whose processes are killed with SIGKILL under load, and come back: three NATS servers
//     with JetStream, three RabbitMQ nodes with quorum queues, and one mosquitto. A ledger compares
//     what each client reported, what crossed the wire and what arrived. paho.mqtt.golang and
//     autopaho are compared in the same runs. README.md has the figures.
//   - Devices with a topic map, on both engines and over MQTT 5, against mosquitto, RabbitMQ and
//     NATS: telemetry, commands, wills, retained messages, restarts, passwords, certificates.
//   - The hub of package testbroker over MQTT against the client MQTT.js, over TLS and WebSocket,
//     and against MQTT 5 clients, which it refuses. The hub as a plain broker against the MQTT 5
//     client eclipse/paho.golang.
//   - The hub with the MQTT v5 connection profile against a client of its own, on MQTT.js and
//     protobufjs, over TLS and WebSocket.
//   - The hub over AMQP against the libraries Azure/go-amqp (with batches, and renewal of tokens)
//     and rhea (over WebSocket too) as plain clients: CBS and SASL, telemetry, cloud-to-device
//     messages with all outcomes in both settle modes, detached links, closed and reset
//     connections.
//   - The hub against the official device SDK for Node.js, azure-iot-device, over amqp, amqp-ws,
//     mqtt, mqtt-ws and http. The tests cover telemetry, batches (HTTP only), cloud-to-device
//     messages, renewal of tokens, X.509, refusals and file uploads; twin, desired properties and
//     direct methods, of devices and modules (not over HTTP, which has none of these). All of it is
//     repeated after resets.
//   - Modules behind an edge gateway of package testbroker: azure-iot-device as a module that takes
//     its settings from its environment, and as a leaf device, beside modules of package edge over
//     MQTT (both engines) and AMQP, over TLS and WebSocket. The tests cover outputs and inputs both
//     ways with all system properties, twin and methods, calls of methods by modules both ways and
//     to the leaf device, and that device's telemetry and cloud-to-device messages. The gateway
//     restarts while messages are in flight, and loses the hub for a time: a ledger shows that
//     nothing is lost. It also restarts with a certificate of another authority. Debug connection
//     strings work in both SDKs, and so does the environment that cmd/testhub prints.
//   - The program cmd/testhub, built and started as a separate process, with the same SDK over
//     mqtt, amqp and http. The tests send cloud-to-device messages, change desired properties, call
//     methods, reset connections and read arrivals through its control API. With its provisioning
//     service, a device registers, is moved to another hub and registers again.
//   - The page of cmd/testhub in headless Chromium, by the driver chromedp: each panel is used by
//     keyboard, while a device is connected. The rules of axe-core find no serious violation,
//     hostile texts of a device stay texts, and pages of other sites are refused. The pictures of
//     the documents are made here too.
//   - The hub's service side against the official SDK for back ends, azure-iothub, over HTTPS:
//     devices and modules in the registry, also in bulk, queries, twins, methods, jobs,
//     imports and exports, configurations and digital twins. The same SDK over AMQP and over
//     WebSocket: cloud-to-device messages, feedback and file notifications, with tokens and with
//     connection strings.
//   - The service client of amenzhinsky/iothub (v0.9.0, the newest version that the Go module proxy
//     has) and its command iothub-service: cloud-to-device messages, feedback and file
//     notifications over AMQP, and over HTTPS what the command does to devices, modules and twins.
//     It is built in a module of its own, testdata/amenzhinsky, because it needs an older
//     Azure/go-amqp. The client takes one host name for HTTPS and AMQP, so the hub listens on the
//     service's ports, at an address of the loopback network. Its roots are a list in its code. A
//     program gives others (WithTLSConfig and WithHTTPClient); the command has no setting, so the
//     test builds it from a copy with the hub's certificate in that list.
//   - The hub's endpoint compatible with Event Hubs, over AMQP, TLS and WebSocket, against the
//     official clients: azeventhubs v1 and v2 for Go, @azure/event-hubs. They read from each start
//     position, lose partitions to a higher epoch and are refused. Their processors continue at a
//     checkpoint, also after a kill -9 of cmd/testhub and its restart.
//   - The hub's storage against the official clients azblob and @azure/storage-blob, and against
//     the stores of checkpoints on them, azeventhubs/v2/checkpoints and
//     @azure/eventhubs-checkpointstore-blob, with the account's key and with a SAS: processors go
//     on at their checkpoints, and two of them share the partitions.
//   - The provisioning service of package testbroker with the official SDKs: devices with keys,
//     with keys derived from that of a group, and with certificates register over amqp, amqp-ws,
//     mqtt, mqtt-ws and http with azure-iot-provisioning-device, and azure-iot-device sends with
//     what they got, also after a move to another hub. Back ends enroll with
//     azure-iot-provisioning-service; Hubline registers with these enrollments.
//
// The tests against AMQP and the SDKs print a line that begins with SEEN for each observation.
//
// Requirements other than Go: the brokers (Debian's packages mosquitto and rabbitmq-server; each
// test runs its own in a separate directory and on separate ports, and touches no system service),
// and Node.js with npm, which installs node/package-lock.json into a separate directory. Go builds
// nats-server, a tool of go.mod, into a temporary directory. A test without its peer is skipped;
// with HUBLINE_REQUIRE_PEERS=1 it fails.
//
// # Unexpected behaviour of the peers
//
//   - RabbitMQ 3.10 loses messages in a restart, even acknowledged ones, unless they are marked
//     durable: the transport marks them.
//   - RabbitMQ 3.10 stops answering after a queue has refused a message
//     (rabbitmq/rabbitmq-server#2839): Options.AckTimeout of package device detects that, and the
//     message is sent again.
//   - RabbitMQ 3.10 accepts messages for a queue that does not exist
//     (rabbitmq/rabbitmq-server#7823). Such messages are lost, and the device cannot detect it.
//   - RabbitMQ 3.10 keeps some AMQP 1.0 receivers on a quorum queue connected that get nothing more
//     after the death of the queue's leader.
//   - RabbitMQ 3.10 and NATS, when they lose a node of three, at times deliver up to a hundred
//     messages behind later ones that they got after them, of any client.
//   - RabbitMQ 3.10 closes the connection of a client with MQTT 5 without an answer.
//   - RabbitMQ 3.10, as a single node that was killed, elects no leader for the quorum queue of an
//     MQTT session within a minute.
//   - NATS takes no dot in a client id. It delivers "a" and "a/b" out of order to a subscription to
//     "a/#". After a kill it delivers acknowledged commands again.
//   - paho.mqtt.golang reports messages in flight as done when it resumes a session, before they
//     are acknowledged; it reports others as failed and sends them nevertheless.
//   - autopaho discards the messages in flight when the broker has lost the session. They have left
//     its queue by then.
//   - rhea 3.0 combines two pending answers into one with the outcome of the first, even if the
//     outcomes differ. After it has ended a session it still answers on it, which makes the peer
//     end the connection.
//   - azure-iot-device has no batches over AMQP and MQTT. Over HTTP it leaves the prefix
//     "iothub-app-" on the properties of cloud-to-device messages, and calls back from setOptions
//     only if the options contain the polling interval.
//   - azure-iot-device over MQTT (not over WebSocket) does not reconnect after a reset until the
//     application sends something, and assumes that the hub kept its subscriptions. A twin request
//     whose answer is lost with the connection never ends, over MQTT and AMQP.
//   - azure-iot-device has no option for the component of telemetry: it sends an application
//     property "dt-subject" as the component, on each transport.
//   - azure-iot-device does not answer a method without a handler. Over MQTT it answers a method
//     without a payload with 400, without calling its handler.
//   - azure-iot-device over AMQP sends no user id, and the address of its link in place of the
//     message's property "to". An expiry that is a Date makes sendEvent hang; a number works. Of a
//     received message it shows annotations, such as the sender of a message to an input, and the
//     user id only in transportObj. Over MQTT it shows them as application properties: "$.cdid".
//   - azure-iot-device fetches the trust bundle when its process starts, and never again. After a
//     new certificate of the gateway it retries for 4 minutes, with roots that cannot verify it.
//   - azure-iothub over AMQP: an expiry that is a Date ends the connection, a number works. Errors
//     with a condition that it does not know have no text, and an error of the connection hides its
//     class in amqpError. A promise of a receiver gives an object with the receiver as "result", a
//     callback the receiver itself.
//   - amenzhinsky/iothub: its command sends the zero time of Go as the expiry of a message without
//     one, and panics in update-device without -capability.
//   - azure-iot-provisioning-device retries 429 and 5xx over all protocols but HTTP. Over AMQP it
//     reports refusals without their text, and 429 only counts with the condition
//     com.microsoft:device-container-throttled. A disabled device gets a SyntaxError.
//   - azure-iot-provisioning-service: a query that is read with promises begins anew with each
//     page, and the promise of a bulk operation never ends. Both work with callbacks.
//   - azure-iot-device cannot upload under a name that is not ASCII (its Content-Length counts
//     characters), and takes the CA of the store's certificate from NODE_EXTRA_CA_CERTS only. It
//     repeats blocks, but not the requests to the hub before and after them.
package interop

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
//   - The hub of package testbroker over MQTT against the client MQTT.js, over TLS and WebSocket,
//     and against MQTT 5 clients, which it refuses.
//   - The hub over AMQP against the libraries Azure/go-amqp (with batches, and renewal of tokens)
//     and rhea (over WebSocket too) as plain clients: CBS and SASL, telemetry, cloud-to-device
//     messages with all outcomes in both settle modes, detached links, closed and reset
//     connections.
//   - The hub against the official device SDK for Node.js, azure-iot-device, over amqp, amqp-ws,
//     mqtt, mqtt-ws and http. The tests cover telemetry, batches (HTTP only), cloud-to-device
//     messages, renewal of tokens, X.509, refusals and file uploads; twin, desired properties and
//     direct methods, of devices and modules (not over HTTP, which has none of these). All of it is
//     repeated after resets.
//   - The program cmd/testhub, built and started as a separate process, with the same SDK over
//     mqtt, amqp and http. The tests send cloud-to-device messages, change desired properties, call
//     methods, reset connections and read arrivals through its control API. With its provisioning
//     service, a device registers, is moved to another hub and registers again.
//   - The hub's service side against the official SDK for back ends, azure-iothub, over HTTPS:
//     devices and modules in the registry, queries, twins, methods. The hub lacks that SDK's AMQP
//     operations (sending cloud-to-device messages, feedback) and its bulk changes, configurations
//     and jobs: these fail at once.
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
// and Node.js with npm, which installs node/package-lock.json into a separate directory. A test
// without its peer is skipped; with HUBLINE_REQUIRE_PEERS=1 it fails.
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
//   - azure-iot-provisioning-device retries 429 and 5xx over all protocols but HTTP. Over AMQP it
//     reports refusals without their text, and 429 only counts with the condition
//     com.microsoft:device-container-throttled. A disabled device gets a SyntaxError.
//   - azure-iot-provisioning-service: a query that is read with promises begins anew with each
//     page, and the promise of a bulk operation never ends. Both work with callbacks.
//   - azure-iot-device cannot upload under a name that is not ASCII (its Content-Length counts
//     characters), and takes the CA of the store's certificate from NODE_EXTRA_CA_CERTS only. It
//     repeats blocks, but not the requests to the hub before and after them.
package interop

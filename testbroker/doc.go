// Package testbroker is an IoT hub that runs inside a test: devices with keys or certificates that are really checked,
// telemetry that is kept in a log, commands that wait in queues, and faults that happen exactly as declared.
//
//	hub, err := testbroker.New(nil)
//	...
//	defer hub.Close()
//	dev, err := hub.AddDevice("dev-1")
//	// hand dev.ConnectionString() and hub.Dial to the client, and let it send
//	err = hub.WaitMessages(ctx, 1)
//	fmt.Println(hub.Messages()[0].Body)
//
// Devices reach the hub over MQTT 3.1.1, in memory ([Hub.Dial], [Hub.DialTLSPort]) or on real ports ([Hub.ListenTLS],
// [Hub.ListenTCP]), and the same over WebSocket ([Hub.DialWS], [Hub.DialWSPort], [Hub.ListenWS]). They reach it over AMQP
// 1.0 in as many ways: [Hub.DialAMQP], [Hub.ListenAMQP] and those beside them; and over HTTPS: [Hub.DialHTTP],
// [Hub.ListenHTTPS]. They all are one hub: the registry, the log, the queues and the faults are the same. With connections
// in memory everything works in a testing/synctest bubble too; the hub must then be made in the bubble, and closed there.
// The hub is strict where the service is strict: what the service would refuse, it refuses.
//
// # Commands
//
// [Hub.SendC2D] puts a message into the queue of a device, from where it goes to a client that has subscribed, now or
// later, and again until the client acknowledges it. [Hub.C2DLog] and [Hub.WaitC2D] tell what became of it.
//
//	err = hub.SendC2D("dev-1", testbroker.C2D{MessageID: "1", Body: []byte("reboot")})
//	err = hub.WaitC2D(ctx, "dev-1", testbroker.Completed, 1)
//
// The hub keeps the subscriptions of a client with CleanSession=0.
//
// Over AMQP the device decides what becomes of a command: accepted completes it, rejected ends it, released and modified
// have it delivered again. The newest link for commands of a device, or the newest subscription, takes over from the one
// before.
//
// # AMQP
//
// A client may use SASL PLAIN with "device@sas.hub" and a token, EXTERNAL or no SASL with a certificate, or anything with
// tokens that it puts on the links to $cbs. One connection can act for as many devices as it has tokens for. There are
// links for telemetry, single or in batches, and for commands. Links for twins and for methods attach, and pair by
// "com.microsoft:channel-correlation-id", but there is nothing behind them yet: requests for a twin are answered with the
// status 501, and no method is called. What breaks the standard is answered with the condition that the standard has, on
// the link, the session or the connection. [Hub.DetachLinks], [Hub.EndSessions] and [Hub.CloseAMQP] do at any
// moment what a service does without a reason.
//
// # HTTPS
//
// A device can send messages, single or in batches, and ask for commands and settle them by their lock tokens, over HTTP/1.1
// or HTTP/2. Each request proves by itself whose it is, so one connection can serve many devices. The port is that of
// WebSocket, as it is at the service. What is refused is told by the service's codes, in its JSON and in the header
// iothub-errorcode. [HTTPOptions] has the limits that keep slow clients from staying.
//
// # Certificates
//
// A device registered with [Hub.AddDeviceX509] or [Hub.AddDeviceCA] proves who it is by its certificate in the TLS
// handshake. [NewClientCert] and [NewCertAuthority] make certificates for it.
//
// # Faults
//
// A [Fault] says what goes wrong, for which device, and at which of its connects or messages. [Hub.Inject] puts it in
// force; the [Injected] it returns tells how often it has really happened.
//
//	lost := hub.Inject(testbroker.Fault{Kind: testbroker.DropAfterPublish, After: 2})
//	// the third message is stored, but its sender is cut off before it learns so
//	err = lost.WaitFired(ctx, 1)
//
// [FaultKind.Protocols] tells for which protocols a kind is. A device can also ask for a fault, by a message with properties
// that the service knows: see [FaultMessages].
//
// # Concurrency
//
// All methods may be called from any goroutine, except where they say otherwise. [Hub.Close] ends every connection and
// joins every goroutine of the hub.
//
// # What it does not do
//
// No other client receives what a device publishes, and nothing is retained: a hub is no general broker. Over AMQP there
// are no links of back ends, no routes to inputs of modules, no transactions, and links do not resume. Over HTTPS there are
// no requests of back ends, and no commands to modules.
package testbroker

// Package testbroker is an IoT hub that runs inside a test: devices with keys or certificates that
// are really checked, telemetry that is kept in a log, cloud-to-device (C2D) messages that wait in
// queues, and faults that happen exactly as declared.
//
//	hub, err := testbroker.New(nil)
//	...
//	defer hub.Close()
//	dev, err := hub.AddDevice("dev-1")
//	// hand dev.ConnectionString() and hub.Dial(testbroker.PortMQTT) to the client, and let it send
//	err = hub.WaitMessages(ctx, 1)
//	fmt.Println(hub.Messages()[0].Body)
//
// Devices reach the hub over MQTT 3.1.1, AMQP 1.0 and HTTPS, and over WebSocket: in memory
// ([Hub.Dial]) or on real addresses ([Hub.Listen]). [Port] lists what the hub speaks. All ports
// lead to one hub: the registry, the log, the queues and the faults are the same. With connections
// in memory everything works in a testing/synctest bubble too; the hub must then be made in the
// bubble, and closed there. The hub is strict where the service is strict: what the service would
// refuse, it refuses.
//
// # C2D messages
//
// [Hub.SendC2D] puts a message into the queue of a device, from where it goes to a client that has
// subscribed, now or later, and again until the client acknowledges it. [Hub.C2DLog] and
// [Hub.WaitC2D] tell what became of it.
//
//	err = hub.SendC2D("dev-1", testbroker.C2D{MessageID: "1", Body: []byte("reboot")})
//	err = hub.WaitC2D(ctx, "dev-1", testbroker.Completed, 1)
//
// The hub keeps the subscriptions of a client with CleanSession=0.
//
// Over AMQP the device decides what becomes of a C2D message: accepted completes it, rejected ends
// it, released and modified have it delivered again. The newest link for C2D messages of a device,
// or the newest subscription, takes over from the one before.
//
// # Twins
//
// [Hub.PatchDesired] and [Hub.SetDesired] change the desired properties of a twin, of which clients
// are told that have subscribed; nothing is kept for those that are not there. [Hub.WaitReported]
// waits for what a device reports, [Hub.Twin] returns the present state, and [Hub.TwinLog] what
// clients have asked.
//
//	version, err := hub.PatchDesired("dev-1", `{"interval":60}`)
//	err = hub.WaitReported(ctx, "dev-1", func(t testbroker.Twin) bool { return string(t.Reported) == `{"interval":60}` })
//
// The limits of the service hold: keys, texts, depth, whole numbers, 32 KB of desired and of
// reported properties.
//
// # Direct methods
//
// [Hub.CallMethod] calls a method and waits for the answer, within the time-outs and with the error
// codes of the service. An answer counts once, in time, and on the connection that had the request.
// [Hub.MethodLog] and [Hub.MethodAnswers] tell of each call how often it was sent and of each
// answer what became of it, so that a test can prove that no call was carried out twice.
//
//	result, err := hub.CallMethod(ctx, "dev-1", testbroker.MethodCall{Name: "reboot", Payload: []byte(`{"in":5}`)})
//
// # Back ends
//
// A program that uses the service's API over HTTPS ([PortHTTPS]) finds the registry, twins,
// methods, the simplest queries and counts there. It needs a policy: see [Hub.AddPolicy] and
// [Policy.ConnectionString].
//
// # Uploads
//
// Devices upload files over HTTP: the hub tells them where to, and is the store as well.
// [Hub.Uploads] has what the hub knows of uploads, [Hub.Blob] the files. What the service's
// documents say of Put Blob, Put Block and Put Block List holds, with limits, signatures that
// expire, and errors in XML. [UploadOptions.Digest] makes the store keep hashes only, for files
// that are larger than memory.
//
//	err = hub.WaitUploads(ctx, 1)
//	file, ok := hub.Blob("dev-1/logs/today.txt")
//	err = file.Matches(bytes.NewReader(sent))
//
// # AMQP
//
// A client may use SASL PLAIN with "device@sas.hub" and a token, EXTERNAL or no SASL with a
// certificate, or anything with tokens that it puts on the links to $cbs. One connection can act
// for as many devices as it has tokens for. There are links for telemetry, single or in batches,
// for C2D messages, and pairs of links for twins and for methods, which are told from others by
// "com.microsoft:channel-correlation-id". What breaks the standard is answered with the condition
// that the standard has, on the link, the session or the connection. [Hub.DetachLinks],
// [Hub.EndSessions] and [Hub.CloseAMQP] do at any moment what a service does without a reason.
//
// # HTTPS
//
// A device can send messages, single or in batches, and ask for C2D messages and settle them by
// their lock tokens, over HTTP/1.1 or HTTP/2. Each request proves by itself whose it is, so one
// connection can serve many devices. The port is that of WebSocket, as it is at the service. What
// is refused is told by the service's codes, in its JSON and in the header iothub-errorcode.
// [HTTPOptions] has the limits that keep slow clients from staying.
//
// # Certificates
//
// A device registered with [Hub.AddDeviceX509] or [Hub.AddDeviceCA] proves who it is by its
// certificate in the TLS handshake. [NewClientCert] and [NewCertAuthority] make certificates for
// it.
//
// # Faults
//
// A [Fault] says what goes wrong, for which device, and at which of its connects or messages.
// [Hub.Inject] puts it in force; the [Injected] it returns tells how often it has really happened.
//
//	lost := hub.Inject(testbroker.Fault{Kind: testbroker.DropAfterPublish, After: 2})
//	// the third message is stored, but its sender is cut off before it learns so
//	err = lost.WaitFired(ctx, 1)
//
// [FaultKind.Protocols] tells for which protocols a kind is. A device can also ask for a fault, by
// a message with properties that the service knows: see [FaultMessages].
//
// # Concurrency
//
// All methods may be called from any goroutine, except where they say otherwise. [Hub.Close] ends
// every connection and joins every goroutine of the hub.
//
// # A hub for many tests
//
// [Hub.Reset] makes a hub as new but for its registry, keys and ports. Until then it keeps all that
// it saw, unless [Options.Keep] says how much. Command testhub is this hub as a program, for tests
// in other languages.
//
// # Where things are
//
// This package is thin. The hub itself, which knows no protocol, is package internal/hub; its types
// are here by other names, and `go doc ./testbroker/internal/hub Fault` shows their fields. Each
// protocol has a front of its own: internal/mqttfront, amqpfront (on the engine internal/amqp),
// httpfront for devices, servicefront for back ends, and blobfront for the store of files. The last
// three share internal/web. A front imports the hub and no other front. Files are named after what
// happens there: what becomes of a C2D message that is settled over AMQP is in amqpfront/c2d.go.
//
// # What it does not do
//
// No other client receives what a device publishes, and nothing is retained: a hub is no general
// broker. Over AMQP there are no links of back ends, no routes to inputs of modules, no
// transactions, and links do not resume. Over HTTPS there are no C2D messages to modules, no jobs,
// configurations and imports.
package testbroker

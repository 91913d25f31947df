// Package testbroker is an IoT hub that runs inside a test. It checks the keys and certificates of
// devices, logs telemetry, queues cloud-to-device (C2D) messages, and injects faults exactly as
// declared.
//
//	hub, err := testbroker.New(nil)
//	...
//	defer hub.Close()
//	dev, err := hub.AddDevice("dev-1")
//	// pass dev.ConnectionString() and hub.Dial(testbroker.PortMQTT) to the client, and let it send
//	err = hub.WaitMessages(ctx, 1)
//	fmt.Printf("%s\n", hub.Messages()[0].Body)
//
// Devices connect over MQTT 3.1.1, AMQP 1.0 and HTTPS, and over WebSocket: in memory ([Hub.Dial])
// or on real addresses ([Hub.Listen]). [Port] lists the protocols. All ports share one registry,
// one log, one set of queues and one set of faults. With in-memory connections everything works in
// a testing/synctest bubble too; the hub must then be made and closed in the bubble. The hub is as
// strict as the service: it refuses what the service refuses.
//
// # C2D messages
//
// [Hub.SendC2D] queues a message for a device. The hub delivers it to a client that has subscribed
// or subscribes later, and repeats the delivery until the client acknowledges it. [Hub.C2DLog] and
// [Hub.WaitC2D] report the outcome.
//
//	err = hub.SendC2D("dev-1", hubdata.C2D{MessageID: "1", Body: []byte("reboot")})
//	err = hub.WaitC2D(ctx, "dev-1", hubdata.C2DCompleted, 1)
//
// The hub keeps the subscriptions of a client with CleanSession=0.
//
// Over AMQP the device decides the outcome of a C2D message: accepted completes it, rejected
// removes it from the queue as [hubdata.C2DRejected] (a service dead-letters it), released and
// modified cause another delivery. The newest C2D link of a device, or the newest subscription,
// replaces the previous one.
//
// # Modules and an edge gateway
//
// [Hub.AddModule] registers a module. [Hub.SendInput] queues a message for one of its inputs, which
// a client receives over MQTT and AMQP.
//
// With [Options.Gateway] an edge gateway stands in front of the hub. It routes outputs of modules
// to inputs and to the hub, and acknowledges messages before the hub has them. [Hub.SetOffline],
// [Hub.StopGateway] and the faults of [fault.GatewayKinds] show what a client does when the gateway
// has lost the hub, or restarts:
//
//	hub, err := testbroker.New(&testbroker.Options{Gateway: &testbroker.GatewayOptions{
//		Name:   "edge-1.example.test",
//		Routes: []string{`FROM /messages/modules/a/outputs/x INTO BrokeredEndpoint("/modules/b/inputs/y")`},
//	}})
//	err = hub.SetOffline(true)  // the gateway stores
//	err = hub.SetOffline(false) // and forwards
//
// # Twins
//
// [Hub.PatchDesired] and [Hub.SetDesired] change the desired properties of a twin. The hub notifies
// subscribed clients and keeps no notification for the others. [Hub.WaitReported] waits for
// reported properties, [Hub.Twin] returns the present state, and [Hub.TwinLog] the requests of
// clients.
//
//	version, err := hub.PatchDesired("dev-1", `{"interval":60}`)
//	err = hub.WaitReported(ctx, "dev-1", func(t hubdata.Twin) bool { return string(t.Reported) == `{"interval":60}` })
//
// The limits of the service apply: keys, strings, depth, whole numbers, 32 KB of desired and of
// reported properties.
//
// # Direct methods
//
// [Hub.CallMethod] calls a method and waits for the answer, with the timeouts and error codes of
// the service. The hub accepts one answer to a call, if it is in time and on the connection of the
// request. [Hub.MethodLog] reports how often each call was sent, and [Hub.MethodAnswers] how each
// answer was treated. So a test can prove that no call was executed twice.
//
//	result, err := hub.CallMethod(ctx, "dev-1", hubdata.MethodCall{Name: "reboot", Payload: []byte(`{"in":5}`)})
//
// # Back ends
//
// A program that uses the service's HTTPS API ([PortHTTPS]) can use the registry, twins, methods,
// queries, counts, configurations, jobs and digital twins. It needs a policy: see [Hub.AddPolicy]
// and [hubdata.Policy.ConnectionString]. Over AMQP it sends C2D messages on a link to
// "/messages/devicebound". The outcome says whether the message was queued: amqp:not-found means an
// unknown receiver, amqp:resource-limit-exceeded a full queue. Links from
// "/messages/serviceBound/feedback" and "/messages/serviceBound/filenotifications" carry the
// outcomes of C2D messages that asked for them, and successful uploads. A lock lasts a minute.
// After ten deliveries or an hour the message is dropped, and the oldest of more than 10,000. Over
// HTTPS the same is under "/devices/{device}/messages/devicebound" and "/messages/serviceBound/".
//
// A back end authenticates on the $cbs links with a policy's token, or with SASL PLAIN: "policy" or
// "policy@sas.root.hub" as the user, and a token or the key itself as the password. The resource of
// the token may have any scheme, a port, and a path that the address of the link begins with.
//
// A configuration writes desired properties of the devices or modules that fulfil its condition.
// The hub applies configurations a second after a change of a twin, of the registry or of a
// configuration: those with a higher priority override the others.
//
// A job changes the twins, or calls a method, of the devices that fulfil its condition when it
// starts. It serves 8 devices at a time, each once. [Options.Keep] also bounds the states of ended
// jobs. [Hub.Close] and [Hub.Reset] end all jobs.
//
// # Events for back ends
//
// Each AMQP port is also an endpoint compatible with Event Hubs: clients of Event Hubs read
// telemetry there, with [Hub.EventsConnectionString], from any kept event on, by consumer group and
// partition, with or without an epoch. [Options.Events] sets partitions and groups, and which twin
// changes, entries of the registry and connections become events too. The hub's own address,
// messages/events, redirects there.
//
// # Uploads
//
// Devices upload files over HTTP. The hub issues the upload URI and is also the store.
// [Hub.Uploads] returns the hub's records of uploads, [Hub.Blob] the files. Put Blob, Put Block and
// Put Block List behave as in the service's documents, with limits, expiring signatures, and XML
// errors. [hubdata.UploadOptions.Digest] makes the store keep only hashes, for files larger than
// memory.
//
//	err = hub.WaitUploads(ctx, 1)
//	file, ok := hub.Blob("dev-1/logs/today.txt")
//	err = file.Matches(bytes.NewReader(sent))
//
// The store has containers of blobs too, with metadata and conditions, in which event processors
// keep their checkpoints: see [Hub.ContainerURL] and [Hub.StorageConnectionString].
//
// # A plain broker
//
// [Options.Broker] makes the hub a plain MQTT broker, for clients of brokers that are no hubs: MQTT
// 3.1.1 and MQTT 5, on topics of a template, with user names and passwords. Registry, log, C2D
// queues, waits and faults are the same. See [BrokerOptions], [Hub.Session], [Hub.BrokerURL] and
// [fault.BrokerKinds].
//
// # The MQTT v5 connection profile
//
// [Options.MQTTv5] makes a hub of the kind that the service calls the MQTT v5 connection profile:
// MQTT 5 alone, certificates alone, twins and methods in protobuf after a birth message, and topics
// of templates. A test uses it as any hub: it reads the log, changes desired properties and calls
// methods. See [MQTTv5Options], [fault.MQTTv5Kinds], and [Hub.Session] for the nonce of the birth.
// The service has no route at first; this hub routes everything, unless [MQTTv5Options.Routes] says
// otherwise.
//
//	hub, err := testbroker.New(&testbroker.Options{MQTTv5: &testbroker.MQTTv5Options{
//		Topics: []string{"site/{deviceId}/up"},
//	}})
//	// a birth-ack with another nonce, then a gap in the versions of desired properties
//	hub.Inject(fault.Fault{Kind: fault.MisnameDispatch, Message: "birth-ack"})
//	hub.Inject(fault.Fault{Kind: fault.SwallowDesired})
//
// The service is a preview, and its documents leave questions open. docs/next-hub.md lists what
// this hub does until they are answered.
//
// # AMQP
//
// A client may use SASL PLAIN with "device@sas.hub" and a token, EXTERNAL or no SASL with a
// certificate, or any of these with tokens sent on the $cbs links. One connection can serve as many
// devices as it has tokens for. There are links for telemetry (single messages or batches), links
// for C2D messages, and pairs of links for twins and for methods. Pairs are matched by
// "com.microsoft:channel-correlation-id". The hub answers violations of the standard with the
// standard's condition, on the link, the session or the connection. [Hub.DetachLinks],
// [Hub.EndSessions] and [Hub.CloseAMQP] end links, sessions and connections at any moment, as a
// service may do without a reason.
//
// # HTTPS
//
// Over HTTP/1.1 or HTTP/2, a device can send messages, single or in batches, request C2D messages,
// and settle them by their lock tokens. Each request carries its own credentials, so one connection
// can serve many devices. HTTPS and WebSocket share a port, as in the service. Refusals carry the
// service's codes, in its JSON and in the header iothub-errorcode. [HTTPOptions] holds the time
// limits for slow clients.
//
// # Certificates
//
// A device registered with [Hub.AddDeviceX509] or [Hub.AddDeviceCA] authenticates with its
// certificate in the TLS handshake. [NewClientCert] and [NewCertAuthority] make certificates for
// it.
//
// A device can renew its certificate: it sends a signing request to the topic
// $iothub/credentials/POST/issueCertificate over MQTT, and the hub answers 202, then 200 with a
// certificate of its own authority. The hub accepts it from then on, and earlier ones until they
// end. [CertificateOptions] holds the settings, [Hub.CertificateRequests] is the log, and
// [fault.CertificateKinds] are the faults.
//
// # Provisioning
//
// [NewDPS] makes a device provisioning service that assigns devices to linked hubs of this package.
// Devices register over MQTT, AMQP and HTTPS, with tokens or certificates, on the ports of the hub,
// and with a TPM over AMQP and HTTPS.
//
//	dps, err := testbroker.NewDPS(nil)
//	err = dps.Link(hubA, hubB)
//	group, err := dps.Enroll(dpsdata.Enrollment{ID: "line-1", Group: true})
//	// the key of a device: dpsdata.DeriveKey(group.PrimaryKey, "dev-1")
//	err = dps.Move("line-1", hubB.HostName()) // with the next registrations
//
// [DPS.Inject] puts faults in force: those of connections and of TLS, and those of
// [fault.ProvisioningKinds]. [CertAuthority.Issuer] answers certificate signing requests.
// [DPS.AddPolicy] is for back ends that enroll over HTTPS. [DPS.Requests] is the log of requests,
// and [DPS.Registrations] says which device is where. A device has the keys or the certificate of
// its registration at its hub too.
//
// # Faults
//
// A fault says what fails, for which device, and at which of its connects, messages, requests or
// calls: see [fault.Fault] and its kinds. [Hub.Inject] puts it in force and returns an [Injected],
// which counts how often the fault has happened.
//
//	lost := hub.Inject(fault.Fault{Kind: fault.DropAfterPublish, After: 2})
//	// the third message is stored, but its sender is cut off before the PUBACK
//	err = lost.WaitFired(ctx, 1)
//
// The fields of a Fault that most tests need:
//
//	Kind         what happens; required
//	Device       the device, or "device/module"; empty: all
//	After        how many matching events pass before the first hit
//	Times        how often it happens; 0: once, negative: until it is removed
//	For          how long it lasts, for kinds with a duration
//	Delay        how late something happens, for kinds with a delay
//	Probability  the chance of each event to be a hit; 0: always
//	Code, Status the CONNACK code, or the status over HTTP and of tokens, twins and methods
//
// # Packages
//
// This package has the hub, its settings and its ports. Package fault has the faults, package
// hubdata the settings of the hub's parts, what a test passes to the hub and what the hub records,
// package dpsdata the same for a provisioning service, and package event what both report to
// OnEvent.
//
// # Concurrency
//
// All methods may be called from any goroutine, unless stated otherwise. [Hub.Close] ends every
// connection and joins every goroutine of the hub.
//
// # A hub for many tests
//
// [Hub.Reset] makes a hub as new except for its registry, keys and ports. Until then the hub keeps
// all log entries, unless [Options.Keep] limits them. [Options.Store] keeps the state between runs.
// Command testhub is this hub as a program, for tests in other languages.
//
// # Source layout
//
// This package is thin. The hub itself, which is independent of protocols, is package internal/hub
// with its rooms: internal/identity, faults, files and keep. What only back ends see
// plugs into it: internal/backend.
//
// Each protocol has a front: internal/mqttfront (on the codec internal/mqtt, with a dialect each
// for the service, for the MQTT v5 profile and for a plain broker), amqpfront (on the engine
// internal/amqp), and, on internal/web, httpfront for devices, servicefront for back ends, and
// blobfront for the blob store. A front imports the hub and no other front. The provisioning
// service is package internal/dps, with its fronts in internal/dpsfront; its connections are those
// of a hub without devices. Files are named after their subject: amqpfront/c2d.go settles C2D
// messages over AMQP. Tests of one front stand beside it and use the clients of internal/hubtest;
// those of several protocols stand here.
//
// # Limitations
//
// The hub is not a general broker, nor is a plain one: it does not route a device's messages to
// other clients, and retains none. Over AMQP there are no transactions, and links do not resume.
// Over HTTPS modules receive no C2D messages.
package testbroker

// Package edge makes a module of an Azure IoT Edge device. Its credentials and network settings
// come from the environment that the runtime sets. The runtime's daemon signs its tokens, and the
// daemon's trust bundle verifies the gateway.
//
//	m, err := edge.FromEnvironment(nil)
//	...
//	client, err := device.New(m.Credentials, mqtt.New(&mqtt.Options{Network: m.Network}), nil)
//
// The client is the one of every device; what differs for modules is in docs/edge.md.
//
// # Failures of the daemon
//
// The daemon restarts with each update of the runtime, and a module may start before it and before
// the gateway. Its failures are failures of the connection attempt that needs it, and are retried
// as the retry policy says:
//
//   - Network when its socket is missing, refuses, or the connection is lost;
//   - Timeout when it does not answer within Options.Timeout;
//   - Unavailable when it answers 5xx;
//   - Unavailable when it answers 401, 403 or 404. It does so while it starts, and while it creates
//     the module anew: it then ends this process, so a retry does no harm;
//   - Throttled when it answers 429;
//   - Protocol with transport.ErrViolation when its answer makes no sense or is too large.
//
// Two are not retried: Invalid for 400, which means that the daemon does not know
// IOTEDGE_APIVERSION, and Protocol for any other status, since another service answers there.
//
// # Certificates
//
// With a gateway, the trust bundle replaces the system's roots. It is fetched for the first
// connection, and again when the gateway's certificate does not verify, but not within 5 s. A
// bundle that is older than an hour is also fetched again. If that fails or takes more than 3 s,
// the old one is used, and the next fetch for its age is a minute later.
//
// Until the gateway's certificate verifies, the attempt fails with Unavailable and is retried.
// Without a gateway the module connects to the hub itself, with the system's roots.
package edge

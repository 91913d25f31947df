// Package transport has what a device program shares with the protocols that carry it: credentials,
// messages, and failures by kind.
//
//	sign, err := transport.SharedKey(key)
//	creds := &transport.Credentials{Host: "hub.example", DeviceID: "dev-1", Sign: sign}
//	client, err := device.New(creds, mqtt.New(nil), nil)
//	err = client.Send(ctx, &transport.Message{Body: []byte("21.5")})
//	if errors.Is(err, transport.TooLarge) {
//		// split it
//	}
//
// Each transport translates the failures of its protocol into *[Error]; the layers above use only
// Kind, Scope and RetryAfter. The package imports only the parts of the standard library that small
// boards can carry.
//
// # For device programs
//
//   - [Credentials]: who the device is, and how it proves that ([SharedKey], [Token]);
//   - [Message] and [Property]: what it sends and receives;
//   - [Error], with its [Kind], [Scope] and [Op], and [StatusError]: why something failed.
//
// # For authors of transports
//
// A [Transport] makes sessions from a [Config]. A [Session] is one connection, from its handshake
// to its end. It takes an [Item] for each message and a [Request] for the rest. Results come back
// through a [Sink], which package device implements, as a [Reply] or a [Delivery]. A transport may
// also be a [Checker] or [Limited], and a session a [Progressor] or [Twinned]. Implement Transport
// and Session and run package transporttest against them. Device programs need none of these types.
package transport

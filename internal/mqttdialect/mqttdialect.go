// Package mqttdialect describes to package transport/mqtt a service that is not a hub: what a
// session sends in its CONNECT, and its topics.
package mqttdialect

import "github.com/hubline-iot/hubline/transport"

// Dialect is a service that a session speaks with. Its sessions have messages in both directions,
// with QoS 1, and neither twin nor methods. They are not persistent (CleanSession 1).
type Dialect struct {
	// ClientID and UserName go into CONNECT.
	ClientID, UserName string
	// Filter is the topic filter of transport.Messages.
	Filter string
	// Topic returns the topic of a message to send, of 1 to 65535 bytes.
	Topic func(m *transport.Message) string
	// Deliver receives each message, in order; body is valid until it returns. The session
	// acknowledges the message afterwards. Deliver does not block.
	Deliver func(topic string, body []byte)
}

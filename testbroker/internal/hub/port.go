package hub

import (
	"context"
	"fmt"
	"net"
)

// Port is a protocol stack that the hub serves. It is not a TCP port number.
type Port uint8

const (
	PortMQTT Port = iota + 1
	PortMQTTS
	PortAMQP
	PortAMQPS
	PortHTTP
	PortHTTPS
)

// ports maps each port to its protocol stack.
var ports = map[Port]struct {
	name string
	port
}{
	PortMQTT:  {"MQTT", port{MQTT, false}},
	PortMQTTS: {"MQTT over TLS", port{MQTT, true}},
	PortAMQP:  {"AMQP", port{AMQP, false}},
	PortAMQPS: {"AMQP over TLS", port{AMQP, true}},
	PortHTTP:  {"HTTP", port{HTTP, false}},
	PortHTTPS: {"HTTPS", port{HTTP, true}},
}

// String returns the name of the protocol stack.
func (p Port) String() string {
	if row, ok := ports[p]; ok {
		return row.name
	}
	return fmt.Sprintf("Port(%d)", uint8(p))
}

// Dial returns a function that connects to a port of the hub in memory and returns the client's
// end. The caller does TLS and the WebSocket handshake itself: see [Hub.ClientTLS]. Network and
// address appear only in errors and as the remote address. The function has the signature of
// [net.Dialer.DialContext].
func (h *Hub) Dial(p Port) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		row, ok := ports[p]
		if !ok {
			return nil, fmt.Errorf("testbroker: dial: no such port: %s", p)
		}
		return h.dial(ctx, network, addr, row.port)
	}
}

// Listen implements testbroker.Hub.Listen.
func (h *Hub) Listen(p Port, addr string) (net.Addr, error) {
	row, ok := ports[p]
	if !ok {
		return nil, fmt.Errorf("testbroker: listen: no such port: %s", p)
	}
	return h.listen(addr, row.port)
}

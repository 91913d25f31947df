package hub

import (
	"context"
	"fmt"
	"net"
)

// Port says what the hub speaks where connections come in. It is not a number of TCP.
type Port uint8

const (
	// PortMQTT is MQTT without TLS. The service has no such port.
	PortMQTT Port = iota + 1
	// PortMQTTS is MQTT over TLS, 8883 at the service.
	PortMQTTS
	// PortAMQP is AMQP 1.0 without TLS. The service has no such port.
	PortAMQP
	// PortAMQPS is AMQP 1.0 over TLS, 5671 at the service.
	PortAMQPS
	// PortHTTP is HTTP/1.1 without TLS. Requests for the path "/$iothub/websocket" become a WebSocket:
	// with the subprotocol "mqtt" for MQTT, with "AMQPWSB10" for AMQP, both in any letter case. The
	// service has no such port.
	PortHTTP
	// PortHTTPS is the same over TLS, 443 at the service; the client chooses between HTTP/1.1 and
	// HTTP/2 in the handshake.
	PortHTTPS
)

// ports is what each port stands for.
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

// String names what is spoken.
func (p Port) String() string {
	if row, ok := ports[p]; ok {
		return row.name
	}
	return fmt.Sprintf("Port(%d)", uint8(p))
}

// Dial returns a function that connects to a port of the hub in memory. It returns the client's end
// of the connection; TLS and the request for a WebSocket are up to the caller: see [Hub.ClientTLS].
// Network and address only appear in errors and as the remote address. The function's signature is
// that of [net.Dialer.DialContext].
func (h *Hub) Dial(p Port) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		row, ok := ports[p]
		if !ok {
			return nil, fmt.Errorf("testbroker: dial: no such port: %s", p)
		}
		return h.dial(ctx, network, addr, row.port)
	}
}

// Listen opens a port on a real address, for example "127.0.0.1:0", and returns the address with
// its number. The certificate of ports with TLS is for the hub's host name, the same behind
// "store.", "localhost" and the addresses 127.0.0.1 and ::1; [Hub.RootCAs] trusts it.
func (h *Hub) Listen(p Port, addr string) (net.Addr, error) {
	row, ok := ports[p]
	if !ok {
		return nil, fmt.Errorf("testbroker: listen: no such port: %s", p)
	}
	return h.listen(addr, row.port)
}

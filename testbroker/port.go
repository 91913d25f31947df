package testbroker

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
)

// Port is a protocol stack that the hub serves. It is not a TCP port number.
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
	// with the subprotocol "mqtt" for MQTT, with "AMQPWSB10" for AMQP, both in any letter case. So do
	// those of clients of Event Hubs for "/$servicebus/websocket", with "AMQPWSB10" or "amqp". The
	// service has no such port.
	PortHTTP
	// PortHTTPS is PortHTTP over TLS, 443 at the service. The client chooses between HTTP/1.1 and
	// HTTP/2 in the handshake.
	PortHTTPS
)

// ports maps each port to its protocol stack.
var ports = map[Port]struct {
	name  string
	stack hub.Stack
}{
	PortMQTT:  {"MQTT", hub.Stack{Protocol: hubdata.MQTT}},
	PortMQTTS: {"MQTT over TLS", hub.Stack{Protocol: hubdata.MQTT, TLS: true}},
	PortAMQP:  {"AMQP", hub.Stack{Protocol: hubdata.AMQP}},
	PortAMQPS: {"AMQP over TLS", hub.Stack{Protocol: hubdata.AMQP, TLS: true}},
	PortHTTP:  {"HTTP", hub.Stack{Protocol: hubdata.HTTP}},
	PortHTTPS: {"HTTPS", hub.Stack{Protocol: hubdata.HTTP, TLS: true}},
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
		return h.hub.Dial(ctx, network, addr, row.stack)
	}
}

// Listen opens a port on a real address, for example "127.0.0.1:0", and returns the address with
// the actual port number. The certificate of TLS ports covers the hub's host name, that name
// prefixed with "store.", "localhost" and the addresses 127.0.0.1 and ::1; [Hub.RootCAs] trusts it.
func (h *Hub) Listen(p Port, addr string) (net.Addr, error) {
	row, ok := ports[p]
	if !ok {
		return nil, fmt.Errorf("testbroker: listen: no such port: %s", p)
	}
	return h.hub.Listen(addr, row.stack)
}

// RootCAs returns a pool that trusts only the hub's certificate.
func (h *Hub) RootCAs() *x509.CertPool { return h.hub.Authority.RootCAs() }

// CAPEM returns the certificate of the authority that signed the hub's certificate, in PEM.
func (h *Hub) CAPEM() []byte { return h.hub.Authority.CAPEM() }

// ClientTLS returns the configuration of a client that trusts this hub and expects its host name.
func (h *Hub) ClientTLS() *tls.Config { return h.hub.Authority.ClientTLS() }

// PresentName makes the hub present a certificate for another host name, and only that, from the
// next handshake on. An empty name restores the hub's own names.
func (h *Hub) PresentName(host string) error { return h.hub.Authority.PresentName(host) }

// SendRaw sends bytes unchanged to the established connections of a device, named as in
// [Hub.Connections], between two packets of the hub. It returns the number of connections. A test
// can send any protocol violation with it: half a packet, a wrong length, an acknowledgement of an
// unknown packet.
func (h *Hub) SendRaw(device string, p []byte) int { return h.hub.SendRaw(device, p) }

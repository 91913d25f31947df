package testbroker

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"

	"github.com/hubline-iot/hubline/testbroker/internal/hub"
)

// Port is a protocol stack that the hub serves. It is not a TCP port number.
type Port = hub.Port

const (
	// PortMQTT is MQTT without TLS. The service has no such port.
	PortMQTT = hub.PortMQTT
	// PortMQTTS is MQTT over TLS, 8883 at the service.
	PortMQTTS = hub.PortMQTTS
	// PortAMQP is AMQP 1.0 without TLS. The service has no such port.
	PortAMQP = hub.PortAMQP
	// PortAMQPS is AMQP 1.0 over TLS, 5671 at the service.
	PortAMQPS = hub.PortAMQPS
	// PortHTTP is HTTP/1.1 without TLS. Requests for the path "/$iothub/websocket" become a WebSocket:
	// with the subprotocol "mqtt" for MQTT, with "AMQPWSB10" for AMQP, both in any letter case. The
	// service has no such port.
	PortHTTP = hub.PortHTTP
	// PortHTTPS is PortHTTP over TLS, 443 at the service. The client chooses between HTTP/1.1 and
	// HTTP/2 in the handshake.
	PortHTTPS = hub.PortHTTPS
)

// Dial returns a function that connects to a port of the hub in memory and returns the client's
// end. The caller does TLS and the WebSocket handshake itself: see [Hub.ClientTLS]. Network and
// address appear only in errors and as the remote address. The function has the signature of
// [net.Dialer.DialContext].
func (h *Hub) Dial(p Port) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return h.hub.Dial(p)
}

// Listen opens a port on a real address, for example "127.0.0.1:0", and returns the address with
// the actual port number. The certificate of TLS ports covers the hub's host name, that name
// prefixed with "store.", "localhost" and the addresses 127.0.0.1 and ::1; [Hub.RootCAs] trusts it.
func (h *Hub) Listen(p Port, addr string) (net.Addr, error) { return h.hub.Listen(p, addr) }

// ErrSlowReader is the cause of a connection's end when its client did not read the hub's data.
var ErrSlowReader = hub.ErrSlowReader

// RootCAs returns a pool that trusts only the hub's certificate.
func (h *Hub) RootCAs() *x509.CertPool { return h.hub.RootCAs() }

// CAPEM returns the certificate of the authority that signed the hub's certificate, in PEM.
func (h *Hub) CAPEM() []byte { return h.hub.CAPEM() }

// ClientTLS returns the configuration of a client that trusts this hub and expects its host name.
func (h *Hub) ClientTLS() *tls.Config { return h.hub.ClientTLS() }

// PresentName makes the hub present a certificate for another host name, and only that, from the
// next handshake on. An empty name restores the hub's own names.
func (h *Hub) PresentName(host string) error { return h.hub.PresentName(host) }

// SendRaw sends bytes unchanged to the established connections of a device, named as in
// [Hub.Connections], between two packets of the hub. It returns the number of connections. A test
// can send any protocol violation with it: half a packet, a wrong length, an acknowledgement of an
// unknown packet.
func (h *Hub) SendRaw(device string, p []byte) int { return h.hub.SendRaw(device, p) }

// Links returns how many AMQP links of a kind are attached for a device, named as in
// [Hub.Connections]. [LinkAny] counts all except the links for tokens.
func (h *Hub) Links(device string, kind LinkKind) int { return h.amqp.Links(device, kind) }

// DetachLinks detaches the AMQP links of a kind that are attached for a device, named as in
// [Hub.Connections], and returns their number. An empty error is not sent.
func (h *Hub) DetachLinks(device string, kind LinkKind, e AMQPError) int {
	return h.amqp.DetachLinks(device, kind, e)
}

// EndSessions ends the AMQP sessions in which links are attached for a device, named as in
// [Hub.Connections], and returns their number. An empty error is not sent.
func (h *Hub) EndSessions(device string, e AMQPError) int { return h.amqp.EndSessions(device, e) }

// CloseAMQP closes the AMQP connections of a device, named as in [Hub.Connections], and returns
// their number. An empty error is not sent.
func (h *Hub) CloseAMQP(device string, e AMQPError) int { return h.amqp.CloseAMQP(device, e) }

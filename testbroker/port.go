package testbroker

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"

	"github.com/hubline-iot/hubline/testbroker/internal/hub"
)

// Port says what the hub speaks where connections come in. It is not a number of TCP.
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
	// PortHTTPS is the same over TLS, 443 at the service; the client chooses between HTTP/1.1 and
	// HTTP/2 in the handshake.
	PortHTTPS = hub.PortHTTPS
)

// Dial returns a function that connects to a port of the hub in memory. It returns the client's end
// of the connection; TLS and the request for a WebSocket are up to the caller: see [Hub.ClientTLS].
// Network and address only appear in errors and as the remote address. The function's signature is
// that of [net.Dialer.DialContext].
func (h *Hub) Dial(p Port) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return h.hub.Dial(p)
}

// Listen opens a port on a real address, for example "127.0.0.1:0", and returns the address with
// its number. The certificate of ports with TLS is for the hub's host name, the same behind
// "store.", "localhost" and the addresses 127.0.0.1 and ::1; [Hub.RootCAs] trusts it.
func (h *Hub) Listen(p Port, addr string) (net.Addr, error) { return h.hub.Listen(p, addr) }

// ErrSlowReader is the cause of a connection's end when its client did not read what the hub sent.
var ErrSlowReader = hub.ErrSlowReader

// RootCAs returns a pool that trusts the hub's certificate and nothing else.
func (h *Hub) RootCAs() *x509.CertPool { return h.hub.RootCAs() }

// CAPEM returns the certificate that signed the hub's own, in PEM.
func (h *Hub) CAPEM() []byte { return h.hub.CAPEM() }

// ClientTLS returns the configuration of a client that trusts this hub and expects its host name.
func (h *Hub) ClientTLS() *tls.Config { return h.hub.ClientTLS() }

// PresentName makes the hub present a certificate for another host name, and for that only, from
// the next handshake on. Empty means its own names again.
func (h *Hub) PresentName(host string) error { return h.hub.PresentName(host) }

// SendRaw sends bytes as they are to the established connections of a device, named as in
// [Hub.Connections], between two packets of the hub. It returns the number of connections. With it
// a test says at any moment what no hub would say: half a packet, a length that is not true, an
// acknowledgement of something that was never sent.
func (h *Hub) SendRaw(device string, p []byte) int { return h.hub.SendRaw(device, p) }

// Links returns how many links of a kind over AMQP are attached for a device, named as in
// [Hub.Connections]. [LinkAny] counts all but those that carry tokens.
func (h *Hub) Links(device string, kind LinkKind) int { return h.amqp.Links(device, kind) }

// DetachLinks detaches the links of a kind over AMQP that are attached for a device, named as in
// [Hub.Connections], with an error unless it is empty. It returns how many they were.
func (h *Hub) DetachLinks(device string, kind LinkKind, e AMQPError) int {
	return h.amqp.DetachLinks(device, kind, e)
}

// EndSessions ends the sessions in which links over AMQP are attached for a device, named as in
// [Hub.Connections], with an error unless it is empty. It returns how many they were.
func (h *Hub) EndSessions(device string, e AMQPError) int { return h.amqp.EndSessions(device, e) }

// CloseAMQP closes the connections over AMQP of a device, named as in [Hub.Connections], with an
// error unless it is empty. It returns how many they were.
func (h *Hub) CloseAMQP(device string, e AMQPError) int { return h.amqp.CloseAMQP(device, e) }

// Package websocket carries MQTT and AMQP over WebSocket, for networks that allow only HTTPS.
//
//	t := mqtt.New(&mqtt.Options{Network: netopt.Options{Tunnel: websocket.MQTT(nil)}})
//	t := amqp.New(&amqp.Options{Network: netopt.Options{Tunnel: websocket.AMQP(nil)}})
//
// It connects to wss://HOST:443/$iothub/websocket. It is a separate package because it links
// net/http. mqtt.ParseBroker takes URLs with ws and wss in programs that import it.
//
// # Errors
//
// A response other than the upgrade is a *transport.StatusError within the *transport.Error of the
// failed Dial. Its Retry-After is kept. Kind is
//
//   - Unauthorized for 401;
//   - Forbidden for 402, 403 and 451;
//   - NotFound for 404 and 410;
//   - Timeout for 408 and 504;
//   - Throttled for 429;
//   - Unsupported for 426, 501 and 505;
//   - Protocol for 400, 405, 406, 407, redirections, which are not followed, and all other codes
//     below 400, and for a web page with a code that is not retryable;
//   - Unknown for all other codes from 400 to 499;
//   - Unavailable for 500, 502, 503 and all other codes from 500.
//
// A server that does not speak HTTP or WebSocket, or does not agree to the protocol, is Protocol.
// Errors of the network, and of the hub within the tunnel, are the same as without the tunnel.
package websocket

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha1"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/hubline-iot/hubline/internal/brokerurl"
	"github.com/hubline-iot/hubline/internal/dialer"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// Options are the settings of a Tunnel. The zero value and nil suit a hub.
type Options struct {
	// Path is the path and query of the request, beginning with "/". Empty: "/$iothub/websocket", plus
	// "?iothub-no-client-cert=true" if the device has no client certificate.
	Path string
	// Header is added to the request, where only TLS protects it from readers. It is copied.
	Header http.Header
}

// protocol is the protocol inside WebSocket.
type protocol struct {
	name    string // in errors
	sub     string // the WebSocket subprotocol; the server may answer in another letter case
	example string // an example path of a broker other than a hub, for an error's text
}

// Tunnel is a protocol over WebSocket, for netopt.Options.Tunnel. It is safe for concurrent use.
type Tunnel struct {
	protocol protocol
	opt      Options
	err      error // returned by Open for wrong options
}

// MQTT returns a Tunnel for MQTT, 3.1.1 or 5, with a copy of the given options; nil means all
// defaults. Dial reports wrong options, with Kind Invalid.
func MQTT(o *Options) *Tunnel { return open(protocol{"MQTT", "mqtt", "/mqtt"}, o) }

// AMQP is as MQTT, for AMQP to a hub.
func AMQP(o *Options) *Tunnel { return open(protocol{"AMQP", "AMQPWSB10", "/amqp"}, o) }

// AMQPStandard is AMQP for brokers that require the subprotocol of the standard, "amqp".
func AMQPStandard(o *Options) *Tunnel { return open(protocol{"AMQP", "amqp", "/amqp"}, o) }

func init() {
	brokerurl.WebSocket = func(path string) netopt.Tunnel { return MQTT(&Options{Path: path}) }
}

func open(p protocol, o *Options) *Tunnel {
	t := &Tunnel{protocol: p}
	if o != nil {
		t.opt = Options{Path: o.Path, Header: o.Header.Clone()}
	}
	if _, err := url.Parse(t.opt.Path); err != nil || t.opt.Path != "" && t.opt.Path[0] != '/' ||
		strings.ContainsAny(t.opt.Path,
			"# ") {
		t.err = failed(transport.Invalid, errors.New("websocket options: Path is not the path of a URL; give one such as \""+
			p.example+"\""))
	}
	for name := range t.opt.Header {
		switch http.CanonicalHeaderKey(name) {
		case "Host", "Upgrade", "Connection", "Sec-Websocket-Key", "Sec-Websocket-Version", "Sec-Websocket-Extensions",
			"Sec-Websocket-Protocol":
			t.err = failed(transport.Invalid, errors.New("websocket options: Header sets "+name+
				", which is set by the protocol"))
		}
	}
	return t
}

var _ netopt.Tunnel = (*Tunnel)(nil)

// Port returns 443, or 80 without TLS.
func (t *Tunnel) Port(secure bool) string {
	if secure {
		return "443"
	}
	return "80"
}

const (
	// frameSize is the largest frame payload. The session's writes are no larger, so each one fits
	// into one frame.
	frameSize = 16 << 10
	readSize  = 4 << 10
	// maxAnswer bounds the answer to the request, including headers.
	maxAnswer = 64 << 10
)

// Open sends the request and returns the connection inside WebSocket. It does not watch ctx: the
// caller closes the connection when ctx ends.
func (t *Tunnel) Open(ctx context.Context, c net.Conn, peer netopt.Peer) (net.Conn, error) {
	if t.err != nil {
		return nil, t.err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+dialer.URLHost(peer.Host)+t.path(peer), nil)
	if err != nil {
		return nil, failed(transport.Protocol, &handshakeError{err})
	}
	key := make([]byte, 16)
	_, _ = rand.Read(key) // never fails
	text := base64.StdEncoding.EncodeToString(key)
	maps.Copy(request.Header, t.opt.Header)
	// in the letter case of the RFC, on which some servers depend
	maps.Copy(request.Header, http.Header{"Upgrade": {"websocket"}, "Connection": {"Upgrade"},
		"Sec-WebSocket-Version": {"13"}, "Sec-WebSocket-Key": {text}, "Sec-WebSocket-Protocol": {t.protocol.sub}})
	if err := request.Write(c); err != nil {
		return nil, &handshakeError{err}
	}
	below := &lower{Reader: c, room: maxAnswer}
	in := bufio.NewReaderSize(below, readSize)
	answer, err := http.ReadResponse(in, request)
	switch {
	case err != nil && below.err != nil:
		unanswered := dialer.First{Err: &handshakeError{below.err}, Want: "HTTP"}
		if _, secure := c.(*tls.Conn); !secure {
			unanswered.TLS = "wss"
		}
		return nil, unanswered
	case err != nil:
		return nil, failed(transport.Protocol, &handshakeError{err})
	case answer.StatusCode != http.StatusSwitchingProtocols:
		return nil, refusal(answer) // its body is not read: it may have no end
	}
	below.room = math.MaxInt64
	sum := sha1.Sum([]byte(text + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	h := answer.Header
	switch {
	case !strings.EqualFold(h.Get("Upgrade"), "websocket"),
		!strings.Contains(strings.ToLower(strings.Join(h.Values("Connection"), ",")), "upgrade"),
		h.Get("Sec-WebSocket-Accept") != base64.StdEncoding.EncodeToString(sum[:]):
		return nil, failed(transport.Protocol, &handshakeError{errors.New("bad handshake")})
	case h.Get("Sec-WebSocket-Extensions") != "":
		return nil, failed(transport.Protocol, &handshakeError{errors.New("the server chose an extension without an offer")})
	case !strings.EqualFold(h.Get("Sec-WebSocket-Protocol"), t.protocol.sub):
		return nil, failed(transport.Protocol, errors.New("the server did not agree to "+t.protocol.name+
			" over WebSocket; check host, port and path"))
	}
	return &conn{Conn: c, in: in, pongs: make(chan struct{}, 1)}, nil
}

// lower bounds the answer to the request, and records why it could not be read, as net/http mixes
// that with errors of its own.
type lower struct {
	io.Reader
	room int64 // remaining bytes
	err  error
}

func (l *lower) Read(p []byte) (int, error) {
	if l.room == 0 {
		return 0, errors.New("the answer is too long")
	}
	n, err := l.Reader.Read(p[:min(int64(len(p)), l.room)])
	l.room -= int64(n)
	l.err = err
	return n, err
}

func (t *Tunnel) path(peer netopt.Peer) string {
	switch {
	case t.opt.Path != "":
		return t.opt.Path
	case peer.ClientCertificate:
		return "/$iothub/websocket"
	}
	return "/$iothub/websocket?iothub-no-client-cert=true"
}

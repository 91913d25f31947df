// Package websock is a netopt.Tunnel over WebSocket, built on gorilla/websocket. Packages mqttws
// and amqpws export it for their protocols.
package websock

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/gorilla/websocket"

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

// Protocol is the protocol inside WebSocket.
type Protocol struct {
	// Name is the name in errors: "MQTT".
	Name string
	// Sub is the WebSocket subprotocol. The server may answer in another letter case.
	Sub string
	// Example is an example path of a broker other than a hub, for an error's text.
	Example string
}

// MQTT is MQTT 3.1.1, section 6, and MQTT 5.
var MQTT = Protocol{Name: "MQTT", Sub: "mqtt", Example: "/mqtt"}

// Tunnel is a protocol over WebSocket. It is safe for concurrent use.
type Tunnel struct {
	protocol Protocol
	opt      Options
	err      error // returned by Open for wrong options
}

// New returns a Tunnel with a copy of the given options; nil means all defaults. Open reports wrong
// options, with Kind Invalid.
func New(p Protocol, o *Options) *Tunnel {
	t := &Tunnel{protocol: p}
	if o != nil {
		t.opt = Options{Path: o.Path, Header: o.Header.Clone()}
	}
	if _, err := url.Parse(t.opt.Path); err != nil || t.opt.Path != "" && t.opt.Path[0] != '/' ||
		strings.ContainsAny(t.opt.Path,
			"# ") {
		t.err = failed(transport.Invalid, errors.New("websocket options: Path is not the path of a URL; give one such as \""+
			p.Example+"\""))
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

// buffers are lent to connections only while they write.
var buffers sync.Pool

// Open sends the request and returns the connection inside WebSocket.
func (t *Tunnel) Open(ctx context.Context, c net.Conn, peer netopt.Peer) (net.Conn, error) {
	if t.err != nil {
		return nil, t.err
	}
	below := &lower{Conn: c, room: maxAnswer}
	upgrade := websocket.Dialer{
		// The connection exists already, with TLS or without.
		NetDialContext:  func(context.Context, string, string) (net.Conn, error) { return below, nil },
		Subprotocols:    []string{t.protocol.Sub},
		ReadBufferSize:  readSize,
		WriteBufferSize: frameSize,
		WriteBufferPool: &buffers,
	}
	// The library uses only a context's deadline; the caller closes the connection when ctx ends.
	ws, answer, err := upgrade.DialContext(context.WithoutCancel(ctx), "ws://"+dialer.URLHost(peer.Host)+t.path(peer),
		t.opt.Header)
	readErr, writeErr := below.failures()
	switch {
	case err == nil:
	case answer != nil && answer.StatusCode != http.StatusSwitchingProtocols:
		return nil, refusal(answer)
	case readErr != nil:
		return nil, dialer.First{Err: &handshakeError{readErr}, Want: "HTTP"}
	case writeErr != nil:
		return nil, &handshakeError{writeErr}
	default:
		return nil, failed(transport.Protocol, &handshakeError{err})
	}
	if !strings.EqualFold(ws.Subprotocol(), t.protocol.Sub) {
		return nil, failed(transport.Protocol, errors.New("the server did not agree to "+t.protocol.Name+
			" over WebSocket; check host, port and path"))
	}
	below.room = -1
	w := &conn{Conn: c, below: below, ws: ws, pongs: make(chan struct{}, 1)}
	ws.SetPingHandler(w.pinged)
	ws.SetCloseHandler(func(int, string) error { return nil }) // the library's default would write within Read
	return w, nil
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

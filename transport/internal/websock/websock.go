// Package websock carries a protocol of devices over WebSocket, as a hub has it, on the library
// gorilla/websocket. Packages mqttws and amqpws make it what devices use.
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

	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// Options are the settings of a Tunnel. The zero value and nil are right for a hub.
type Options struct {
	// Path is the path and query of the request, beginning with "/". Empty: "/$iothub/websocket", with
	// "?iothub-no-client-cert=true" unless a client certificate is at hand.
	Path string
	// Header is added to the request, which shows it readable below TLS only. It is copied.
	Header http.Header
}

// Protocol is what goes over WebSocket.
type Protocol struct {
	// Name is for errors: "MQTT".
	Name string
	// Sub is the name as a subprotocol. What the server agrees to may be in another letter case.
	Sub string
	// Example is a path of a broker that is no hub, for an error's text.
	Example string
}

// Tunnel is a protocol over WebSocket. It is safe for concurrent use.
type Tunnel struct {
	protocol Protocol
	opt      Options
	err      error // what Open returns for wrong options
}

// New returns a Tunnel with the given options, which are copied; nil means all defaults. Wrong
// options are reported by Dial, with Kind Invalid.
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

// Port returns 443, without TLS 80.
func (t *Tunnel) Port(secure bool) string {
	if secure {
		return "443"
	}
	return "80"
}

const (
	// frameSize is the most that goes into a frame. The session writes no more than this at a time, so
	// its writes are not cut.
	frameSize = 16 << 10
	readSize  = 4 << 10
	// maxAnswer is the longest answer to the request, headers and all.
	maxAnswer = 64 << 10
)

// buffers are lent to connections while they write, not while they are idle.
var buffers sync.Pool

// Open sends the request and returns the connection, for the engine.
func (t *Tunnel) Open(ctx context.Context, c net.Conn, peer netopt.Peer) (net.Conn, error) {
	if t.err != nil {
		return nil, t.err
	}
	below := &lower{Conn: c, room: maxAnswer}
	dialer := websocket.Dialer{
		// There is a connection already, with TLS as it may be.
		NetDialContext:  func(context.Context, string, string) (net.Conn, error) { return below, nil },
		Subprotocols:    []string{t.protocol.Sub},
		ReadBufferSize:  readSize,
		WriteBufferSize: frameSize,
		WriteBufferPool: &buffers,
	}
	// The library looks at a context's deadline only; the caller closes the connection when ctx ends.
	ws, answer, err := dialer.DialContext(context.WithoutCancel(ctx), "ws://"+peer.Host+t.path(peer), t.opt.Header)
	readErr, writeErr := below.failures()
	switch {
	case err == nil:
	case answer != nil && answer.StatusCode != http.StatusSwitchingProtocols:
		return nil, refusal(answer)
	case readErr != nil:
		return nil, &handshakeError{readErr}
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
	ws.SetCloseHandler(func(int, string) error { return nil }) // the library's own would write within Read
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

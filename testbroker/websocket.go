package testbroker

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

const (
	webPath     = "/$iothub/websocket"
	webProtocol = "mqtt" // in any letter case
	webAMQP     = "AMQPWSB10"
	maxRequest  = 64 << 10 // bytes of the request that asks for a WebSocket
)

// DialWS is like [Hub.Dial], but at the other end the hub waits for the request of HTTP that asks for a WebSocket: path
// "/$iothub/websocket" with or without a query, subprotocol "mqtt" in any letter case, or "AMQPWSB10" for AMQP. The request is up to the caller.
func (h *Hub) DialWS(ctx context.Context, network, addr string) (net.Conn, error) {
	return h.dial(ctx, network, addr, port{web: true})
}

// DialWSPort is like [Hub.DialWS] with TLS below: the hub waits for a handshake, then for the request.
func (h *Hub) DialWSPort(ctx context.Context, network, addr string) (net.Conn, error) {
	return h.dial(ctx, network, addr, port{secure: true, web: true})
}

// ListenWS opens a port on which the hub speaks MQTT over WebSocket over TLS. See [Hub.ListenTLS] and [Hub.DialWS].
func (h *Hub) ListenWS(addr string) (net.Addr, error) {
	return h.listen(addr, port{secure: true, web: true})
}

// upgrade reads the request and makes the connection a WebSocket, or answers with an error and ends it.
func (h *Hub) upgrade(c *conn) error {
	below := &gate{Conn: c.stream, c: c, left: maxRequest}
	in := bufio.NewReader(below)
	request, err := http.ReadRequest(in)
	answer := &response{conn: below, rw: bufio.NewReadWriter(in, bufio.NewWriter(below)), header: make(http.Header)}
	if err != nil {
		if c.mode.Load() != open || errors.Is(err, io.EOF) || errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		http.Error(answer, "not a request", http.StatusBadRequest)
	} else {
		err = h.upgradeFor(c, below, answer, request)
	}
	if err != nil {
		err = fmt.Errorf("request for a WebSocket: %w", err)
		answer.send()
		c.farewell(err)
		c.drain()
	}
	return err
}

func (h *Hub) upgradeFor(c *conn, below *gate, answer *response, request *http.Request) error {
	if request.URL.Path != webPath {
		http.NotFound(answer, request)
		return fmt.Errorf("path %q", request.URL.Path)
	}
	offered := websocket.Subprotocols(request)
	pick := func(name string) string {
		i := slices.IndexFunc(offered, func(p string) bool { return strings.EqualFold(p, name) })
		if i < 0 {
			return ""
		}
		return offered[i]
	}
	protocol := ""
	if !c.port.amqp {
		protocol = pick(webProtocol)
	}
	if protocol == "" {
		protocol = pick(webAMQP)
		c.port.amqp = true
	}
	if protocol == "" {
		http.Error(answer, "subprotocol", http.StatusBadRequest)
		return fmt.Errorf("subprotocols %q", offered)
	}
	u := websocket.Upgrader{CheckOrigin: func(*http.Request) bool { return true }}
	ws, err := u.Upgrade(answer, request, http.Header{"Sec-Websocket-Protocol": {protocol}})
	if err != nil {
		return err
	}
	below.left = -1
	c.stream = &webStream{Conn: below, ws: ws, frame: h.wsFrame}
	return nil
}

// A gate is what a WebSocket is spoken on. A dead link answers no ping either. The broker alone sets deadlines.
type gate struct {
	net.Conn
	c    *conn
	left int // bytes that may still be read; negative = no limit
}

// Read waits for bytes.
func (g *gate) Read(p []byte) (int, error) {
	if g.left == 0 {
		return 0, errors.New("request too long")
	}
	if g.left > 0 {
		p = p[:min(len(p), g.left)]
	}
	n, err := g.Conn.Read(p)
	if g.left > 0 {
		g.left -= n
	}
	return n, err
}

// Write sends bytes or lets them vanish.
func (g *gate) Write(p []byte) (int, error) {
	if g.c.mode.Load() == silent {
		return len(p), nil
	}
	return g.Conn.Write(p)
}

// CloseWrite ends TLS, if there is any; who calls it ends what is below.
func (g *gate) CloseWrite() error {
	if g.Conn == g.c.raw {
		return nil
	}
	return g.Conn.(interface{ CloseWrite() error }).CloseWrite()
}

// SetDeadline does nothing.
func (g *gate) SetDeadline(time.Time) error { return nil }

// SetReadDeadline does nothing.
func (g *gate) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline does nothing.
func (g *gate) SetWriteDeadline(time.Time) error { return nil }

// A webStream is the stream of bytes in the binary frames of a WebSocket. Where frames begin means nothing.
type webStream struct {
	net.Conn // for addresses
	ws       *websocket.Conn
	frame    int // bytes of a frame at most, 0 = no limit

	// Of the reader.
	message io.Reader
	err     error // that ended reading

	mu sync.Mutex // one writer at a time
}

// Read waits for bytes. The end of the WebSocket is the end of the stream.
func (s *webStream) Read(p []byte) (int, error) {
	for s.err == nil {
		if s.message == nil {
			s.message, s.err = s.next()
			continue
		}
		n, err := s.message.Read(p)
		if err != nil {
			s.message = nil
			if err != io.EOF {
				s.err = ended(err)
			}
		}
		if n > 0 {
			return n, nil
		}
	}
	return 0, s.err
}

func (s *webStream) next() (io.Reader, error) {
	kind, r, err := s.ws.NextReader()
	if err != nil {
		return nil, ended(err)
	}
	if kind != websocket.BinaryMessage {
		s.sayClose(websocket.CloseUnsupportedData)
		return nil, errors.New("frame of text")
	}
	return r, nil
}

// ended makes the client's close frame, or its lack, the end of a stream.
func ended(err error) error {
	var closed *websocket.CloseError
	if errors.As(err, &closed) {
		return io.EOF
	}
	return err
}

// Write sends p in frames.
func (s *webStream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n := 0; n < len(p); {
		part := p[n:]
		if s.frame > 0 {
			part = part[:min(len(part), s.frame)]
		}
		if err := s.ws.WriteMessage(websocket.BinaryMessage, part); err != nil {
			return n, err
		}
		n += len(part)
	}
	return len(p), nil
}

func (s *webStream) sayClose(code int) {
	s.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, ""), time.Now().Add(farewellLimit))
}

// CloseWrite says that nothing will follow.
func (s *webStream) CloseWrite() error {
	s.sayClose(websocket.CloseNormalClosure)
	return s.Conn.(*gate).CloseWrite()
}

// Close says that nothing will follow and ends the connection.
func (s *webStream) Close() error {
	s.sayClose(websocket.CloseNormalClosure)
	return s.Conn.Close()
}

// A response collects the answer to a request that is not granted.
type response struct {
	conn   net.Conn
	rw     *bufio.ReadWriter
	header http.Header
	status int
	body   []byte
}

var _ http.Hijacker = (*response)(nil)

// Header is that of the response.
func (r *response) Header() http.Header { return r.header }

// WriteHeader sets the status.
func (r *response) WriteHeader(status int) { r.status = status }

// Write adds to the body.
func (r *response) Write(p []byte) (int, error) {
	r.body = append(r.body, p...)
	return len(p), nil
}

// Hijack gives the connection away.
func (r *response) Hijack() (net.Conn, *bufio.ReadWriter, error) { return r.conn, r.rw, nil }

// send writes the response, if there is one.
func (r *response) send() {
	if r.status == 0 {
		return
	}
	answer := http.Response{
		StatusCode: r.status, ProtoMajor: 1, ProtoMinor: 1, Header: r.header, Close: true,
		ContentLength: int64(len(r.body)), Body: io.NopCloser(strings.NewReader(string(r.body))),
	}
	answer.Write(r.conn)
}

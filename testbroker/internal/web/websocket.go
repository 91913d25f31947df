package web

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
)

const (
	webPath     = "/$iothub/websocket"
	webProtocol = "mqtt" // in any letter case
	webAMQP     = "AMQPWSB10"
)

// upgrade makes a connection over HTTP a WebSocket, or answers with an error.
func (a *Conn) upgrade(w http.ResponseWriter, r *http.Request) error {
	c := a.C
	offered := websocket.Subprotocols(r)
	pick := func(name string) string {
		i := slices.IndexFunc(offered, func(p string) bool { return strings.EqualFold(p, name) })
		if i < 0 {
			return ""
		}
		return offered[i]
	}
	protocol, next := pick(webProtocol), hub.MQTT
	if protocol == "" {
		protocol, next = pick(webAMQP), hub.AMQP
	}
	if protocol == "" {
		http.Error(w, "subprotocol", http.StatusBadRequest)
		return fmt.Errorf("subprotocols %q", offered)
	}
	u := websocket.Upgrader{CheckOrigin: func(*http.Request) bool { return true }}
	taken := &hijacker{ResponseWriter: w}
	ws, err := u.Upgrade(taken, r, http.Header{"Sec-Websocket-Protocol": {protocol}})
	if err != nil {
		if taken.conn != nil {
			a.end()
		}
		return err
	}
	a.next = next
	c.Stream = &webStream{Conn: taken.conn, ws: ws, frame: a.Hub.WsFrame}
	close(a.upgraded)
	return nil
}

// A hijacker takes a connection from the server and puts an upgradedConn on it.
type hijacker struct {
	http.ResponseWriter
	conn *upgradedConn
}

var _ http.Hijacker = (*hijacker)(nil)

// Hijack gives the connection away.
func (t *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(t.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	conn.SetDeadline(time.Time{})
	t.conn = &upgradedConn{conn}
	return t.conn, rw, nil
}

// An upgradedConn is what a WebSocket is spoken on. A dead link answers no ping either. The broker
// alone sets deadlines.
type upgradedConn struct{ net.Conn }

// CloseWrite ends TLS, if there is any; who calls it ends what is below.
func (g *upgradedConn) CloseWrite() error {
	if s, ok := g.Conn.(*tls.Conn); ok {
		return s.CloseWrite()
	}
	return nil
}

// SetDeadline does nothing.
func (g *upgradedConn) SetDeadline(time.Time) error { return nil }

// SetReadDeadline does nothing.
func (g *upgradedConn) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline does nothing.
func (g *upgradedConn) SetWriteDeadline(time.Time) error { return nil }

// A webStream is the stream of bytes in the binary frames of a WebSocket. Where frames begin means
// nothing.
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
	s.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, ""), time.Now().Add(hub.CloseLimit))
}

// CloseWrite reports that nothing will follow.
func (s *webStream) CloseWrite() error {
	s.sayClose(websocket.CloseNormalClosure)
	return s.Conn.(*upgradedConn).CloseWrite()
}

// Close reports that nothing will follow and ends the connection.
func (s *webStream) Close() error {
	s.sayClose(websocket.CloseNormalClosure)
	return s.Conn.Close()
}

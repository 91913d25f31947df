package web

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
)

// A webChoice is a protocol over WebSocket, and its names in any letter case.
type webChoice struct {
	protocol hubdata.Protocol
	names    []string
}

var (
	webMQTT = webChoice{hubdata.MQTT, []string{"mqtt"}}
	webAMQP = webChoice{hubdata.AMQP, []string{"AMQPWSB10"}}
)

// webPaths are the paths of WebSockets, and their protocols in the order of preference.
var webPaths = map[string][]webChoice{
	"/$iothub/websocket": {webMQTT, webAMQP},
	// Clients of Event Hubs; some add the slash.
	"/$servicebus/websocket":  {eventsAMQP},
	"/$servicebus/websocket/": {eventsAMQP},
}

// eventsAMQP is AMQP for clients of Event Hubs, some of which use the name of the standard.
var eventsAMQP = webChoice{hubdata.AMQP, []string{"AMQPWSB10", "amqp"}}

// brokerPath is the path of a plain broker, besides those of webPaths.
const brokerPath = "/mqtt"

// webChoices returns the protocols of a request's path; nil if it is none of a WebSocket.
func (a *Conn) webChoices(r *http.Request) []webChoice {
	path, err := url.PathUnescape(r.URL.EscapedPath())
	switch {
	case err != nil:
		return nil
	case path == brokerPath && a.Hub.PlainTopic != nil:
		return []webChoice{webMQTT}
	}
	return webPaths[path]
}

// pick returns the first choice that a client offers and the hub has, and the client's name for it.
func (a *Conn) pick(choices []webChoice, offered []string) (name string, p hubdata.Protocol) {
	for _, choice := range choices {
		for _, name := range offered {
			known := func(one string) bool { return strings.EqualFold(one, name) }
			if a.Hub.Fronts[choice.protocol] != nil && slices.ContainsFunc(choice.names, known) {
				return name, choice.protocol
			}
		}
	}
	return "", 0
}

// upgrade makes a connection over HTTP a WebSocket, or returns why it cannot.
func (a *Conn) upgrade(w http.ResponseWriter, r *http.Request, choices []webChoice) error {
	c := a.C
	offered := websocket.Subprotocols(r)
	protocol, next := a.pick(choices, offered)
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
	c.Stream = &webStream{Conn: taken.conn, ws: ws, frame: a.Hub.WebSocketFrame}
	close(a.upgraded)
	return nil
}

// A hijacker hijacks the connection from the server and wraps it in an upgradedConn.
type hijacker struct {
	http.ResponseWriter
	conn *upgradedConn
}

var _ http.Hijacker = (*hijacker)(nil)

// Hijack hijacks the connection.
func (t *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(t.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	conn.SetDeadline(time.Time{})
	t.conn = &upgradedConn{conn}
	return t.conn, rw, nil
}

// An upgradedConn carries a WebSocket. Writes on a half-open connection vanish, pongs included.
// Only the broker sets deadlines.
type upgradedConn struct{ net.Conn }

// CloseWrite ends TLS, if there is any. The caller ends the connection below.
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

// A webStream is the byte stream in the binary frames of a WebSocket. Frame boundaries have no
// meaning.
type webStream struct {
	net.Conn // only for addresses
	ws       *websocket.Conn
	frame    int // maximum bytes of a frame, 0 = no limit

	// Used only by the reader.
	message io.Reader
	err     error // the error that ended reading

	mu sync.Mutex // one writer at a time
}

// Read reads from the stream. It returns io.EOF at the end of the WebSocket.
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

// ended converts the client's close frame, or its absence, to the end of a stream.
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

// CloseWrite sends a close frame and ends the outgoing direction.
func (s *webStream) CloseWrite() error {
	s.sayClose(websocket.CloseNormalClosure)
	return s.Conn.(*upgradedConn).CloseWrite()
}

// Close sends a close frame and ends the connection.
func (s *webStream) Close() error {
	s.sayClose(websocket.CloseNormalClosure)
	return s.Conn.Close()
}

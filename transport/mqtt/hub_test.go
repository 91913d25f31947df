package mqtt

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// Packet types of MQTT 3.1.1, section 2.2.1.
const (
	typeConnack    = byte(mqttwire.Connack)
	typeDisconnect = byte(mqttwire.Disconnect)
)

const testKey = "c2VjcmV0LWtleS1vZi10aGUtdGVzdHM=" // base64 of "secret-key-of-the-tests"

func testCreds(t testing.TB) *transport.Credentials {
	sign, err := transport.SharedKey(testKey)
	require.NoError(t, err)
	return &transport.Credentials{Host: "hub.example.test", DeviceID: "dev-1", Sign: sign}
}

// bubble runs f with fake time. All goroutines of f must have ended when it returns.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	testkit.Bubble(t, f)
}

// packet is one MQTT packet as the scripted hub sees it.
type packet struct {
	kind byte
	body []byte
}

// link is the scripted hub's end of a connection. It does not use an MQTT library, so no bug can
// hide in both ends.
type link struct {
	t testing.TB
	net.Conn
	r *bufio.Reader
}

func newLink(t testing.TB, c net.Conn) *link { return &link{t, c, bufio.NewReader(c)} }

// next reads a packet; io.EOF is an orderly end between packets.
func (l *link) next() (packet, error) {
	first, err := l.r.ReadByte()
	if err != nil {
		return packet{}, err
	}
	size, err := binary.ReadUvarint(l.r) // the remaining length has the same form
	if err != nil {
		return packet{}, err
	}
	p := packet{kind: first >> 4, body: make([]byte, size)}
	_, err = io.ReadFull(l.r, p.body)
	return p, err
}

// expect reads a packet of the given type.
func (l *link) expect(kind byte) packet {
	l.t.Helper()
	p, err := l.next()
	require.NoError(l.t, err)
	require.Equal(l.t, kind, p.kind, "packet type")
	return p
}

// send writes bytes as they are.
func (l *link) send(b ...byte) {
	l.t.Helper()
	_, err := l.Write(b)
	require.NoError(l.t, err)
}

// hub is a scripted hub in memory.
type hub struct {
	t    testing.TB
	net  *memconn.Network
	wrap func(net.Conn) net.Conn
}

func newHub(t testing.TB) *hub {
	h := &hub{t: t, net: memconn.NewNetwork("hub.example.test:8883"), wrap: func(c net.Conn) net.Conn { return c }}
	t.Cleanup(func() { _ = h.net.Close() })
	return h
}

// options returns options that reach the hub without TLS.
func (h *hub) options() *Options {
	return &Options{Network: netopt.Options{Plaintext: true, Dial: h.net.DialContext}}
}

// accept accepts a connection and reads its CONNECT.
func (h *hub) accept() *link {
	c, err := h.net.Accept()
	require.NoError(h.t, err)
	l := newLink(h.t, h.wrap(c))
	l.expect(1)
	return l
}

// welcome is accept followed by a CONNACK with code 0.
func (h *hub) welcome() *link {
	l := h.accept()
	l.send(typeConnack<<4, 2, 0, 0)
	return l
}

// sink records what a session reports.
type sink struct {
	mu       sync.Mutex
	done     []result
	replies  []transport.Reply
	messages []transport.Message
	ended    bool // Run has returned
	late     int  // calls after that
}

type result struct {
	tag uint16
	err error
}

func (s *sink) enter() func() {
	s.mu.Lock()
	if s.ended {
		s.late++
	}
	return s.mu.Unlock
}

func (s *sink) Done(tag uint16, err error) {
	defer s.enter()()
	s.done = append(s.done, result{tag, err})
}

func (s *sink) Reply(_ uint32, r transport.Reply) {
	defer s.enter()()
	s.replies = append(s.replies, r)
}

func (s *sink) Deliver(d *transport.Delivery) bool {
	defer s.enter()()
	m := *d.Msg
	m.Body = append([]byte(nil), m.Body...)
	s.messages = append(s.messages, m)
	return true
}

// running is a session with its Run on a goroutine.
type running struct {
	transport.Session
	sink   *sink
	ran    chan error // gets Run's error
	cancel context.CancelFunc
}

// dial dials while script, if not nil, plays the hub on another goroutine.
func dial(t testing.TB, o *Options, script func()) (transport.Session, *sink, context.Context, context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	played := make(chan struct{})
	go func() {
		defer close(played)
		if script != nil {
			script()
		}
	}()
	k := new(sink)
	s, err := New(o).Dial(ctx, &transport.Config{Creds: testCreds(t), Window: 16, Queue: 16, Sink: k})
	<-played
	require.NoError(t, err)
	return s, k, ctx, cancel
}

// start dials the hub and runs the session.
func start(t testing.TB, h *hub, o *Options) (*running, *link) {
	t.Helper()
	var l *link
	s, k, ctx, cancel := dial(t, o, func() { l = h.welcome() })
	return run(t, s, k, ctx, cancel), l
}

func run(t testing.TB, s transport.Session, k *sink, ctx context.Context, cancel context.CancelFunc) *running {
	r := &running{s, k, make(chan error, 1), cancel}
	go func() {
		err := s.Run(ctx)
		k.mu.Lock()
		k.ended = true
		k.mu.Unlock()
		r.ran <- err
	}()
	t.Cleanup(func() {
		cancel()
		for !k.isEnded() {
			time.Sleep(time.Millisecond)
		}
		if k.late > 0 {
			t.Errorf("%d calls of the sink after Run had returned", k.late)
		}
	})
	return r
}

func (s *sink) isEnded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// send sends bodies under the tags 0, 1, ...
func (r *running) send(bodies ...string) {
	items := make([]transport.Item, len(bodies))
	for i, b := range bodies {
		items[i] = transport.Item{Tag: uint16(i), Msg: &transport.Message{Body: []byte(b)}}
	}
	r.Send(items)
}

// drain reads l until its end and returns the packets and the error at the end.
func (l *link) drain() (packets []packet, err error) {
	for {
		p, err := l.next()
		if err != nil {
			return packets, err
		}
		packets = append(packets, p)
	}
}

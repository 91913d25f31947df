package engine

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
)

func testCreds(t testing.TB) *transport.Credentials {
	sign, err := transport.SharedKey("c2VjcmV0LWtleS1vZi10aGUtdGVzdHM=") // "secret-key-of-the-tests"
	require.NoError(t, err)
	return &transport.Credentials{Host: "hub.example.test", DeviceID: "dev-1", Sign: sign}
}

// hubSession returns the dialect of a hub for the device of testCreds.
func hubSession(t testing.TB) dialect.Session {
	d, _, err := dialect.Hub.Session(&dialect.Config{Creds: testCreds(t)})
	require.NoError(t, err)
	return d
}

// bubble runs f with fake time. All goroutines of f must have ended when it returns.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	testkit.Bubble(t, f)
}

// got is one packet as the scripted hub sees it.
type got struct {
	first byte
	body  []byte
}

func (p got) topic() string { return string(p.body[2 : 2+binary.BigEndian.Uint16(p.body)]) }

// rest returns the bytes behind the topic of a PUBLISH: with QoS 1 its packet id, then the payload.
func (p got) rest() string { return string(p.body[2+binary.BigEndian.Uint16(p.body):]) }

// link is the scripted hub's end of a connection. It does not use the codec, so no bug can hide in
// both ends.
type link struct {
	t testing.TB
	net.Conn
	r *bufio.Reader
}

func newLink(t testing.TB, c net.Conn) *link { return &link{t, c, bufio.NewReader(c)} }

// next reads a packet; io.EOF is an orderly end between packets.
func (l *link) next() (got, error) {
	first, err := l.r.ReadByte()
	if err != nil {
		return got{}, err
	}
	size, err := binary.ReadUvarint(l.r) // the remaining length has the same form
	if err != nil {
		return got{}, err
	}
	p := got{first: first, body: make([]byte, size)}
	_, err = io.ReadFull(l.r, p.body)
	return p, err
}

// expect reads a packet with the given first byte.
func (l *link) expect(first byte) got {
	l.t.Helper()
	p, err := l.next()
	require.NoError(l.t, err)
	require.Equal(l.t, first, p.first, "first byte")
	return p
}

// send writes bytes as they are.
func (l *link) send(b ...byte) {
	l.t.Helper()
	_, err := l.Write(b)
	require.NoError(l.t, err)
}

func (l *link) puback(id uint16) { l.send(0x40, 2, byte(id>>8), byte(id)) }

// drain reads l until its end and returns the packets and the error at the end.
func (l *link) drain() (packets []got, err error) {
	for {
		p, err := l.next()
		if err != nil {
			return packets, err
		}
		packets = append(packets, p)
	}
}

// publishBytes returns a PUBLISH, with QoS 1 unless id is 0.
func publishBytes(topic string, id uint16, body string) []byte {
	var b []byte
	b = binary.BigEndian.AppendUint16(b, uint16(len(topic)))
	b = append(b, topic...)
	first := byte(0x30)
	if id != 0 {
		first |= 2
		b = binary.BigEndian.AppendUint16(b, id)
	}
	b = append(b, body...)
	return append(binary.AppendUvarint([]byte{first}, uint64(len(b))), b...)
}

// hub is a scripted hub in memory.
type hub struct {
	t    testing.TB
	net  *memconn.Network
	wrap func(Conn) Conn // around the device's end
	over atomic.Bool     // the test has ended
}

func newHub(t testing.TB) *hub {
	h := &hub{t: t, net: memconn.NewNetwork("hub.example.test:1883"), wrap: func(c Conn) Conn { return c }}
	t.Cleanup(func() {
		h.over.Store(true)
		_ = h.net.Close()
	})
	return h
}

func (h *hub) dial(ctx context.Context, _ *transport.Credentials) (Conn, error) {
	c, err := h.net.DialContext(ctx, "tcp", "hub.example.test:1883")
	if err != nil {
		return nil, err
	}
	return h.wrap(c), nil
}

// accept accepts a connection and reads its CONNECT. On a goroutine other than the test's it may
// outlive a test that failed before it dialed. It then ends the goroutine, since a test that has
// ended cannot fail.
func (h *hub) accept() (*link, got) {
	c, err := h.net.Accept()
	if h.over.Load() {
		runtime.Goexit()
	}
	require.NoError(h.t, err)
	l := newLink(h.t, c)
	return l, l.expect(0x10)
}

// welcome is accept followed by a CONNACK with code 0.
func (h *hub) welcome() *link {
	l, _ := h.accept()
	l.send(0x20, 2, 0, 0)
	return l
}

// sink records what a session reports.
type sink struct {
	unfit    []string // method calls whose body did not fit
	unasked  [][]byte // references of messages that no subscription asks for
	mu       sync.Mutex
	done     []result
	replies  []transport.Reply
	messages []transport.Message
	refs     [][]byte
	again    []bool
	full     bool // there is no room for messages
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
	if s.full && d.Kind&^transport.FeatureMessages == 0 {
		return false
	}
	if d.Msg == nil {
		s.unfit = append(s.unfit, string(d.Name)+" "+string(d.Ref))
		return true
	}
	if d.Kind == 0 {
		s.unasked = append(s.unasked, slices.Clone(d.Ref))
		return true
	}
	m := *d.Msg
	m.Properties = slices.Clone(m.Properties)
	if m.System != nil {
		own := *m.System
		m.System = &own
	}
	m.Body = slices.Clone(m.Body)
	s.messages = append(s.messages, m)
	s.refs = append(s.refs, slices.Clone(d.Ref))
	s.again = append(s.again, d.Redelivered)
	return true
}

// tags returns the tags that were done without error, in order.
func (s *sink) tags() []uint16 {
	s.mu.Lock()
	defer s.mu.Unlock()
	var tags []uint16
	for _, r := range s.done {
		if r.err == nil {
			tags = append(tags, r.tag)
		}
	}
	return tags
}

// running is a session with its Run on a goroutine.
type running struct {
	*session
	sink   *sink
	ran    chan error // gets Run's error
	cancel context.CancelFunc
}

// dialed dials while script plays the hub on another goroutine.
func dialed(t testing.TB, tr *Transport, script func()) (transport.Session, *sink, context.Context, context.CancelFunc,
	error) {
	t.Helper()
	return dialedAs(t, tr, testCreds(t), script)
}

// dialedAs is dialed with other credentials.
func dialedAs(t testing.TB, tr *Transport, creds *transport.Credentials, script func()) (transport.Session, *sink,
	context.Context, context.CancelFunc, error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	played := make(chan struct{})
	go func() {
		defer close(played)
		script()
	}()
	k := new(sink)
	s, err := tr.Dial(ctx, &transport.Config{Creds: creds, Window: 16, Queue: 16, Sink: k})
	<-played
	return s, k, withAfterFunc{ctx}, cancel, err
}

// withAfterFunc is a context like those of package lifetime. Dial gets a context without the
// method, so the tests cover both paths of lifetime.AfterFunc.
type withAfterFunc struct{ context.Context }

func (c withAfterFunc) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(c.Context, f) }

// start dials the hub and runs the session.
func start(t testing.TB, h *hub, tr *Transport) (*running, *link) {
	t.Helper()
	return begin(t, tr, h.welcome)
}

// begin dials while script plays the broker, and runs the session.
func begin(t testing.TB, tr *Transport, script func() *link) (*running, *link) {
	t.Helper()
	var l *link
	s, k, ctx, cancel, err := dialed(t, tr, func() { l = script() })
	require.NoError(t, err)
	r := &running{s.(*session), k, make(chan error, 1), cancel}
	ended := make(chan struct{})
	go func() {
		err := s.Run(ctx)
		k.mu.Lock()
		k.ended = true
		k.mu.Unlock()
		r.ran <- err
		close(ended)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		require.Zero(t, k.late, "calls of the sink after Run had returned")
	})
	return r, l
}

// send sends bodies under the tags 0, 1, ...
func (r *running) send(bodies ...string) {
	items := make([]transport.Item, len(bodies))
	for i, b := range bodies {
		items[i] = transport.Item{Tag: uint16(i), Msg: &transport.Message{Body: []byte(b)}}
	}
	r.Send(items)
}

// requireLoss waits for Run's end and checks its error.
func (r *running) requireLoss(t testing.TB, kind transport.Kind) error {
	t.Helper()
	err := <-r.ran
	e := transport.Find(err)
	require.NotNil(t, e, "%v", err)
	require.Equal(t, kind, e.Kind, "%v", err)
	require.Equal(t, transport.ScopeConnection, e.Scope)
	require.Equal(t, transport.OpRun, e.Op)
	require.Equal(t, "mqtt", e.Proto)
	return err
}

var errPulled = errors.New("cable pulled")

// counting counts the calls of a Conn.
type counting struct {
	Conn
	mu            sync.Mutex
	reads, writes int
	closes        int
	deadlines     []time.Time
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	if n > 0 {
		c.reads++
	}
	return n, err
}

func (c *counting) Write(p []byte) (int, error) {
	c.mu.Lock()
	c.writes++
	c.mu.Unlock()
	return c.Conn.Write(p)
}

func (c *counting) Close() error {
	c.mu.Lock()
	c.closes++
	c.mu.Unlock()
	return c.Conn.Close()
}

func (c *counting) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	c.deadlines = append(c.deadlines, t)
	c.mu.Unlock()
	return c.Conn.SetReadDeadline(t)
}

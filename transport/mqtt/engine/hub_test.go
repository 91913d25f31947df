package engine

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/hubfixture"
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

type (
	got  = testkit.MQTTPacket
	link = testkit.MQTTLink
	sink = hubfixture.Sink
)

// publishBytes returns a PUBLISH, with QoS 1 unless id is 0.
func publishBytes(topic string, id uint16, body string) []byte {
	if id == 0 {
		return packet(0x30, testkit.MQTTText(topic), body)
	}
	return packet(0x32, testkit.MQTTText(topic), string([]byte{byte(id >> 8), byte(id)}), body)
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
	l := testkit.NewMQTTLink(h.t, c)
	return l, l.Expect(0x10)
}

// welcome is accept followed by a CONNACK with code 0.
func (h *hub) welcome() *link {
	l, _ := h.accept()
	l.Send(0x20, 2, 0, 0)
	return l
}

// running is a session with its Run on a goroutine.
type running struct {
	*session
	sink   *sink
	ran    <-chan error // gets Run's error
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
	return &running{s.(*session), k, k.Run(t, ctx, s, cancel), cancel}, l
}

// send sends bodies under the tags 0, 1, ...
func (r *running) send(bodies ...string) { r.Send(hubfixture.Items(0, bodies...)) }

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

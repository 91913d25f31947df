package amqp_test

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// bubble runs f with fake time and a hub that knows "dev-1". All goroutines of f must have ended
// when it returns.
func bubble(t *testing.T, f func(t *testing.T, h *hub)) {
	t.Helper()
	testkit.In2030(t, func(t *testing.T) {
		f(t, newHub(t))
	})
}

// hub is the in-process hub, with a count of dials.
type hub struct {
	*hubfixture.Broker
	dials atomic.Int32
}

func newHub(t testing.TB) *hub { return &hub{Broker: hubfixture.New(t)} }

// smallHub allows AMQP sessions up to the channel number highest (channel-max), or many for 0. It
// knows no device.
func smallHub(t testing.TB, highest uint16) *hub {
	broker, err := testbroker.New(&testbroker.Options{AMQP: testbroker.AMQPOptions{ChannelMax: highest}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = broker.Close() })
	return &hub{Broker: &hubfixture.Broker{Hub: broker}}
}

// options returns options that reach the hub without TLS.
func (h *hub) options() *amqp.Options {
	return &amqp.Options{Network: netopt.Options{Plaintext: true, Dial: func(ctx context.Context, network,
		addr string) (net.Conn, error) {
		h.dials.Add(1)
		return h.Dial(testbroker.PortAMQP)(ctx, network, addr)
	}}}
}

// device adds a device and returns its credentials.
func (h *hub) device(t testing.TB, id string) *transport.Credentials {
	t.Helper()
	d, err := h.AddDevice(id)
	require.NoError(t, err)
	sign, err := transport.SharedKey(d.PrimaryKey)
	require.NoError(t, err)
	return &transport.Credentials{Host: d.HostName, DeviceID: id, Sign: sign}
}

// brokered returns creds for connections with Addresses: SASL PLAIN as the hub's user dev-1.
func (h *hub) brokered(t testing.TB, creds *transport.Credentials) *transport.Credentials {
	return asUser(t, creds, h.CredsWith(t, ""))
}

// asUser returns creds with the hub's user name of user, and a token of user.
func asUser(t testing.TB, creds, user *transport.Credentials) *transport.Credentials {
	t.Helper()
	token, err := user.NewToken(t.Context())
	require.NoError(t, err)
	own := *creds
	own.Sign, own.UserName, own.Token = nil, user.DeviceID+"@sas.hub", transport.FixedToken(token.Text.Reveal())
	return &own
}

type (
	sink   = hubfixture.Sink
	result = hubfixture.Result
)

// running is a session with its Run on a goroutine.
type running struct {
	transport.Session
	t      testing.TB
	sink   *sink
	cancel context.CancelFunc
	over   chan struct{} // closed after Run
	err    error         // of Run; valid after over
}

// tryStart dials and runs.
func tryStart(t testing.TB, tr transport.Transport, creds *transport.Credentials) (*running, error) {
	t.Helper()
	r := &running{t: t, sink: new(sink), over: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	var err error
	r.Session, err = tr.Dial(ctx, &transport.Config{Creds: creds, Window: 64, Queue: 8, Sink: r.sink})
	if err != nil {
		cancel()
		return nil, err
	}
	ran := r.sink.Run(t, ctx, r.Session, cancel)
	go func() {
		r.err = <-ran
		close(r.over)
	}()
	return r, nil
}

func start(t testing.TB, tr transport.Transport, creds *transport.Credentials) *running {
	t.Helper()
	r, err := tryStart(t, tr, creds)
	require.NoError(t, err)
	return r
}

// dev1 starts a session of "dev-1" on its own connection.
func (h *hub) dev1(t testing.TB, o *amqp.Options) *running {
	t.Helper()
	return start(t, amqp.New(o), h.CredsWith(t, ""))
}

// send sends bodies under the tags from first up.
func (r *running) send(first int, bodies ...string) { r.Send(hubfixture.Items(first, bodies...)) }

// forget removes the results.
func (r *running) forget() { r.sink.Set(func(k *sink) { k.Results = nil }) }

// outcome sends one message and returns its result, within d.
func (r *running) outcome(body string, d time.Duration) error {
	r.t.Helper()
	r.forget()
	r.send(7, body)
	for range 1000 {
		if all := r.sink.AllResults(); len(all) > 0 {
			require.Len(r.t, all, 1)
			require.Equal(r.t, uint16(7), all[0].Tag)
			return all[0].Err
		}
		time.Sleep(d / 1000)
	}
	r.t.Fatalf("no result for %q after %v", body, d)
	return nil
}

// requireSends sends one message and requires that it is accepted.
func (r *running) requireSends(body string) {
	r.t.Helper()
	require.NoError(r.t, r.outcome(body, time.Minute))
}

// ask starts a request and waits for its reply.
func (r *running) ask(q *transport.Request) transport.Reply {
	r.t.Helper()
	r.Do(q)
	for range 6000 {
		if reply, ok := r.sink.ReplyTo(q.ID); ok {
			return reply
		}
		time.Sleep(10 * time.Millisecond)
	}
	r.t.Fatalf("no reply to %v", q.Op)
	return transport.Reply{}
}

func (r *running) subscribe(id uint32) {
	r.t.Helper()
	require.NoError(r.t, r.ask(&transport.Request{ID: id, Op: transport.OpSubscribe, Want: transport.FeatureMessages}).Err)
}

// requireEnd waits for the error of Run and checks its Kind.
func (r *running) requireEnd(kind transport.Kind) *transport.Error {
	r.t.Helper()
	select {
	case <-r.over:
	case <-time.After(2 * time.Hour):
		r.t.Fatal("the session does not end")
	}
	e := transport.Find(r.err)
	require.NotNil(r.t, e)
	require.Equal(r.t, kind, e.Kind, "%v", e)
	require.Equal(r.t, transport.ScopeConnection, e.Scope)
	require.Equal(r.t, transport.OpRun, e.Op)
	return e
}

// requireAlive checks that the session has not ended.
func (r *running) requireAlive() {
	r.t.Helper()
	synctest.Wait()
	select {
	case <-r.over:
		r.t.Fatalf("the session ended: %v", r.err)
	default:
	}
}

// inject starts a fault.
func (h *hub) inject(f fault.Fault) *testbroker.Injected { return h.Inject(f) }

// filter is a connection that drops written frames unless pass accepts them. It works without TLS.
type filter struct {
	net.Conn
	pass func(channel uint16, p wire.Performative) bool
}

func (c *filter) Write(b []byte) (int, error) {
	var out []byte
	for rest := b; len(rest) > 0; {
		f, n, err := wire.Split(rest, 1<<20)
		if err != nil || n == 0 {
			out = append(out, rest...) // a protocol header without a frame
			break
		}
		pass := true
		if p, _, err := f.Performative(); err == nil && len(f.Body) > 0 {
			pass = c.pass(f.Channel, p)
		}
		if pass {
			out = append(out, rest[:n]...)
		}
		rest = rest[n:]
	}
	if _, err := c.Conn.Write(out); err != nil {
		return 0, err
	}
	return len(b), nil
}

// say sends frames of a peer.
func say(c net.Conn, channel uint16, frames ...wire.Performative) {
	for _, p := range frames {
		b, err := wire.AppendFrame(nil, channel, p, nil)
		if err != nil {
			panic(err)
		}
		_, _ = c.Write(b)
	}
}

// hello answers the header of a connection.
func hello(c net.Conn, id byte) {
	_, _ = io.ReadFull(c, make([]byte, wire.HeaderSize))
	header := wire.ProtocolHeader(id)
	_, _ = c.Write(header[:])
}

// listen calls handle for each frame that the device sends, until it returns false or the
// connection ends.
func listen(c net.Conn, handle func(channel uint16, p wire.Performative, payload []byte) bool) {
	var buf []byte
	part := make([]byte, 1<<16)
	for {
		f, n, err := wire.Split(buf, 1<<20)
		switch {
		case err != nil:
			return
		case n == 0:
			n, err := c.Read(part)
			if err != nil {
				return
			}
			buf = append(buf, part[:n]...)
			continue
		}
		if buf = buf[n:]; len(f.Body) == 0 {
			continue
		}
		if p, payload, err := f.Performative(); err != nil || !handle(f.Channel, p, payload) {
			return
		}
	}
}

// between returns options for connections to a peer, without TLS.
func between(peer func(c net.Conn)) netopt.Options {
	return netopt.Options{Plaintext: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		near, far := memconn.Pair("near", "far")
		go func() {
			defer far.Close()
			peer(far)
		}()
		return near, nil
	}}
}

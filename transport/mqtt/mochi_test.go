package mqtt_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	mochi "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
)

// dialFunc connects to the broker.
type dialFunc func(ctx context.Context) (net.Conn, error)

// options are the options that engines share.
type options struct {
	Dialect                  dialect.Dialect
	Will                     *transport.Message
	CleanSession, AtMostOnce bool
}

// engine is an engine under test.
type engine struct {
	// New returns a new Transport.
	New func(dial dialFunc, o options) transport.Transport
	// MQTT5: it speaks MQTT 5.
	MQTT5 bool
	// IDsFromOne: its SUBSCRIBEs have packet ids from 1 on. Mochi refuses a SUBSCRIBE with the id of a
	// message of its own that waits for its PUBACK, so the tests in which it has one are skipped.
	IDsFromOne bool
	// NoAnswers: it refuses handshakes with answers.
	NoAnswers bool
}

// broker is mochi with a log, in fake time.
type broker struct {
	mochi.HookBase
	t      *testing.T
	net    *memconn.Network
	server *mochi.Server
	serves sync.WaitGroup

	mu         sync.Mutex
	connects   []packets.Packet
	published  []packets.Packet // by devices
	subscribed []packets.Subscriptions
	password   string // that devices need, empty for none
	deaf       bool   // PUBLISH packets of devices are not answered
	denied     string // a filter that is refused
	conns      []net.Conn
}

const (
	host     = "broker.example.test"
	deviceID = "dev-1"
)

// with runs f in fake time with a broker.
func with(t *testing.T, f func(t *testing.T, b *broker)) {
	t.Helper()
	testkit.In2030(t, func(t *testing.T) {
		b := &broker{t: t, net: memconn.NewNetwork(host + ":1883")}
		b.server = mochi.New(&mochi.Options{InlineClient: true, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, b.server.AddHook(b, nil))
		b.serves.Go(func() {
			for {
				c, err := b.net.Accept()
				if err != nil {
					return
				}
				b.mu.Lock()
				b.conns = append(b.conns, c)
				b.mu.Unlock()
				b.serves.Go(func() {
					_ = b.server.EstablishConnection("memory", c)
					_ = c.Close()
				})
			}
		})
		defer b.close()
		f(t, b)
	})
}

func (b *broker) close() {
	_ = b.net.Close()
	for _, c := range b.conns {
		_ = c.Close()
	}
	b.serves.Wait()
	_ = b.server.Close()
	synctest.Wait()
}

func (b *broker) dial(ctx context.Context) (net.Conn, error) {
	return b.net.DialContext(ctx, "tcp", host+":1883")
}

// ID and Provides implement mochi.Hook.
func (b *broker) ID() string { return "log" }

func (b *broker) Provides(hook byte) bool {
	return bytes.Contains([]byte{mochi.OnConnectAuthenticate, mochi.OnACLCheck, mochi.OnConnect, mochi.OnPublish,
		mochi.OnSubscribed}, []byte{hook})
}

func (b *broker) OnConnectAuthenticate(_ *mochi.Client, p packets.Packet) bool {
	return b.password == string(p.Connect.Password)
}

func (b *broker) OnACLCheck(_ *mochi.Client, topic string, _ bool) bool { return topic != b.denied }

func (b *broker) OnConnect(_ *mochi.Client, p packets.Packet) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.connects = append(b.connects, p)
	return nil
}

func (b *broker) OnPublish(c *mochi.Client, p packets.Packet) (packets.Packet, error) {
	if c.Net.Inline {
		return p, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.deaf {
		return p, packets.ErrRejectPacket
	}
	b.published = append(b.published, p)
	return p, nil
}

func (b *broker) OnSubscribed(_ *mochi.Client, p packets.Packet, _ []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.subscribed = append(b.subscribed, p.Filters)
}

// send publishes a message as another client.
func (b *broker) send(topic, body string, qos byte) {
	b.t.Helper()
	require.NoError(b.t, b.server.Publish(topic, []byte(body), false, qos))
}

// log returns what devices published since the last call: "topic body", with " QoS 0" or "
// retained" behind it.
func (b *broker) log() (out []string) {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.published {
		line := p.TopicName + " " + string(p.Payload)
		if p.FixedHeader.Qos == 0 {
			line += " QoS 0"
		}
		if p.FixedHeader.Retain {
			line += " retained"
		}
		out = append(out, line)
	}
	b.published = nil
	return out
}

// pull cuts the connection of the latest device.
func (b *broker) pull() {
	synctest.Wait()
	b.net.Last().Reset()
	synctest.Wait()
}

// inFlight returns the number of messages that the device has not acknowledged.
func (b *broker) inFlight(client string) int {
	synctest.Wait()
	c, ok := b.server.Clients.Get(client)
	require.True(b.t, ok)
	return c.State.Inflight.Len()
}

// session is a session and its sink.
type session struct {
	transport.Session
	ctx    context.Context
	cancel context.CancelFunc
	ran    chan error // gets Run's error
	sink   hubfixture.Sink
}

func creds() *transport.Credentials { return &transport.Credentials{Host: host, DeviceID: deviceID} }

// dialed dials.
func dialed(tr transport.Transport, c *transport.Credentials) (*session, error) {
	s := &session{ran: make(chan error, 1)}
	s.ctx, s.cancel = context.WithTimeout(context.Background(), time.Hour)
	var err error
	s.Session, err = tr.Dial(s.ctx, &transport.Config{Creds: c, Window: 16, Queue: 16, Sink: &s.sink})
	if err != nil {
		s.cancel()
	}
	return s, err
}

// run runs the session until end.
func (s *session) run() *session {
	go func() { s.ran <- s.Run(s.ctx) }()
	synctest.Wait()
	return s
}

// end ends the session in good order.
func (s *session) end() {
	s.cancel()
	<-s.ran
	synctest.Wait()
}

// start dials and runs.
func start(t *testing.T, tr transport.Transport, c *transport.Credentials) *session {
	t.Helper()
	s, err := dialed(tr, c)
	require.NoError(t, err)
	return s.run()
}

// send sends messages with the tags 0, 1 and so on, and returns their results.
func (s *session) send(all ...transport.Message) []error {
	items := make([]transport.Item, len(all))
	for i := range all {
		items[i] = transport.Item{Tag: uint16(i), Msg: &all[i]}
	}
	s.sink.Set(func(k *hubfixture.Sink) { k.Results = nil })
	s.Send(items)
	synctest.Wait()
	out := slices.Repeat([]error{errPending}, len(all))
	for _, r := range s.sink.AllResults() {
		out[r.Tag] = r.Err
	}
	return out
}

var errPending = errors.New("no result yet")

// subscribe subscribes and returns the result.
func (s *session) subscribe(want transport.Features) error {
	return s.do(transport.Request{Op: transport.OpSubscribe, Want: want})
}

// do requests and returns the error of the reply.
func (s *session) do(r transport.Request) error {
	before := len(s.sink.Replies)
	s.Do(&r)
	synctest.Wait()
	if len(s.sink.Replies) != before+1 {
		return errPending
	}
	return s.sink.Replies[before].Err
}

// settleAll accepts what came.
func (s *session) settleAll() {
	for _, ref := range slices.Concat(s.sink.Refs, s.sink.Unasked) {
		s.Do(&transport.Request{Op: transport.OpSettle, Ref: ref})
	}
	synctest.Wait()
}

// bodies returns what came: "topic body", with " retained" behind it.
func (s *session) bodies() (out []string) {
	synctest.Wait()
	for _, m := range s.sink.Messages {
		line := m.Topic + " " + string(m.Body)
		if m.Retain {
			line += " retained"
		}
		out = append(out, line)
	}
	return out
}

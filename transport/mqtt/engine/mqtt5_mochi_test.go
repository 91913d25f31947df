package engine_test

import (
	"context"
	"io"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	mochi "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
	"github.com/hubline-iot/hubline/transport/mqtt/engine"
)

// broker is a mochi server on connections in memory.
type broker struct {
	*mochi.Server
	recorder *recorder

	mu    sync.Mutex
	conns []io.Closer
	peers sync.WaitGroup
}

// recorder keeps what clients publish.
type recorder struct {
	mochi.HookBase
	mu       sync.Mutex
	messages []packets.Packet
}

func (r *recorder) ID() string           { return "recorder" }
func (r *recorder) Provides(b byte) bool { return b == mochi.OnPublished }
func (r *recorder) OnPublished(_ *mochi.Client, pk packets.Packet) {
	r.mu.Lock()
	r.messages = append(r.messages, pk)
	r.mu.Unlock()
}

func (r *recorder) all() []packets.Packet {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]packets.Packet(nil), r.messages...)
}

// allowAll lets every client do everything.
type allowAll struct{ mochi.HookBase }

func (*allowAll) Provides(b byte) bool {
	return b == mochi.OnConnectAuthenticate || b == mochi.OnACLCheck
}

func (*allowAll) OnConnectAuthenticate(*mochi.Client, packets.Packet) bool { return true }

func (*allowAll) OnACLCheck(*mochi.Client, string, bool) bool { return true }

func newBroker(t testing.TB) *broker {
	b := &broker{recorder: new(recorder), Server: mochi.New(&mochi.Options{
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), SysTopicResendInterval: 1 << 30, InlineClient: true})}
	require.NoError(t, b.AddHook(new(allowAll), nil))
	require.NoError(t, b.AddHook(b.recorder, nil))
	require.NoError(t, b.Serve())
	t.Cleanup(func() {
		require.NoError(t, b.Close())
		b.cut()
		b.peers.Wait()
	})
	return b
}

// cut closes all connections.
func (b *broker) cut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.conns {
		_ = c.Close()
	}
	b.conns = nil
}

func (b *broker) dial(context.Context, *transport.Credentials) (engine.Conn, error) {
	near, far := memconn.Pair("near", "far")
	b.mu.Lock()
	b.conns = append(b.conns, far)
	b.mu.Unlock()
	b.peers.Add(1)
	go func() {
		defer b.peers.Done()
		_ = b.EstablishConnection("memory", far)
	}()
	return near, nil
}

// client returns an open client of the device over MQTT 5.
func (b *broker) client(t testing.TB, id string, five *engine.MQTT5Options, o *device.Options) *device.Client {
	creds := &transport.Credentials{Host: "broker.example.test", DeviceID: id}
	c, err := device.New(creds, engine.New(b.dial, &engine.Options{
		Protocol: engine.MQTT5(five),
		Dialect:  &dialect.Topics{Telemetry: "site/{device}/up", Commands: []string{"site/{device}/down/#"}},
	}), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// A device sends to another one through mochi, and every field arrives.
func TestMessagesThroughMochi(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		b := newBroker(t)
		var got []transport.Message
		var mu sync.Mutex
		to := b.client(t, "dev-2", &engine.MQTT5Options{ExactlyOnce: true}, nil)
		to.HandleMessages(func(_ context.Context, m *transport.Message) error {
			mu.Lock()
			defer mu.Unlock()
			copied := *m
			copied.Body = append([]byte(nil), m.Body...)
			copied.Properties = append([]transport.Property(nil), m.Properties...)
			got = append(got, copied)
			return nil
		})
		require.NoError(t, to.Open(t.Context()))
		from := b.client(t, "dev-1", &engine.MQTT5Options{TopicAliases: true}, nil)
		require.NoError(t, from.Open(t.Context()))
		now := time.Now()
		m := transport.Message{ID: "m-1", CorrelationID: "c\xff", ContentType: "application/json", ContentEncoding: "utf-8",
			Component: "thermostat", Created: now, Expires: now.Add(time.Hour), ResponseTopic: "site/dev-1/down/answer",
			Topic: "site/dev-2/down/do", Properties: []transport.Property{{Name: "a", Value: "1"}, {Name: "b", Value: "2"}},
			Body: []byte("{}")}
		m.CorrelationID = "c"
		for range 5 {
			require.NoError(t, from.Send(t.Context(), &m))
		}
		synctest.Wait() // mochi acknowledges a message before it passes it on
		require.NoError(t, b.Publish("site/dev-2/down/exact", []byte("twice no"), false, 2))
		synctest.Wait()
		time.Sleep(time.Second)
		mu.Lock()
		defer mu.Unlock()
		require.Len(t, got, 6)
		for _, one := range got[:5] {
			require.WithinDuration(t, m.Expires, one.Expires, time.Second)
			require.True(t, one.Created.Equal(now.Truncate(time.Millisecond)))
			one.Expires, one.Created = m.Expires, m.Created
			require.Equal(t, m, one)
		}
		require.Equal(t, "site/dev-2/down/exact", got[5].Topic)
		for _, pk := range b.recorder.all()[:5] {
			require.Equal(t, "site/dev-2/down/do", pk.TopicName)
		}
		require.Len(t, b.recorder.all(), 6)
	})
}

// Connections are cut under load, in both directions. Nothing is lost, the order holds but for
// resends, which have DUP, and a message with QoS 2 comes once.
func TestCutsUnderLoadWithMochi(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		b := newBroker(t)
		var mu sync.Mutex
		handled := map[string]int{}
		c := b.client(t, "dev-1", &engine.MQTT5Options{TopicAliases: true, ExactlyOnce: true}, &device.Options{Window: 32})
		c.HandleMessages(func(_ context.Context, m *transport.Message) error {
			mu.Lock()
			handled[string(m.Body)]++
			mu.Unlock()
			time.Sleep(3 * time.Second)
			return nil
		})
		require.NoError(t, c.Open(t.Context()))
		const n, cuts = 1000, 10 // and before each cut a handler runs that outlives it
		for i := range n {
			require.NoError(t, c.Enqueue(t.Context(), &transport.Message{Body: []byte(strconv.Itoa(i))}, nil))
			if i%(n/cuts) == n/cuts/2 {
				require.NoError(t, b.Publish("site/dev-1/down/x", []byte(strconv.Itoa(i)), false, 2))
				synctest.Wait()
				b.cut()
			}
		}
		require.NoError(t, c.Flush(t.Context()))
		time.Sleep(time.Minute)
		next, doubled := 0, 0
		for _, pk := range b.recorder.all() {
			if pk.TopicName != "site/dev-1/up" {
				continue
			}
			i, err := strconv.Atoi(string(pk.Payload))
			require.NoError(t, err)
			switch {
			case i == next:
				next++
			case i < next:
				doubled++
				require.True(t, pk.FixedHeader.Dup, i)
			default:
				t.Fatalf("message %d came before %d", i, next)
			}
		}
		require.Equal(t, n, next)
		require.LessOrEqual(t, doubled, 32*cuts)
		mu.Lock()
		defer mu.Unlock()
		require.Len(t, handled, cuts)
		for body, times := range handled {
			require.Equal(t, 1, times, body)
		}
	})
}

// Two devices with the same client id end each other's connections, with pauses.
func TestDevicesThatShareAClientIDDoNotFightAtFullSpeed(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		b := newBroker(t)
		connects := 0
		var mu sync.Mutex
		options := &device.Options{OnStatus: func(s device.Status) {
			mu.Lock()
			defer mu.Unlock()
			if s.State == device.StateConnected {
				connects++
			}
		}}
		one, two := b.client(t, "same", nil, options), b.client(t, "same", nil, options)
		require.NoError(t, one.Open(t.Context()))
		require.NoError(t, two.Open(t.Context()))
		for range 600 { // both have work, so their connections count as useful
			time.Sleep(time.Second)
			_ = one.Enqueue(t.Context(), &transport.Message{}, nil)
			_ = two.Enqueue(t.Context(), &transport.Message{}, nil)
		}
		mu.Lock()
		defer mu.Unlock()
		t.Logf("%d connections in 10 minutes", connects)
		require.Greater(t, connects, 10)
		require.LessOrEqual(t, connects, 2+2*600/10)
	})
}

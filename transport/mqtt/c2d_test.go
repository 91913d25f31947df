package mqtt

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// inboxSink keeps deliveries, and accepts each unless refuse is set.
type inboxSink struct {
	sink
	deliveries []transport.Delivery
}

func (k *inboxSink) Deliver(d *transport.Delivery) bool {
	kept := *d
	kept.Ref = append([]byte(nil), d.Ref...)
	m := *d.Msg
	m.Properties = append([]transport.Property(nil), m.Properties...)
	if m.System != nil {
		own := *m.System
		m.System = &own
	}
	m.Body = append([]byte(nil), m.Body...)
	kept.Msg = &m
	k.mu.Lock()
	k.deliveries = append(k.deliveries, kept)
	k.mu.Unlock()
	return k.sink.Deliver(d)
}

// receiving dials hub and runs a session that is subscribed to messages.
func receiving(t *testing.T, o *Options, creds *transport.Credentials) (*running, *inboxSink) {
	t.Helper()
	k := new(inboxSink)
	ctx, cancel := context.WithCancel(context.Background())
	s, err := New(o).dial(ctx, &transport.Config{Creds: creds, Window: 16, Queue: 16, Sink: k})
	require.NoError(t, err)
	r := run(t, s, &k.sink, ctx, cancel)
	r.Do(&transport.Request{ID: 1, Op: transport.OpSubscribe, Want: transport.Messages})
	synctest.Wait()
	require.Len(t, k.replies, 1)
	require.NoError(t, k.replies[0].Err)
	return r, k
}

func newBroker(t testing.TB) *testbroker.Hub {
	h, err := testbroker.New(nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close()) })
	return h
}

func TestMessagesCarryAllTheirProperties(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newBroker(t)
		dev, err := h.AddDevice("dev-1")
		require.NoError(t, err)
		r, k := receiving(t, &Options{Network: netopt.Options{Plaintext: true, Dial: h.Dial(testbroker.PortMQTT)}},
			credsOf(t, dev, dev.PrimaryKey))
		expiry := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{
			MessageID: "c-1", CorrelationID: "op/3", UserID: "me & you", ContentType: "text/plain", ContentEncoding: "utf-8",
			Ack: "full", Expiry: expiry,
			Properties: []hubdata.Property{{Name: "colour é", Value: "blue=#1+2"}, {Name: "empty", Value: ""}},
			Extra:      "&null/", Body: []byte("go"),
		}))
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{}))
		synctest.Wait()
		require.Len(t, k.deliveries, 2)
		d := k.deliveries[0]
		require.Equal(t, transport.Messages, d.Kind)
		require.False(t, d.Again)
		require.Len(t, d.Ref, 2)
		m := *d.Msg
		require.ElementsMatch(t, []transport.Property{
			{Name: "iothub-ack", Value: "full"}, {Name: "colour é", Value: "blue=#1+2"},
			{Name: "empty", Value: ""}, {Name: "null", Value: ""},
		}, m.Properties)
		require.True(t, m.Expires.Equal(expiry), "%v", m.Expires)
		require.Equal(t, &transport.SystemProperties{To: "/devices/dev-1/messages/deviceBound", UserID: "me & you"}, m.System)
		m.Properties, m.Expires, m.System = nil, time.Time{}, nil
		require.Equal(t, transport.Message{ID: "c-1", CorrelationID: "op/3", ContentType: "text/plain",
			ContentEncoding: "utf-8", Body: []byte("go")}, m)
		require.Empty(t, k.deliveries[1].Msg.Properties, "the address is no property")
		require.Empty(t, k.deliveries[1].Msg.Body)
		r.cancel()
		require.Error(t, <-r.ran)
	})
}

// A message that was not acknowledged is delivered again, with Again.
func TestRedeliveriesAreMarked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newBroker(t)
		dev, err := h.AddDevice("dev-1")
		require.NoError(t, err)
		o, creds := &Options{Network: netopt.Options{Plaintext: true, Dial: h.Dial(testbroker.PortMQTT)}},
			credsOf(t, dev, dev.PrimaryKey)
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Body: []byte("again and again")}))
		for i := range 3 {
			r, k := receiving(t, o, creds)
			synctest.Wait()
			require.Len(t, k.deliveries, 1)
			require.Equal(t, i > 0, k.deliveries[0].Again)
			outcome := transport.Release
			if i == 2 {
				outcome = transport.Accept
			}
			r.Do(&transport.Request{Op: transport.OpSettle, Ref: k.deliveries[0].Ref, Outcome: outcome})
			synctest.Wait()
			r.cancel()
			require.Error(t, <-r.ran)
		}
		require.Equal(t, 1, h.CountC2D("dev-1", hubdata.Completed))
	})
}

// Again is the DUP flag of the packet, independent of a hub's logic.
func TestAgainIsTheFlagOfTheWire(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		k := new(inboxSink)
		ctx, cancel := context.WithCancel(context.Background())
		links := make(chan *link, 1)
		go func() { links <- h.welcome() }()
		s, err := New(h.options()).dial(ctx, &transport.Config{Creds: testCreds(t), Sink: k})
		require.NoError(t, err)
		l := <-links
		r := run(t, s, &k.sink, ctx, cancel)
		p := publishBytes("devices/dev-1/messages/devicebound/%24.to=x", 9, "x")
		l.send(p...)
		p[0] |= 8
		l.send(p...)
		synctest.Wait()
		require.Equal(t, []bool{false, true}, []bool{k.deliveries[0].Again, k.deliveries[1].Again})
		r.cancel()
	})
}

func TestModulesThroughAGateway(t *testing.T) {
	for _, module := range []string{"", "mod-1"} {
		t.Run("module "+module, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				h := newBroker(t)
				dev, err := h.AddDevice("dev-1")
				require.NoError(t, err)
				name := "dev-1"
				if module != "" {
					dev, err = h.AddModule("dev-1", module)
					require.NoError(t, err)
					name += "/" + module
				}
				creds := credsOf(t, dev, dev.PrimaryKey)
				creds.GatewayHost = "gateway.local"
				// the certificate names the gateway; user name and token name the hub
				require.NoError(t, h.PresentName("gateway.local"))
				var dialed []string
				o := &Options{Network: netopt.Options{TLS: &tls.Config{RootCAs: h.RootCAs()}, Dial: func(ctx context.Context,
					network,
					addr string) (net.Conn, error) {
					dialed = append(dialed, addr)
					return h.Dial(testbroker.PortMQTTS)(ctx, network, addr)
				}}}
				r, k := receiving(t, o, creds)
				require.Equal(t, []string{"gateway.local:8883"}, dialed)
				r.send("up")
				if module != "" {
					require.NoError(t, h.SendInput(name, "in", hubdata.C2D{Body: []byte("down")}))
				} else {
					require.NoError(t, h.SendC2D(name, hubdata.C2D{Body: []byte("down")}))
				}
				synctest.Wait()
				require.Len(t, k.deliveries, 1)
				require.Equal(t, "down", string(k.deliveries[0].Msg.Body))
				m := h.Messages()[0]
				require.Equal(t, "dev-1", m.DeviceID)
				require.Equal(t, module, m.ModuleID)
				require.Equal(t, []uint16{0}, k.tags())
				r.cancel()
				require.Error(t, <-r.ran)

				require.NoError(t, h.PresentName(""))
				_, err = New(o).Dial(t.Context(), &transport.Config{Creds: creds, Sink: k})
				require.ErrorIs(t, err, transport.Untrusted, "the hub's own certificate is not the gateway's")
			})
		})
	}
}

// The model is announced at the end of the user name, which testbroker parses as the service does.
func TestTheModelIsAnnounced(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newBroker(t)
		dev, err := h.AddDevice("dev-1")
		require.NoError(t, err)
		o := &Options{Network: netopt.Options{Plaintext: true, Dial: h.Dial(testbroker.PortMQTT), ProductInfo: "Thermo/1.0"},
			ModelID: "dtmi:com:example:Thermostat;1"}
		require.Regexp(t, `&DeviceClientType=[^&]*Thermo%2F1\.0&model-id=dtmi%3Acom%3Aexample%3AThermostat%3B1$`,
			helloOf(t, o, credsOf(t, dev, dev.PrimaryKey)).UserName)
		r, _ := receiving(t, o, credsOf(t, dev, dev.PrimaryKey))
		r.cancel()
		require.Error(t, <-r.ran)
	})
}

// refusingSink refuses every seventh message.
type refusingSink struct {
	sink
	calls, refused int
	taken          [][]byte
}

func (k *refusingSink) Deliver(d *transport.Delivery) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.calls++
	if k.calls%7 == 0 {
		k.refused++
		return false
	}
	k.taken = append(k.taken, append([]byte(nil), d.Ref...))
	return true
}

// Both ends send at full speed over a connection with small buffers, and neither reads while its
// write blocks. Some messages are refused and stay unacknowledged.
func TestTenThousandMessagesEachWay(t *testing.T) {
	for _, secure := range []bool{false, true} {
		t.Run(map[bool]string{false: "plain", true: "TLS"}[secure], func(t *testing.T) {
			bubble(t, func(t *testing.T) { tenThousandEachWay(t, secure) })
		})
	}
}

func tenThousandEachWay(t *testing.T, secure bool) {
	const n = 10_000
	h := newHub(t)
	h.net.SetBuffer(8 << 10)
	o := h.options()
	if secure {
		h.serveTLS(t, o)
	}
	k := new(refusingSink)
	ctx, cancel := context.WithCancel(context.Background())
	var l *link
	accepted := make(chan struct{})
	go func() {
		l = h.welcome()
		close(accepted)
	}()
	s, err := New(o).dial(ctx, &transport.Config{Creds: testCreds(t), Window: n, Queue: n, Sink: k})
	require.NoError(t, err)
	<-accepted
	r := run(t, s, &k.sink, ctx, cancel)

	up, settled := 0, 0
	wanted := n - n/7
	down := strings.Repeat("d", 500)
	finished := make(chan struct{})
	go func() { // one goroutine for both directions, as in real hubs: it does not read while it writes
		defer close(finished)
		for sent := 0; sent < n || up < n || settled < wanted; {
			for range min(3, n-sent) {
				sent++
				_, err := l.Write(publishBytes("devices/dev-1/messages/devicebound/%24.to=x", uint16(sent), down))
				require.NoError(t, err)
			}
			for range 4 {
				if up == n && settled == wanted {
					break
				}
				p, err := l.next()
				require.NoError(t, err)
				switch p.kind {
				case typePublish:
					up++
					l.puback(p.id())
				case typePuback:
					settled++
				}
			}
		}
	}()
	settle := func() {
		k.mu.Lock()
		refs := k.taken
		k.taken = nil
		k.mu.Unlock()
		for _, ref := range refs {
			s.Do(&transport.Request{Op: transport.OpSettle, Ref: ref, Outcome: transport.Accept})
		}
	}
	for i := range n {
		s.Send([]transport.Item{{Tag: uint16(i), Msg: &transport.Message{Body: []byte(fmt.Sprint("up ", i))}}})
		settle()
	}
	for over := false; !over; {
		settle()
		time.Sleep(time.Millisecond)
		select {
		case <-finished:
			over = true
		default:
		}
	}
	synctest.Wait()
	require.Len(t, k.tags(), n)
	require.Equal(t, n/7, k.refused)
	require.Equal(t, wanted, settled)
	require.Empty(t, r.ran)
	r.cancel()
	_, _ = l.drain()
	require.Error(t, <-r.ran)
	require.NoError(t, socketOf(l).Close())
}

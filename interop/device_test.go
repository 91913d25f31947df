package interop

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/mqtt/paho"
	"github.com/hubline-iot/hubline/transport/netopt"
	"github.com/hubline-iot/hubline/transport/websocket"
)

// ways are the transports' settings for each kind of connection to a broker, and its port.
var ways = []struct {
	name string
	way  func(t testing.TB, b *broker) (addr string, tunnel netopt.Tunnel)
}{
	{"over TLS", func(_ testing.TB, b *broker) (string, netopt.Tunnel) { return b.secure, nil }},
	{"over WebSocket", func(t testing.TB, b *broker) (string, netopt.Tunnel) {
		return frontOf(t, b), websocket.MQTT(&websocket.Options{Path: "/broker/mqtt?of=hubline"})
	}},
}

// frontOf runs a WebSocket server in front of the broker, which may be built without WebSocket.
func frontOf(t testing.TB, b *broker) string {
	s := startScript(t, "front.js")
	s.tell(map[string]any{
		"cert": string(certPEM(b.cert.Leaf)), "key": string(keyPEM(t, b.cert)), "path": "/broker/mqtt", "broker": b.plainPort,
	})
	return loopback(s.next("listening", "").Port)
}

// creds has a token; a broker without authentication ignores it.
func creds() *transport.Credentials {
	return &transport.Credentials{Host: hostName, DeviceID: deviceID,
		Token: transport.FixedToken("SharedAccessSignature sr=a&sig=b&se=1")}
}

// fastPolicy is a policy for tests: 50 ms, without end.
type fastPolicy struct{}

func (fastPolicy) Decide(retrypolicy.Attempt) retrypolicy.Decision {
	return retrypolicy.Decision{Retry: true, Delay: 50 * time.Millisecond}
}

// open creates and opens a device client, and closes it at the end of the test.
func open(t testing.TB, m mqtt.Options, d device.Options) *device.Client {
	t.Helper()
	c := create(t, m, d)
	require.NoError(t, c.Open(soon(t)))
	return c
}

func create(t testing.TB, m mqtt.Options, d device.Options) *device.Client {
	t.Helper()
	if d.RetryPolicy == nil {
		d.RetryPolicy = fastPolicy{}
	}
	c, err := device.New(creds(), overMQTT(t, creds(), m), &d)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// engine is for the tests of this file: the check runs them with each.
var engine = flag.String("engine", "mqtt", "MQTT engine of the device: mqtt or paho")

// overMQTT returns the transport of the selected engine, with settings that both engines have.
func overMQTT(t testing.TB, creds *transport.Credentials, m mqtt.Options) transport.Transport {
	t.Helper()
	switch *engine {
	case "paho":
		return paho.New(&mqtt.Options{Network: m.Network, KeepAlive: m.KeepAlive, PingTimeout: m.PingTimeout})
	case "mqtt":
		return mqtt.New(&m)
	}
	t.Fatalf("-engine is %q; give mqtt or paho", *engine)
	return nil
}

func TestNothingIsLost(t *testing.T) {
	t.Parallel()
	const (
		messages = 2000
		window   = 64
		every    = 120 // acknowledged messages between two cuts; more than a window, so each cut hits a new connection
	)
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			b := startBroker(t, settings{})
			addr, tunnel := w.way(t, b)
			r := newRelay(t, addr)
			others := watch(t, b, "watcher", "devices/+/messages/events/#")
			c := open(t, mqtt.Options{Network: netopt.Options{Addr: r.addr(), TLS: b.trust(), Tunnel: tunnel}},
				device.Options{Window: window,
					AckTimeout: time.Second})

			ring := make([]device.Receipt, window)
			cuts := 0
			for i := range messages + window {
				receipt := &ring[i%window]
				if done := i - window; done >= 0 {
					require.NoError(t, receipt.Wait(soon(t)), "message %d", done)
					if done%every == every-1 {
						if cuts++; cuts%5 == 0 {
							r.silence() // found by AckTimeout
						} else {
							r.cut()
						}
					}
				}
				if i < messages {
					m := &transport.Message{
						ID:         fmt.Sprintf("m-%04d", i),
						Properties: []transport.Property{{Name: "Grad °C", Value: "21.5 & mehr/?#+"}},
						Body:       fmt.Appendf(nil, "%04d", i),
					}
					require.NoError(t, c.Enqueue(soon(t), m, receipt))
				}
			}
			s := c.Stats()
			require.EqualValues(t, messages, s.Acknowledged)
			require.Zero(t, s.Refused+s.Expired+s.Dropped+s.Cancelled)
			require.GreaterOrEqual(t, s.Connections, uint64(cuts), "each cut was noticed")

			last := fmt.Sprintf("%04d", messages-1)
			eventually(t, "the watcher has the last message", func() bool {
				got := others.arrivals()
				return len(got) > 0 && got[len(got)-1].body == last
			})
			next, restarts, before := 0, uint64(0), ""
			for _, a := range others.arrivals() {
				if a.body == fmt.Sprintf("%04d", next) {
					next++
				}
				if a.body <= before {
					restarts++
				}
				before = a.body
				require.Less(t, a.body, fmt.Sprintf("%04d", next), "message after a gap")
				require.Equal(t, "devices/dev-1/messages/events/%24.mid=m-"+a.body+"&Grad%20%C2%B0C=21.5%20%26%20mehr%2F%3F%23%2B",
					a.topic)
				require.EqualValues(t, 1, a.qos)
				require.False(t, a.retained)
			}
			require.Equal(t, messages, next, "all arrived, their first copies in order")
			require.Less(t, restarts, s.Connections, "within a connection the order is kept")
			duplicates := others.count() - messages
			require.LessOrEqual(t, uint64(duplicates), s.Resent)
			t.Logf("%d cuts, %d connections, %d messages sent again, %d of them arrived twice", cuts, s.Connections, s.Resent,
				duplicates)

			late := watch(t, b, "late", "#")
			late.publish("marker", "")
			eventually(t, "the marker", func() bool { return late.count() > 0 })
			require.Equal(t, "marker", late.arrivals()[0].topic, "the broker retained something")
		})
	}
}

func TestCloudToDeviceMessagesSurviveCuts(t *testing.T) {
	t.Parallel()
	const messages = 500
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			b := startBroker(t, settings{})
			addr, tunnel := w.way(t, b)
			r := newRelay(t, addr)
			var mu sync.Mutex
			var got []string
			newest := -1
			last := make(chan struct{})
			var once sync.Once
			c := create(t, mqtt.Options{Network: netopt.Options{Addr: r.addr(), TLS: b.trust(), Tunnel: tunnel}},
				device.Options{})
			c.HandleMessages(func(_ context.Context, m *transport.Message) error {
				mu.Lock()
				defer mu.Unlock()
				got = append(got, string(m.Body)+" "+m.ID+" "+m.CorrelationID+" "+m.Properties[0].Name+"="+m.Properties[0].Value)
				if n, err := strconv.Atoi(string(m.Body)); err == nil {
					newest = max(newest, n)
				}
				if len(got)%70 == 69 {
					r.cut()
				}
				if string(m.Body) == fmt.Sprintf("%03d", messages-1) {
					once.Do(func() { close(last) })
				}
				return nil
			})
			require.NoError(t, c.Open(soon(t)))
			cloud := watch(t, b, "cloud", "")
			for i := range messages {
				// Mosquitto before 2.0.15 ignores its window when messages queue up behind it, so none may
				// queue.
				eventually(t, "the device keeps up", func() bool {
					mu.Lock()
					defer mu.Unlock()
					return i-newest < 15
				})
				cloud.publish(
					fmt.Sprintf(
						"devices/dev-1/messages/devicebound/%%24.to=%%2Fdevices%%2Fdev-1&%%24.mid=c-%d&$.cid=x%%20y&a%%2Fb=%d%%25", i, i),
					fmt.Sprintf("%03d", i))
			}
			select {
			case <-last:
			case <-time.After(waitLimit):
				t.Fatal("the last message did not arrive")
			}
			mu.Lock()
			defer mu.Unlock()
			next := 0
			for _, line := range got {
				if line == fmt.Sprintf("%03d c-%d x y a/b=%d%%", next, next, next) {
					next++
				}
			}
			require.Equal(t, messages, next, "all arrived, their first copies in order; the last of them: %q", got[len(got)-1])
			t.Logf("%d messages arrived %d times over %d connections", messages, len(got), r.connections())
		})
	}
}

func TestAReleasedMessageIsRedelivered(t *testing.T) {
	b := startBroker(t, settings{})
	r := newRelay(t, b.secure)
	calls := make(chan string, 10)
	settled := make(chan transport.Outcome, 10)
	n := 0
	trace := &device.Trace{Settled: func(o transport.Outcome) { settled <- o }}
	c := create(t, mqtt.Options{Network: netopt.Options{Addr: r.addr(), TLS: b.trust()}}, device.Options{Trace: trace})
	c.HandleMessages(func(_ context.Context, m *transport.Message) error {
		calls <- string(m.Body)
		switch n++; {
		case string(m.Body) == "reject":
			return device.ErrReject
		case n == 1:
			return errors.New("not now")
		}
		return nil
	})
	require.NoError(t, c.Open(soon(t)))
	cloud := watch(t, b, "cloud", "")
	receive := func() string {
		select {
		case s := <-calls:
			return s
		case <-time.After(waitLimit):
			t.Fatal("no message")
			return ""
		}
	}
	const topic = "devices/dev-1/messages/devicebound/"
	cloud.publish(topic, "again")
	require.Equal(t, "again", receive())
	cloud.publish(topic, "reject")
	require.Equal(t, "reject", receive())
	require.Equal(t, transport.OutcomeRelease, <-settled)
	require.Equal(t, transport.OutcomeReject, <-settled)
	// the broker answers after it has read the earlier messages
	require.NoError(t, c.Send(soon(t), &transport.Message{}))
	r.cut()
	require.Equal(t, "again", receive(),
		"released, so the broker delivers it again; what was rejected does not come again")
	cloud.publish(topic, "end")
	require.Equal(t, "end", receive())
}

func TestMosquittoRestarts(t *testing.T) {
	t.Parallel()
	b := startBroker(t, settings{})
	bodies := make(chan string, 10)
	c := create(t, mqtt.Options{Network: netopt.Options{Addr: b.secure, TLS: b.trust()}}, device.Options{})
	c.HandleMessages(func(_ context.Context, m *transport.Message) error {
		bodies <- string(m.Body)
		return nil
	})
	require.NoError(t, c.Open(soon(t)))
	for round := range 3 {
		connections := c.Stats().Connections
		b.stop()
		eventually(t, "the loss is noticed", func() bool { return c.Status().State != device.StateConnected })
		sent := make(chan error, 1)
		go func() { sent <- c.Send(soon(t), &transport.Message{Body: []byte("while the broker is away")}) }()
		b.start()
		require.NoError(t, <-sent)
		require.Greater(t, c.Stats().Connections, connections)
		// The broker has dropped the session, so this arrives only if the client subscribed again.
		watch(t, b, "cloud", "").publish("devices/dev-1/messages/devicebound/", fmt.Sprint(round))
		select {
		case body := <-bodies:
			require.Equal(t, fmt.Sprint(round), body)
		case <-time.After(waitLimit):
			t.Fatal("no message after the restart")
		}
	}
}

func TestAnIdleConnectionStaysUpAndASilentOneIsFound(t *testing.T) {
	t.Parallel()
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			b := startBroker(t, settings{})
			addr, tunnel := w.way(t, b)
			r := newRelay(t, addr)
			c := open(t, mqtt.Options{Network: netopt.Options{Addr: r.addr(), TLS: b.trust(), Tunnel: tunnel},
				KeepAlive:   4 * time.Second,
				PingTimeout: 10 * time.Second}, device.Options{})
			time.Sleep(9 * time.Second) // without a ping the broker would close the connection after 6 s
			require.Equal(t, device.StateConnected, c.Status().State)
			require.EqualValues(t, 1, c.Stats().Connections)
			r.silence()
			eventually(t, "the silence is noticed", func() bool { return c.Stats().Connections == 2 })
			require.ErrorIs(t, c.Stats().LastError, transport.Timeout)
		})
	}
}

func TestLargeMessages(t *testing.T) {
	t.Parallel()
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			b := startBroker(t, settings{})
			addr, tunnel := w.way(t, b)
			others := watch(t, b, "watcher", "devices/+/messages/events/#")
			c := open(t, mqtt.Options{Network: netopt.Options{Addr: addr, TLS: b.trust(), Tunnel: tunnel}}, device.Options{})
			for _, size := range []int{0, 1, 127, 128, 16 << 10, 65535, 65536, 250 << 10} {
				body := strings.Repeat("x", size)
				require.NoError(t, c.Send(soon(t), &transport.Message{Body: []byte(body)}))
				n := others.count()
				eventually(t, "the message arrives",
					func() bool { n = others.count(); return n > 0 && len(others.arrivals()[n-1].body) == size })
				require.Equal(t, body, others.arrivals()[n-1].body)
			}
			require.EqualValues(t, 1, c.Stats().Connections)
		})
	}
}

func TestAnotherClientWithTheSameID(t *testing.T) {
	t.Parallel()
	b := startBroker(t, settings{})
	c := open(t, mqtt.Options{Network: netopt.Options{Addr: b.secure, TLS: b.trust()}}, device.Options{})
	for range 4 {
		connections := c.Stats().Connections
		watch(t, b, deviceID, "") // the broker prefers the newer connection; the client reconnects and takes over again
		eventually(t, "the client comes back", func() bool {
			return c.Stats().Connections > connections && c.Status().State == device.StateConnected
		})
	}
	require.ErrorIs(t, c.Stats().LastError, transport.Network)
	require.NoError(t, c.Send(soon(t), &transport.Message{}))
}

func TestServerCertificates(t *testing.T) {
	b := startBroker(t, settings{})
	for name, config := range map[string]*tls.Config{
		"unknown authority": {RootCAs: newAuthority(t).pool()},
		"another host":      {RootCAs: b.ca.pool(), ServerName: "other.example.test"},
	} {
		t.Run(name, func(t *testing.T) {
			c := create(t, mqtt.Options{Network: netopt.Options{Addr: b.secure, TLS: config}}, device.Options{})
			require.ErrorIs(t, c.Open(soon(t)), transport.Untrusted)
		})
	}
	t.Run("without TLS on the port with TLS", func(t *testing.T) {
		c := create(t, mqtt.Options{Network: netopt.Options{Addr: b.secure, Plaintext: true}},
			device.Options{RetryPolicy: retrypolicy.NoRetry{}})
		err := c.Open(soon(t))
		require.ErrorIs(t, err, transport.Network) // the broker only closes the connection
	})
	t.Run("with TLS on the port without", func(t *testing.T) {
		c := create(t, mqtt.Options{Network: netopt.Options{Addr: b.plain, TLS: b.trust()}},
			device.Options{RetryPolicy: retrypolicy.NoRetry{}})
		err := c.Open(soon(t))
		require.Error(t, err)
		t.Log(transport.KindOf(err), err)
	})
}

func TestClientCertificates(t *testing.T) {
	t.Parallel()
	devices := newAuthority(t)
	b := startBroker(t, settings{clientCerts: devices})
	with := func(c tls.Certificate) func(context.Context) (*tls.Certificate, error) {
		return func(context.Context) (*tls.Certificate, error) { return &c, nil }
	}
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for _, one := range []struct {
			name string
			cert func(context.Context) (*tls.Certificate, error)
			want transport.Kind
		}{
			{"right", with(devices.client(t, deviceID)), transport.Unknown},
			{"none", nil, map[uint16]transport.Kind{
				tls.VersionTLS12: transport.Unsupported, // the alert is handshake_failure, which has many causes
				tls.VersionTLS13: transport.Unauthorized,
			}[version]},
			{"of another authority", with(newAuthority(t).client(t, deviceID)), transport.Unauthorized},
		} {
			t.Run(tls.VersionName(version)+" "+one.name, func(t *testing.T) {
				trust := b.trust()
				trust.MinVersion, trust.MaxVersion = version, version
				// An alert that may be due to damage in transit counts only when it is repeated.
				c := create(t, mqtt.Options{Network: netopt.Options{Addr: b.secure, TLS: trust, Certificate: one.cert}},
					device.Options{
						RetryPolicy: retrypolicy.Fixed{Delay: time.Millisecond},
					})
				err := c.Open(soon(t))
				if one.want != transport.Unknown {
					require.ErrorIs(t, err, one.want)
					return
				}
				require.NoError(t, err)
				require.NoError(t, c.Send(soon(t), &transport.Message{Body: []byte("certified")}))
			})
		}
	}
}

func TestAWrongPathOfTheWebSocket(t *testing.T) {
	t.Parallel() // mosquitto takes its time to refuse it
	b := startBroker(t, settings{})
	c := create(t, mqtt.Options{Network: netopt.Options{Addr: frontOf(t, b), TLS: b.trust(), Tunnel: websocket.MQTT(nil)}},
		device.Options{RetryPolicy: retrypolicy.NoRetry{}})
	err := c.Open(soon(t))
	var refusal *transport.StatusError
	require.ErrorAs(t, err, &refusal)
	require.Equal(t, 400, refusal.Status) // the server's answer
	require.ErrorIs(t, err, transport.Protocol)
}

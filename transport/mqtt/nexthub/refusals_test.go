package nexthub_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/mqtt/nexthub"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// statuses collects what a client publishes.
type statuses struct {
	mu  sync.Mutex
	all []device.Status
}

func (s *statuses) add(status device.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, status)
}

func (s *statuses) delays() (all []time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, status := range s.all {
		if status.Delay > 0 {
			all = append(all, status.Delay)
		}
	}
	return all
}

// Both SDKs of the service connect again when their session is taken over, so that two devices with
// one identity end each other's connections for ever.
func TestASessionThatIsTakenOverIsFinal(t *testing.T) {
	inBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
		first := client(t, h, &nexthub.Hub{}, nil)
		open(t, first)
		second := client(t, h, &nexthub.Hub{}, nil)
		open(t, second)
		time.Sleep(time.Hour)
		s := first.Status()
		require.Equal(t, device.StateDisconnected, s.State)
		require.Equal(t, device.SuspectSecondDevice, s.Suspect)
		require.ErrorIs(t, s.Err, transport.Conflict)
		require.ErrorIs(t, s.Err, transport.ErrTakenOver)
		require.Contains(t, s.Hint(), "two devices with one identity")
		require.Equal(t, device.StateConnected, second.Status().State)
		require.Equal(t, 1, h.Connections("dev-1"))
	})
}

func TestARefusedIdentityIsTriedLessAndLessOften(t *testing.T) {
	inBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
		for _, code := range []byte{0x85, 0x86, 0x87, 0x8c, 0x87} {
			h.Inject(fault.Fault{Kind: fault.RefuseConnect, Code: code})
		}
		seen := new(statuses)
		c := client(t, h, &nexthub.Hub{}, &device.Options{OnStatus: seen.add})
		require.NoError(t, c.Start())
		time.Sleep(time.Minute)
		require.ErrorIs(t, c.Status().Err, transport.Unauthorized)
		require.Contains(t, c.Status().Hint(), "the hub refuses the identity")
		time.Sleep(4 * time.Hour)
		require.Equal(t, device.StateConnected, c.Status().State)
		delays := seen.delays()
		require.Len(t, delays, 5)
		for i, want := range []time.Duration{5 * time.Minute, 10 * time.Minute, 20 * time.Minute, 40 * time.Minute} {
			require.InDelta(t, want, delays[i], float64(want)*0.26)
		}
		require.LessOrEqual(t, delays[4], time.Hour+2*time.Second)
		require.GreaterOrEqual(t, delays[4], 45*time.Minute)

		// A DISCONNECT that refuses it begins the ladder anew: the connection counted.
		h.Inject(fault.Fault{Kind: fault.DisconnectOnPublish, Code: 0x87})
		require.NoError(t, c.Enqueue(t.Context(), &transport.Message{}, nil))
		time.Sleep(time.Second)
		require.InDelta(t, 5*time.Minute, c.Status().Delay, float64(80*time.Second))
		time.Sleep(10 * time.Minute)
		require.Equal(t, device.StateConnected, c.Status().State)
		require.Len(t, h.Messages(), 1)
	})
}

// twice is a transport of a device with two certificates, which tries both in each attempt.
type twice struct{ transport.Transport }

func (w twice) Dial(ctx context.Context, cfg *transport.Config) (transport.Session, error) {
	if s, err := w.Transport.Dial(ctx, cfg); err == nil {
		return s, nil
	}
	return w.Transport.Dial(ctx, cfg)
}

// Refusals of several certificates within one attempt are one step of the ladder.
func TestCertificatesOfOneAttemptAreOneStep(t *testing.T) {
	inBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
		h.Inject(fault.Fault{Kind: fault.RefuseConnect, Code: 0x87, Times: 4})
		seen := new(statuses)
		c, err := device.New(creds(), twice{mqtt.New(options(h, &nexthub.Hub{}))}, &device.Options{OnStatus: seen.add})
		require.NoError(t, err)
		defer c.Close()
		require.NoError(t, c.Start())
		time.Sleep(time.Hour)
		require.Equal(t, device.StateConnected, c.Status().State)
		delays := seen.delays()
		require.Len(t, delays, 2)
		require.InDelta(t, 5*time.Minute, delays[0], float64(5*time.Minute)*0.26)
		require.InDelta(t, 10*time.Minute, delays[1], float64(10*time.Minute)*0.26)
	})
}

func TestEndsOfAConnection(t *testing.T) {
	for name, c := range map[string]struct {
		code  byte
		kind  transport.Kind // of the final error; 0: the client connects again
		least time.Duration
	}{
		"normal":                {0x00, 0, 0},
		"busy":                  {0x89, 0, 10 * time.Second},
		"shutting down":         {0x8b, 0, 0},
		"maximum connect time":  {0xa0, 0, 0},
		"message rate":          {0x96, 0, 10 * time.Second},
		"connection rate":       {0x9f, 0, 10 * time.Second},
		"administrative action": {0x98, transport.Forbidden, 0},
		"receive maximum":       {0x93, transport.Invalid, 0},
		"server moved":          {0x9d, transport.NotFound, 0},
		"of a future":           {0xc3, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
				f := fault.Fault{Kind: fault.DisconnectOnPublish, Code: c.code}
				if c.code == 0 {
					f = fault.Fault{Kind: fault.DropOnReceipt}
				}
				h.Inject(f)
				seen := new(statuses)
				d := client(t, h, &nexthub.Hub{}, &device.Options{OnStatus: seen.add})
				open(t, d)
				require.NoError(t, d.Enqueue(t.Context(), &transport.Message{ID: "1"}, nil))
				time.Sleep(time.Minute)
				s := d.Status()
				if c.kind != 0 {
					require.Equal(t, device.StateDisconnected, s.State)
					require.ErrorIs(t, s.Err, c.kind)
					return
				}
				require.Equal(t, device.StateConnected, s.State)
				if c.least > 0 {
					require.GreaterOrEqual(t, seen.delays()[0], c.least)
				}
				require.NotEmpty(t, h.Messages(), "nothing is lost")
			})
		})
	}
}

// A day of drops at random, with every code after which the client connects again: each message
// arrives, and twin and methods work in the end. Final codes are in the tests above.
func TestADayOfRandomDrops(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		h, err := testbroker.New(&testbroker.Options{Seed: 1, MQTTv5: &testbroker.MQTTv5Options{}})
		require.NoError(t, err)
		defer func() { require.NoError(t, h.Close()) }()
		_, err = h.AddDevice("dev-1")
		require.NoError(t, err)
		w := watch(t, h, nil)
		require.NoError(t, w.HandleMethod("m", func(context.Context, *device.MethodCall) (int, []byte) { return 200, nil }))
		fired := map[byte]*testbroker.Injected{}
		for _, code := range []byte{0x80, 0x83, 0x87, 0x89, 0x8b, 0x8c, 0x8d, 0x96, 0x97, 0x9f, 0xa0, 0xc3} {
			fired[code] = h.Inject(fault.Fault{Kind: fault.DisconnectOnPublish, Code: code, Times: -1, Probability: .01})
		}
		const minutes = 24 * 60
		for range minutes {
			require.NoError(t, w.Enqueue(t.Context(), &transport.Message{}, nil))
			w.change()
			time.Sleep(time.Minute)
		}
		total := 0
		for code, in := range fired {
			require.Positive(t, in.Fired(), "%#x", code)
			total += in.Fired()
			in.Remove()
		}
		require.NoError(t, w.Flush(t.Context()))
		require.Len(t, h.Messages(), minutes)
		require.EqualValues(t, total+1, w.Stats().Connections)
		synctest.Wait()
		w.mu.Lock()
		require.Regexp(t, fmt.Sprint(" ", minutes+1, "$"), w.told[len(w.told)-1])
		w.mu.Unlock()
		_, err = w.PatchReported(t.Context(), []byte(`{"a":1}`))
		require.NoError(t, err)
		_, err = h.CallMethod(t.Context(), "dev-1", hubdata.MethodCall{Name: "m"})
		require.NoError(t, err)
	})
}

// The devices of a fleet that hears 0x9F or 0x96 do not come back together.
func TestADelayAfterARateLimitVaries(t *testing.T) {
	var delays []time.Duration
	for range 10 {
		inBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
			h.Inject(fault.Fault{Kind: fault.RefuseConnect, Code: 0x9f})
			seen := new(statuses)
			c := client(t, h, &nexthub.Hub{}, &device.Options{OnStatus: seen.add, ReconnectSpread: -1})
			open(t, c)
			delays = append(delays, seen.delays()...)
		})
	}
	require.Len(t, delays, 10)
	least, most := delays[0], delays[0]
	for _, d := range delays {
		least, most = min(least, d), max(most, d)
	}
	require.Greater(t, most-least, time.Second, "%v", delays)
}

// A hub that has moved is followed, to a server whose certificate has that name.
func TestAServerReferenceIsFollowed(t *testing.T) {
	for name, c := range map[string]struct {
		reference string
		follows   bool
	}{
		"a host name":           {"hub2.example.test", true},
		"a name with its port":  {"hub2.example.test:8883", true},
		"another certificate":   {"evil.example.test", false},
		"an address":            {"10.0.0.1", false},
		"no reference":          {"", false},
		"a port of plain text":  {"hub2.example.test:1883", false},
		"nothing that resolves": {"nowhere.example.test", false},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			hubs := map[string]*testbroker.Hub{}
			for _, host := range []string{"hub1.example.test", "hub2.example.test"} {
				h, err := testbroker.New(&testbroker.Options{HostName: host, MQTTv5: &testbroker.MQTTv5Options{}})
				require.NoError(t, err)
				defer h.Close()
				hubs[host] = h
			}
			first, second := hubs["hub1.example.test"], hubs["hub2.example.test"]
			now := time.Now()
			cert := testbroker.NewClientCert("dev-1", now.Add(-time.Hour), now.Add(1000*time.Hour))
			for _, h := range hubs {
				_, err := h.AddDeviceX509("dev-1", testbroker.Thumbprint(cert.Leaf))
				require.NoError(t, err)
			}
			roots := first.ClientTLS()
			roots.ServerName = ""
			roots.RootCAs = second.RootCAs()
			for _, authority := range first.Authorities() {
				roots.RootCAs.AddCert(authority)
			}
			o := &mqtt.Options{Dialect: &nexthub.Hub{}, Network: netopt.Options{TLS: roots,
				Certificate: func(context.Context) (*tls.Certificate, error) { return &cert, nil },
				Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
					host, _, err := net.SplitHostPort(addr)
					if err != nil {
						return nil, err
					}
					if host == "evil.example.test" {
						host = "hub2.example.test"
					}
					if h := hubs[host]; h != nil {
						return h.Dial(testbroker.PortMQTTS)(ctx, network, addr)
					}
					return nil, &net.DNSError{Name: host, Err: "no such host", IsNotFound: true}
				}}}
			first.Inject(fault.Fault{Kind: fault.RefuseConnect, Code: 0x9d, ServerReference: c.reference})
			d, err := device.New(&transport.Credentials{Host: "hub1.example.test", DeviceID: "dev-1"}, mqtt.New(o), nil)
			require.NoError(t, err)
			defer d.Close()
			require.NoError(t, d.Start())
			time.Sleep(time.Minute)
			if c.follows {
				require.Equal(t, 1, second.Connections("dev-1"), "%v", d.Status().Err)
				second.Drop("dev-1")
				time.Sleep(time.Minute)
				require.Equal(t, 1, second.Connections("dev-1"))
				return
			}
			require.Zero(t, second.Connections("dev-1"))
			s := d.Status()
			if name == "nothing that resolves" || name == "another certificate" {
				require.Equal(t, device.StateConnected, s.State, "back at the first host")
				return
			}
			require.ErrorIs(t, s.Err, transport.NotFound)
		})
	}
}

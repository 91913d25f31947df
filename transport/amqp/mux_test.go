package amqp_test

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
)

// fleet opens n clients on one mux. They have no spread, so that times are those of their delays.
func fleet(t testing.TB, h *hub, mux *amqp.Mux, n int) []*device.Client {
	t.Helper()
	var all []*device.Client
	for i := range n {
		c, err := device.New(h.device(t, fmt.Sprintf("fleet-%d", i)), mux,
			&device.Options{StableTime: time.Second, ReconnectSpread: -1})
		require.NoError(t, err)
		all = append(all, c)
	}
	var wg sync.WaitGroup
	for _, c := range all {
		wg.Go(func() {
			if err := c.Open(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	return all
}

// each runs f for all clients at the same time.
func each(all []*device.Client, f func(i int, c *device.Client)) {
	var wg sync.WaitGroup
	for i, c := range all {
		wg.Go(func() { f(i, c) })
	}
	wg.Wait()
}

// Hundreds of devices share a connection, lose it and get it back.
func TestHundredsOfDevices(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		n, messages := 300, 3
		if testkit.Long() {
			n = 1000
		}
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		all := fleet(t, h, amqp.NewMux(h.options()), n)
		require.EqualValues(t, 1, h.dials.Load())
		for round := range messages {
			began := time.Now()
			each(all, func(i int, c *device.Client) {
				if err := c.Send(t.Context(), numbered(round)); err != nil {
					t.Error(err)
				}
			})
			require.Less(t, time.Since(began), 3*time.Second, "all are back soon after the loss")
			if round == 0 {
				runtime.GC()
				runtime.ReadMemStats(&after)
				t.Logf("%d devices that have sent: %d goroutines, %d KB of heap each with the hub's", n, runtime.NumGoroutine(),
					(int(after.HeapAlloc)-int(before.HeapAlloc))/n/1024)
			}
			if round == 1 {
				h.Drop("")
			}
		}
		require.EqualValues(t, 2, h.dials.Load(), "dialed once for all")
		for i := range all {
			requireAll(t, h, fmt.Sprintf("fleet-%d", i), messages)
		}
		each(all, func(_ int, c *device.Client) { _ = c.Close() })
		synctest.Wait()
		require.Zero(t, h.Connections(""))
	})
}

// Devices join and leave while the connection stays; the last one closes it.
func TestDevicesJoinAndLeave(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		mux := amqp.NewMux(h.options())
		a := start(t, mux, h.CredsWith(t, ""))
		for i := range 20 {
			b := start(t, mux, h.device(t, fmt.Sprintf("guest-%d", i)))
			b.requireSends("x")
			b.cancel()
			<-b.over
			require.Zero(t, h.Links(fmt.Sprintf("guest-%d", i), fault.LinkAny))
		}
		a.requireSends("y")
		require.EqualValues(t, 1, h.dials.Load())
		a.cancel()
		<-a.over
		synctest.Wait()
		require.Zero(t, h.Connections(""))
		start(t, mux, h.CredsWith(t, "")).requireSends("z")
		require.EqualValues(t, 2, h.dials.Load())
	})
}

// A device of another host, which is not refused yet, does not keep devices of the right host out
// for good.
func TestAMuxBelongsToTheHostThatAcceptedADevice(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		mux := amqp.NewMux(h.options())
		wrong := *h.CredsWith(t, hubfixture.WrongKey)
		wrong.GatewayHost = "other.example.com"
		slow := h.inject(fault.Fault{Kind: fault.SlowToken, Delay: 5 * time.Second})
		bad, err := device.New(&wrong, mux, nil)
		require.NoError(t, err)
		defer bad.Close()
		require.NoError(t, bad.Start())
		time.Sleep(time.Second)
		require.Equal(t, 1, slow.Fired())

		creds := h.device(t, "good")
		_, err = tryStart(t, mux, creds)
		require.Equal(t, transport.Unavailable, transport.KindOf(err), "%v", err)
		require.ErrorContains(t, err, "other.example.com")
		good, err := device.New(creds, mux, nil)
		require.NoError(t, err)
		defer good.Close()
		began := time.Now()
		require.NoError(t, good.Open(t.Context()))
		require.Less(t, time.Since(began), 20*time.Second, "5 s, and a wait by its policy")
		require.Equal(t, transport.Unauthorized, transport.KindOf(bad.Status().Err))

		right := *h.device(t, "late")
		right.GatewayHost = "other.example.com"
		_, err = tryStart(t, mux, &right)
		require.Equal(t, transport.Invalid, transport.KindOf(err), "now it is settled")
	})
}

func TestDevicesThatMayNotJoin(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		o := h.options()
		o.Devices = 2
		mux := amqp.NewMux(o)
		start(t, mux, h.CredsWith(t, ""))
		_, err := tryStart(t, mux, h.CredsWith(t, hubfixture.WrongKey))
		require.Equal(t, transport.Unauthorized, transport.KindOf(err))

		elsewhere := *h.CredsWith(t, "")
		elsewhere.Host = "other.example.test"
		_, err = tryStart(t, mux, &elsewhere)
		require.Equal(t, transport.Invalid, transport.KindOf(err))
		require.ErrorContains(t, err, "another Mux")

		_, err = tryStart(t, mux, &transport.Credentials{Host: h.HostName(), DeviceID: "dev-1"})
		require.Equal(t, transport.Invalid, transport.KindOf(err))

		b := start(t, mux, h.device(t, "b"))
		c := h.device(t, "c")
		_, err = tryStart(t, mux, c)
		require.Equal(t, transport.Quota, transport.KindOf(err))
		b.cancel()
		<-b.over
		start(t, mux, c).requireSends("x")

		o = h.options()
		o.Auth = amqp.AuthPlain
		_, err = tryStart(t, amqp.NewMux(o), c)
		require.Equal(t, transport.Invalid, transport.KindOf(err))
	})
}

// A fleet on one connection survives faults of some devices and of all: no acknowledged message is
// missing.
func TestAFleetUnderFaults(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		const n, messages = 20, 100
		all := fleet(t, h, amqp.NewMux(h.options()), n)
		kinds := []fault.Kind{
			fault.DetachAfterMessage, fault.EndOnMessage, fault.ReleaseMessage, fault.DropAfterPublish,
			fault.DetachOnMessage, fault.CloseOnMessage,
			fault.ModifyMessage, fault.DropBeforePublish, fault.RefuseToken,
		}
		for i := range messages {
			if i%5 == 0 {
				h.inject(fault.Fault{Kind: kinds[i/5%len(kinds)], Status: 503, Device: fmt.Sprintf("fleet-%d", i%n)})
			}
			for _, c := range all {
				require.NoError(t, c.Enqueue(t.Context(), numbered(i), nil))
			}
			time.Sleep(777 * time.Millisecond)
		}
		each(all, func(_ int, c *device.Client) {
			if err := c.Flush(t.Context()); err != nil {
				t.Error(err)
			}
		})
		for i, c := range all {
			requireAll(t, h, fmt.Sprintf("fleet-%d", i), messages)
			require.NoError(t, c.Close())
		}
		require.Greater(t, h.dials.Load(), int32(3))
		require.Less(t, h.dials.Load(), int32(40))
	})
}

// Devices that are closed while they join do not close the token links of the others.
func TestDevicesThatLeaveDoNotDisturbTokensOfOthers(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		mux := amqp.NewMux(h.options())
		start(t, mux, h.CredsWith(t, ""))
		slow := h.inject(fault.Fault{Kind: fault.SlowToken, Delay: 5 * time.Second, Device: "slow", Times: -1})
		creds := h.device(t, "slow")
		joined := make(chan *running)
		go func() {
			r, _ := tryStart(t, mux, creds)
			joined <- r
		}()
		synctest.Wait()
		over, cancel := context.WithCancel(t.Context())
		cancel()
		quitter := h.device(t, "quitter")
		for range 50 {
			_, err := mux.Dial(over, &transport.Config{Creds: quitter, Window: 1, Queue: 1, Sink: &sink{}})
			require.Error(t, err)
		}
		r := <-joined
		require.NotNil(t, r, "it was refused for what others did")
		require.Equal(t, 1, slow.Fired(), "its token was put more than once")
		r.requireSends("x")
	})
}

// Devices whose tokens are not answered do not block the others, when they join and after a loss of
// the connection.
func TestManyBadDevices(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		mux := amqp.NewMux(h.options())
		keep := fleet(t, h, mux, 3)
		for i := range 40 {
			id := fmt.Sprintf("bad-%d", i)
			h.inject(fault.Fault{Kind: fault.SwallowToken, Device: id, Times: -1})
			bad, err := device.New(h.device(t, id), mux, nil)
			require.NoError(t, err)
			defer bad.Close()
			require.NoError(t, bad.Start())
		}
		time.Sleep(time.Minute)
		began := time.Now()
		h.Drop("")
		each(keep, func(i int, c *device.Client) {
			if err := c.Send(t.Context(), numbered(i)); err != nil {
				t.Error(err)
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("a good device was back after %v", took)
			}
			_ = c.Close()
		})
	})
}

// When one device more joins than the peer allows sessions, it is refused, and the others keep
// their connection.
func TestMoreDevicesThanSessions(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		h := smallHub(t, 5)
		mux := amqp.NewMux(h.options())
		var all []*running
		for i := range 10 {
			r, err := tryStart(t, mux, h.device(t, fmt.Sprintf("dev-%d", i)))
			if i >= 4 {
				require.Equal(t, transport.Quota, transport.KindOf(err), "%v", err)
				require.ErrorContains(t, err, "channel-max")
				continue
			}
			require.NoError(t, err)
			all = append(all, r)
			r.requireSends("x")
		}
		for _, r := range all {
			r.requireSends("y")
			r.cancel()
			<-r.over
		}
		require.EqualValues(t, 1, h.dials.Load())
	})
}

// crowded returns a hub that allows 6 sessions on a connection, and options with a network that
// delays each end of a session, for ever if the delay is negative.
func crowded(t *testing.T, late time.Duration) (*hub, *amqp.Options) {
	h := smallHub(t, 5)
	o := h.options()
	dial := o.Network.Dial
	o.Network.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		return &filter{c, func(channel uint16, p wire.Performative) bool {
			end, ok := p.(*wire.End)
			if ok && late >= 0 {
				frame, _ := wire.AppendFrame(nil, channel, end, nil)
				time.AfterFunc(late, func() { _, _ = c.Write(frame) })
			}
			return !ok
		}}, err
	}
	return h, o
}

// Devices join and leave faster than the hub ends their sessions: joining devices wait, and the
// connection stays.
func TestSessionsThatEndLate(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		h, o := crowded(t, 4*time.Second)
		mux := amqp.NewMux(o)
		good := start(t, mux, h.device(t, "good"))
		good.requireSends("x")
		for i := range 20 {
			guest := start(t, mux, h.device(t, fmt.Sprintf("guest-%d", i)))
			began := time.Now()
			guest.requireSends("y")
			require.LessOrEqual(t, time.Since(began), 4*time.Second)
			guest.cancel()
			<-guest.over
		}
		good.requireSends("z")
		require.EqualValues(t, 1, h.dials.Load())
	})
}

// The hub never ends sessions: a device for which no session is left is refused, and the others
// keep the connection.
func TestSessionsThatDoNotEnd(t *testing.T) {
	for name, addresses := range map[string]*amqp.Addresses{"CBS": nil,
		"addresses": {Telemetry: "/devices/{device}/messages/events"}} {
		testkit.Run(t, name, func(t *testing.T) {
			h, o := crowded(t, -1)
			first := h.device(t, "good")
			free := 4
			if o.Addresses = addresses; addresses != nil {
				first = asUser(t, first, first)
				free++ // no session is needed for tokens
			}
			mux := amqp.NewMux(o)
			good := start(t, mux, first)
			good.requireSends("x")
			guests := first
			if addresses == nil {
				guests = h.device(t, "guest")
			}
			for range free {
				guest := start(t, mux, guests)
				guest.requireSends("y")
				guest.cancel()
				<-guest.over
			}
			for range 3 {
				began := time.Now()
				guest, err := tryStart(t, mux, guests)
				if addresses == nil {
					require.NoError(t, err)
					guest.send(0, "y")
					err = guest.requireEnd(transport.Quota)
				}
				require.Equal(t, transport.Quota, transport.KindOf(err), "%v", err)
				require.ErrorContains(t, err, "channel-max")
				require.InDelta(t, 5, time.Since(began).Seconds(), 1)
				good.requireSends("z")
			}
			require.EqualValues(t, 1, h.dials.Load())
		})
	}
}

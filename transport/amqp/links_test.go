package amqp_test

import (
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
)

// A detached link is attached again on the same connection; the messages in flight are sent again.
func TestALinkIsLostUnderWay(t *testing.T) {
	for _, condition := range []string{"", "amqp:link:detach-forced", "amqp:internal-error",
		"com.microsoft:device-container-throttled", "com.microsoft:link-creation-conflict", "com.example:odd"} {
		t.Run(condition, func(t *testing.T) {
			bubble(t, func(t *testing.T, h *hub) {
				o := h.options()
				o.Batch = 1
				r := h.dev1(t, o)
				in := h.inject(fault.Fault{Kind: fault.DetachAfterMessage, After: 2, Condition: condition})
				r.send(0, "a", "b", "c", "d", "e")
				time.Sleep(time.Second)
				all := r.sink.AllResults()
				require.Len(t, all, 5)
				kind := transport.Unavailable
				if condition == "com.microsoft:device-container-throttled" {
					kind = transport.Throttled
				}
				require.Equal(t, 1, in.Fired())
				last, failures := uint16(0), 0
				for _, d := range all {
					if d.Err == nil {
						continue
					}
					failures++
					require.GreaterOrEqual(t, d.Tag, uint16(2))
					require.Greater(t, d.Tag, last, "in the order of sending")
					last = d.Tag
					require.Equal(t, kind, transport.KindOf(d.Err), "%v", d.Err)
					require.Equal(t, transport.ScopeOperation, transport.Find(d.Err).Scope)
				}
				t.Logf("%d of 3 were told to try again", failures)
				r.requireSends("again")
				require.EqualValues(t, 1, h.dials.Load())
				r.requireAlive()
			})
		})
	}
}

// A link that was lost while idle is replaced without a report.
func TestALinkIsLostWhileIdle(t *testing.T) {
	for name, lose := range map[string]func(h *hub){
		"link": func(h *hub) {
			h.DetachLinks("dev-1", fault.LinkTelemetry, hubdata.AMQPError{Condition: "amqp:link:detach-forced"})
		},
		"session": func(h *hub) { h.EndSessions("dev-1", hubdata.AMQPError{Condition: "amqp:session:errant-link"}) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, h *hub) {
				r := h.dev1(t, h.options())
				for i := range 6 {
					r.requireSends("x")
					lose(h)
					time.Sleep([]time.Duration{10 * time.Millisecond, 10 * time.Minute}[i%2]) // before the goroutines end, and after
				}
				r.requireSends("y")
				require.Len(t, h.Messages(), 7)
				require.EqualValues(t, 1, h.dials.Load())
			})
		})
	}
}

// When the AMQP session ends with the attach of the link, the link is attached on a new session,
// and the loss of the former one does not count against it.
func TestASessionThatEndsWithItsFirstAttach(t *testing.T) {
	accepted := 0
	for range 20 {
		testkit.Bubble(t, func(t *testing.T) {
			first := true
			r := start(t, amqp.New(&amqp.Options{Network: between(func(c net.Conn) {
				hello(c, wire.ProtocolAMQP)
				listen(c, func(channel uint16, got wire.Performative, _ []byte) bool {
					switch got := got.(type) {
					case *wire.Open:
						say(c, 0, &wire.Open{ContainerID: "h", MaxFrameSize: 1 << 16, ChannelMax: 9})
					case *wire.Begin:
						say(c, channel, &wire.Begin{RemoteChannel: wire.Some(channel), IncomingWindow: 100, OutgoingWindow: 100})
					case *wire.Attach:
						together, err := wire.AppendFrame(nil, channel, &wire.Attach{Name: got.Name, Handle: got.Handle,
							Role: wire.RoleReceiver, Source: got.Source, Target: got.Target}, nil)
						require.NoError(t, err)
						var next wire.Performative = &wire.Flow{NextIncomingID: wire.Some(uint32(0)), IncomingWindow: 100,
							Handle: wire.Some(got.Handle), DeliveryCount: wire.Some(uint32(0)), LinkCredit: wire.Some(uint32(9))}
						if first {
							next, first = &wire.End{}, false
						}
						together, err = wire.AppendFrame(together, channel, next, nil)
						require.NoError(t, err)
						_, _ = c.Write(together)
					case *wire.Transfer:
						say(c, channel, &wire.Disposition{Role: wire.RoleReceiver, First: got.DeliveryID.V, Settled: true,
							State: &wire.Accepted{}})
					case *wire.Close:
						say(c, 0, &wire.Close{})
					}
					return true
				})
			})}), &transport.Credentials{Host: "hub.example.test", DeviceID: "d"})
			if r.outcome("x", time.Second) == nil {
				accepted++
			}
			r.cancel()
			<-r.over
		})
	}
	require.Greater(t, accepted, 5) // the message fails if its goroutine comes between both frames
}

// A device that rarely sends notices within 10 s that the hub has disabled it, on its own
// connection and on a shared one.
func TestAnIdleDeviceIsDisabled(t *testing.T) {
	for _, shared := range []bool{false, true} {
		bubble(t, func(t *testing.T, h *hub) {
			var tr transport.Transport = amqp.New(h.options())
			if shared {
				tr = amqp.NewMux(h.options())
			}
			other := start(t, tr, h.device(t, "other"))
			other.requireSends("x")
			c, err := device.New(h.CredsWith(t, ""), tr, nil)
			require.NoError(t, err)
			defer c.Close()
			require.NoError(t, c.Open(t.Context()))
			require.NoError(t, c.Send(t.Context(), numbered(0)))
			time.Sleep(5 * time.Minute)
			require.Equal(t, device.StateConnected, c.Status().State)
			require.NoError(t, h.SetEnabled("dev-1", false))
			time.Sleep(11 * time.Second)
			require.Equal(t, device.StateDisconnected, c.Status().State)
			require.Equal(t, transport.Unauthorized, transport.KindOf(c.Status().Err), "%v", c.Status().Err)
			other.requireAlive()
			other.requireSends("y")
		})
	}
}

// The loss of an idle link is not reported, and the next message attaches another one. An idle
// fleet has no goroutines for its probes.
func TestIdleLinksThatAreLost(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		const n = 50
		all := fleet(t, h, amqp.NewMux(h.options()), n)
		send := func(i int) {
			each(all, func(_ int, c *device.Client) {
				if err := c.Send(t.Context(), numbered(i)); err != nil {
					t.Error(err)
				}
			})
		}
		send(0)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		idle := goroutines()
		for i := range 2 {
			for k := range n {
				require.Equal(t, 1, h.DetachLinks(fmt.Sprintf("fleet-%d", k), fault.LinkTelemetry,
					hubdata.AMQPError{Condition: "amqp:link:detach-forced"}))
			}
			time.Sleep(15 * time.Second)
			synctest.Wait()
			require.Less(t, goroutines(), idle+n/2)
			send(1 + i)
			time.Sleep(5 * time.Second)
			synctest.Wait()
			require.Less(t, goroutines(), idle+n/2)
		}
		for k, c := range all {
			requireAll(t, h, fmt.Sprintf("fleet-%d", k), 3)
			require.EqualValues(t, 1, c.Stats().Connections)
			require.NoError(t, c.Close())
		}
		require.EqualValues(t, 1, h.dials.Load())
	})
}

package amqpfront_test

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

type violation struct {
	closes, ends, detaches amqpwire.Symbol
	do                     func(p *hubtest.RawPeer)
}

func violations() map[string]violation {
	const nowhere = 9
	attached := func(p *hubtest.RawPeer) { p.Attach(hubtest.SenderTo(hubtest.TelemetryAddress, 1)) }
	return map[string]violation{
		"frame without session": {closes: amqpwire.FramingError,
			do: func(p *hubtest.RawPeer) { p.Say(nowhere, &amqpwire.End{}) }},
		"channel too high": {closes: amqpwire.FramingError, do: func(p *hubtest.RawPeer) { p.Say(8192, &amqpwire.Begin{}) }},
		"second begin":     {closes: amqpwire.IllegalState, do: func(p *hubtest.RawPeer) { p.Say(0, &amqpwire.Begin{}) }},
		"begin that answers": {closes: amqpwire.NotAllowed,
			do: func(p *hubtest.RawPeer) { p.Say(nowhere, &amqpwire.Begin{RemoteChannel: amqpwire.Some(uint16(0))}) }},
		"frame too short": {closes: amqpwire.FramingError, do: func(p *hubtest.RawPeer) { p.Send([]byte{0, 0, 0, 7}) }},
		"frame too long": {closes: amqpwire.FramingError,
			do: func(p *hubtest.RawPeer) { p.Send([]byte{0, 1, 0, 1, 2, 0, 0, 0}) }},
		"bad data offset": {closes: amqpwire.FramingError,
			do: func(p *hubtest.RawPeer) { p.Send([]byte{0, 0, 0, 8, 1, 0, 0, 0}) }},
		"type that is none": {closes: amqpwire.FramingError,
			do: func(p *hubtest.RawPeer) { p.Send([]byte{0, 0, 0, 8, 2, 9, 0, 0}) }},
		"body that is none": {closes: amqpwire.DecodeError,
			do: func(p *hubtest.RawPeer) { p.Send([]byte{0, 0, 0, 9, 2, 0, 0, 0, 0x40}) }},
		"unknown performative": {closes: amqpwire.DecodeError,
			do: func(p *hubtest.RawPeer) { p.Send([]byte{0, 0, 0, 12, 2, 0, 0, 0, 0, 0x53, 0x1a, 0x45}) }},
		"mandatory field missing": {closes: amqpwire.InvalidField,
			do: func(p *hubtest.RawPeer) { p.Send([]byte{0, 0, 0, 12, 2, 0, 0, 0, 0, 0x53, 0x16, 0x45}) }},
		"handle too high": {closes: amqpwire.FramingError,
			do: func(p *hubtest.RawPeer) { p.Say(0, hubtest.SenderTo(hubtest.TelemetryAddress, 256)) }},
		"handle in use": {ends: amqpwire.HandleInUse,
			do: func(p *hubtest.RawPeer) {
				attached(p)
				a := hubtest.SenderTo(hubtest.TelemetryAddress, 1)
				a.Name = "2"
				p.Say(0, a)
			}},
		"no initial-delivery-count": {ends: amqpwire.InvalidField,
			do: func(p *hubtest.RawPeer) {
				a := hubtest.SenderTo(hubtest.TelemetryAddress, 1)
				a.InitialDeliveryCount.OK = false
				p.Say(0, a)
			}},
		"settle mode that is none": {ends: amqpwire.InvalidField,
			do: func(p *hubtest.RawPeer) {
				a := hubtest.SenderTo(hubtest.TelemetryAddress, 1)
				a.SndSettleMode = 3
				p.Say(0, a)
			}},
		"rcv-settle-mode as well": {ends: amqpwire.InvalidField,
			do: func(p *hubtest.RawPeer) {
				a := hubtest.SenderTo(hubtest.TelemetryAddress, 1)
				a.RcvSettleMode = 2
				p.Say(0, a)
			}},
		"flow on no link": {ends: amqpwire.UnattachedHandle,
			do: func(p *hubtest.RawPeer) { p.Say(0, hubtest.Credit(nowhere, 1)) }},
		"transfer on no link": {ends: amqpwire.UnattachedHandle,
			do: func(p *hubtest.RawPeer) { p.Say(0, hubtest.TransferOf(nowhere, 0)) }},
		"detach of no link": {ends: amqpwire.UnattachedHandle,
			do: func(p *hubtest.RawPeer) { p.Say(0, &amqpwire.Detach{Handle: nowhere}) }},
		"credit of no link": {ends: amqpwire.InvalidField,
			do: func(p *hubtest.RawPeer) { p.Say(0, &amqpwire.Flow{LinkCredit: amqpwire.Some(uint32(1))}) }},
		"transfer after detach": {ends: amqpwire.UnattachedHandle, do: func(p *hubtest.RawPeer) {
			attached(p)
			p.Say(0, &amqpwire.Detach{Handle: 1, Closed: true})
			hubtest.Want[*amqpwire.Detach](p)
			p.Say(0, hubtest.TransferOf(1, 5))
		}},
		"transfer to a receiver": {ends: amqpwire.NotAllowed, do: func(p *hubtest.RawPeer) {
			p.Attach(hubtest.ReceiverFrom("/devices/dev-1/messages/devicebound", 1))
			p.Say(0, hubtest.TransferOf(1, 5))
		}},
		"delivery-id again": {ends: amqpwire.InvalidField,
			do: func(p *hubtest.RawPeer) { attached(p); p.Say(0, hubtest.TransferOf(1, 0), hubtest.DataOf(p.T, "x")...) }},
		"disposition of no range": {ends: amqpwire.InvalidField, do: func(p *hubtest.RawPeer) {
			p.Say(0, &amqpwire.Disposition{Role: amqpwire.RoleReceiver, First: 5, Last: amqpwire.Some(uint32(4))})
		}},
		"no delivery-id": {detaches: amqpwire.InvalidField,
			do: func(p *hubtest.RawPeer) {
				attached(p)
				x := hubtest.TransferOf(1, 5)
				x.DeliveryID.OK = false
				p.Say(0, x)
			}},
		"no delivery-tag": {detaches: amqpwire.InvalidField,
			do: func(p *hubtest.RawPeer) { attached(p); x := hubtest.TransferOf(1, 5); x.DeliveryTag = nil; p.Say(0, x) }},
		"delivery-tag too long": {detaches: amqpwire.InvalidField,
			do: func(p *hubtest.RawPeer) {
				attached(p)
				x := hubtest.TransferOf(1, 5)
				x.DeliveryTag = make([]byte, 33)
				p.Say(0, x)
			}},
		"resume": {detaches: amqpwire.NotImplemented,
			do: func(p *hubtest.RawPeer) { attached(p); x := hubtest.TransferOf(1, 5); x.Resume = true; p.Say(0, x) }},
		"deliveries mixed": {detaches: amqpwire.InvalidField, do: func(p *hubtest.RawPeer) {
			attached(p)
			x := hubtest.TransferOf(1, 5)
			x.More = true
			p.Say(0, x, 0)
			p.Say(0, hubtest.TransferOf(1, 6))
		}},
		"not settled as announced": {detaches: amqpwire.InvalidField, do: func(p *hubtest.RawPeer) {
			a := hubtest.SenderTo(hubtest.TelemetryAddress, 1)
			a.SndSettleMode = amqpwire.SendSettled
			p.Attach(a)
			p.Say(0, hubtest.TransferOf(1, 5), hubtest.DataOf(p.T, "x")...)
		}},
		"settled unannounced": {detaches: amqpwire.InvalidField, do: func(p *hubtest.RawPeer) {
			a := hubtest.SenderTo(hubtest.TelemetryAddress, 1)
			a.SndSettleMode = amqpwire.SendUnsettled
			p.Attach(a)
			x := hubtest.TransferOf(1, 5)
			x.Settled = amqpwire.Some(true)
			p.Say(0, x, hubtest.DataOf(p.T, "x")...)
		}},
		"settled message of nonsense": {detaches: amqpwire.DecodeError, do: func(p *hubtest.RawPeer) {
			attached(p)
			x := hubtest.TransferOf(1, 5)
			x.Settled = amqpwire.Some(true)
			p.Say(0, x, 0x40)
		}},
		"message too large": {detaches: amqpwire.MessageSizeExceeded, do: func(p *hubtest.RawPeer) {
			attached(p)
			x := hubtest.TransferOf(1, 5)
			x.More = true
			for range 20 {
				p.Say(0, x, make([]byte, 60000)...)
			}
		}},
		"beyond the credit": {detaches: amqpwire.TransferLimitExceeded, do: func(p *hubtest.RawPeer) {
			p.Say(0, hubtest.SenderTo(hubtest.TelemetryAddress+"/",
				2)) // unknown address: the hub refuses it and gives no credit
			hubtest.Want[*amqpwire.Attach](p)
			hubtest.Want[*amqpwire.Detach](p)
			a := hubtest.SenderTo(hubtest.TelemetryAddress, 1)
			p.Say(0, a)
			hubtest.Want[*amqpwire.Attach](p)
			x := hubtest.TransferOf(1, 5)
			x.Settled = amqpwire.Some(true)
			p.Say(0, x, hubtest.DataOf(p.T, "x")...)
		}},
	}
}

// TestViolationsAreAnswered violates one rule of the standard at a time, and checks the standard's
// condition on the smallest affected unit.
func TestViolationsAreAnswered(t *testing.T) {
	for name, c := range violations() {
		hubtest.RunInBubble(t, name, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
			if c.detaches == amqpwire.TransferLimitExceeded {
				h.Inject(fault.Fault{Kind: fault.WithholdCredit, Link: fault.LinkTelemetry})
			}
			p := hubtest.DialFrames(t, h)
			p.Login(d)
			c.do(p)
			var got amqpwire.Performative
			for {
				f, err := p.Next()
				require.NoError(t, err)
				if _, flow := f.Body.(*amqpwire.Flow); !flow {
					got = f.Body
					break
				}
			}
			switch {
			case c.closes != "":
				require.IsType(t, &amqpwire.Close{}, got)
				require.Equal(t, c.closes, got.(*amqpwire.Close).Error.Condition)
				require.ErrorIs(t, p.Ended(), io.EOF)
			case c.ends != "":
				require.IsType(t, &amqpwire.End{}, got)
				require.Equal(t, c.ends, got.(*amqpwire.End).Error.Condition)
				// Frames that cross the end are ignored; then the channel is free.
				p.Say(0, hubtest.TransferOf(1, 77))
				p.Say(0, &amqpwire.End{})
				p.Begin(0)
			default:
				require.IsType(t, &amqpwire.Detach{}, got)
				require.True(t, got.(*amqpwire.Detach).Closed)
				require.Equal(t, c.detaches, got.(*amqpwire.Detach).Error.Condition)
				// Frames that cross the detach are ignored; then the handle is free, and the session works.
				p.Say(0, hubtest.TransferOf(1, 77))
				p.Say(0, hubtest.Credit(1, 5))
				p.Say(0, &amqpwire.Detach{Handle: 1, Closed: true})
				p.Say(0, hubtest.Credit(1, 5))
				p.Attach(hubtest.SenderTo(hubtest.TelemetryAddress, 1))
			}
		})
	}
}

func TestFramesOfAnUnknownLinkAreAnswered(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		p := hubtest.DialFrames(t, h)
		p.Login(d)
		p.Attach(hubtest.SenderTo(hubtest.TelemetryAddress, 1))
		require.Equal(t, 1, h.DetachLinks("dev-1", fault.LinkTelemetry,
			hubdata.AMQPError{Condition: "amqp:link:detach-forced"}))
		hubtest.Want[*amqpwire.Detach](p)
		p.Say(0, &amqpwire.Detach{Handle: 1, Closed: true})
		p.Say(0, hubtest.TransferOf(1, 5))
		end, _ := hubtest.Want[*amqpwire.End](p)
		require.Equal(t, amqpwire.ErrantLink, end.Error.Condition)
	})
}

// A flood in one write: the client cannot know a window or credit renewed during it, so they do not
// count.
func TestFloods(t *testing.T) {
	for name, c := range map[string]struct {
		window, credit uint32
		ends, detaches amqpwire.Symbol
	}{
		"window": {8, 100, amqpwire.WindowViolation, ""},
		"credit": {100, 8, "", amqpwire.TransferLimitExceeded},
	} {
		hubtest.RunBubble(t, name, func(t *testing.T) {
			h, d := hubtest.NewHub(t, &testbroker.Options{AMQP: testbroker.AMQPOptions{SessionWindow: c.window,
				Credit: c.credit}})
			p := hubtest.DialFrames(t, h)
			p.Login(d)
			p.Attach(hubtest.SenderTo(hubtest.TelemetryAddress, 1))
			id := uint32(5)
			flood := func(n int) (got []amqpwire.Performative) {
				var all []byte
				for range n {
					var err error
					all, err = amqpwire.AppendFrame(all, 0, hubtest.TransferOf(1, id), hubtest.DataOf(t, "x"))
					require.NoError(t, err)
					id++
				}
				p.Send(all)
				synctest.Wait()
				for len(p.In) > 0 || p.Readable() {
					f, err := p.Next()
					require.NoError(t, err)
					got = append(got, f.Body)
				}
				return got
			}
			for range 10 {
				flood(4) // and so on without end
			}
			require.Equal(t, 40, h.Len())
			got := flood(9)
			last := got[len(got)-1]
			if c.ends != "" {
				require.IsType(t, &amqpwire.End{}, last)
				require.Equal(t, c.ends, last.(*amqpwire.End).Error.Condition)
			} else {
				require.IsType(t, &amqpwire.Detach{}, last)
				require.Equal(t, c.detaches, last.(*amqpwire.Detach).Error.Condition)
			}
		})
	}
}

func TestBeforeTheOpen(t *testing.T) {
	for name, c := range map[string]struct {
		say  amqpwire.Performative
		want amqpwire.Symbol
	}{
		"begin": {&amqpwire.Begin{}, amqpwire.IllegalState},
		"close": {&amqpwire.Close{}, amqpwire.IllegalState},
		"frame larger than 512": {&amqpwire.Open{ContainerID: string(make([]byte, 600)), MaxFrameSize: 512},
			amqpwire.FramingError},
		"no container id":         {&amqpwire.Open{MaxFrameSize: 512}, amqpwire.InvalidField},
		"frames smaller than 512": {&amqpwire.Open{ContainerID: "c", MaxFrameSize: 511}, amqpwire.InvalidField},
		"idle for a millisecond": {&amqpwire.Open{ContainerID: "c", MaxFrameSize: 512,
			IdleTimeout: amqpwire.Some(uint32(1))}, amqpwire.NotAllowed},
		"another host": {&amqpwire.Open{ContainerID: "c", MaxFrameSize: 512, Hostname: "hub2.example.test"},
			"com.microsoft:iot-hub-not-found-error"},
	} {
		hubtest.RunInBubble(t, name, nil, func(t *testing.T, h *testbroker.Hub, _ hubdata.Device) {
			p := hubtest.DialFrames(t, h)
			header := amqpwire.ProtocolHeader(amqpwire.ProtocolAMQP)
			p.Send(header[:])
			require.Equal(t, amqpwire.ProtocolAMQP, p.Header())
			p.Say(0, c.say)
			hubtest.Want[*amqpwire.Open](p)
			end, _ := hubtest.Want[*amqpwire.Close](p)
			require.Equal(t, c.want, end.Error.Condition)
			require.ErrorIs(t, p.Ended(), io.EOF)
			require.Zero(t, h.Connections(""))
		})
	}
}

// A client need not wait for answers: some send the whole handshake at once.
func TestPipelinedHandshake(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		for size := range 40 {
			var all []byte
			add := func(channel uint16, body amqpwire.Performative, payload []byte) {
				var err error
				all, err = amqpwire.AppendFrame(all, channel, body, payload)
				require.NoError(t, err)
			}
			sasl, plain := amqpwire.ProtocolHeader(amqpwire.ProtocolSASL), amqpwire.ProtocolHeader(amqpwire.ProtocolAMQP)
			all = append(all, sasl[:]...)
			add(0, &amqpwire.Init{Mechanism: "PLAIN", InitialResponse: []byte("\x00dev-1@sas.hub\x00" + hubtest.Token(d))}, nil)
			all = append(all, plain[:]...)
			add(0, &amqpwire.Open{ContainerID: "c", MaxFrameSize: 1 << 16, ChannelMax: 1}, nil)
			add(1, &amqpwire.Begin{IncomingWindow: 10, OutgoingWindow: 10}, nil)
			add(1, hubtest.SenderTo(hubtest.TelemetryAddress, 0), nil)
			add(0, nil, nil)
			p := hubtest.DialFrames(t, h)
			for piece := range pieces(all, size) {
				p.Send(piece)
				synctest.Wait()
			}
			require.Equal(t, amqpwire.ProtocolSASL, p.Header())
			hubtest.Want[*amqpwire.Mechanisms](p)
			outcome, _ := hubtest.Want[*amqpwire.Outcome](p)
			require.Equal(t, amqpwire.SASLOK, outcome.Code)
			require.Equal(t, amqpwire.ProtocolAMQP, p.Header())
			hubtest.Want[*amqpwire.Open](p)
			hubtest.Want[*amqpwire.Begin](p)
			hubtest.Want[*amqpwire.Attach](p)
			flow, _ := hubtest.Want[*amqpwire.Flow](p)
			require.Equal(t, amqpwire.Some(uint32(500)), flow.LinkCredit)
			p.Say(1, hubtest.TransferOf(0, 0), hubtest.DataOf(t, "x")...)
			hubtest.Want[*amqpwire.Disposition](p)
			p.Say(0, &amqpwire.Close{})
			hubtest.Want[*amqpwire.Close](p)
			require.ErrorIs(t, p.Ended(), io.EOF)
		}
		require.Equal(t, 40, h.Len())
	})
}

// pieces splits b into pieces of a size; zero means one piece.
func pieces(b []byte, size int) func(func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for len(b) > 0 {
			n := len(b)
			if size > 0 {
				n = min(n, size)
			}
			if !yield(b[:n]) {
				return
			}
			b = b[n:]
		}
	}
}

func TestIdleTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := hubtest.NewHub(t, &testbroker.Options{AMQP: testbroker.AMQPOptions{IdleTimeout: time.Minute}})
		p := hubtest.DialFrames(t, h)
		answer := p.Open(nil)
		require.Equal(t, amqpwire.Some(uint32(30000)), answer.IdleTimeout, "half of it is announced")
		for range 10 {
			time.Sleep(59 * time.Second)
			p.Say(0, nil)
		}
		require.Equal(t, 1, h.Connections(""))
		start := time.Now()
		end, _ := hubtest.Want[*amqpwire.Close](p)
		require.Equal(t, amqpwire.ResourceLimitExceeded, end.Error.Condition)
		require.Equal(t, time.Minute, time.Since(start))
		require.ErrorIs(t, p.Ended(), io.EOF)
		time.Sleep(2 * time.Second) // the client's time to close
		require.Zero(t, h.Connections(""))
	})
}

func TestTheHubKeepsConnectionsAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := hubtest.NewHub(t, &testbroker.Options{AMQP: testbroker.AMQPOptions{IdleTimeout: -1}})
		p := hubtest.DialFrames(t, h)
		answer := p.Open(&amqpwire.Open{ContainerID: "c", MaxFrameSize: 512, IdleTimeout: amqpwire.Some(uint32(10000))})
		require.False(t, answer.IdleTimeout.OK)
		for range 100 {
			start := time.Now()
			f, err := p.Next()
			require.NoError(t, err)
			require.Nil(t, f.Body)
			require.LessOrEqual(t, time.Since(start), 5*time.Second)
		}
	})
}

func TestAbortedAndPartialDeliveries(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		p := hubtest.DialFrames(t, h)
		p.Login(d)
		p.Attach(hubtest.SenderTo(hubtest.TelemetryAddress, 1))
		p.Attach(&amqpwire.Attach{Name: "other", Handle: 2, Role: amqpwire.RoleSender, SndSettleMode: amqpwire.SendMixed,
			Source: &amqpwire.Source{}, Target: &amqpwire.Target{Address: hubtest.TelemetryAddress},
			InitialDeliveryCount: amqpwire.Some(uint32(7))})
		whole := hubtest.DataOf(t, "hello")
		first := hubtest.TransferOf(1, 10)
		first.More = true
		p.Say(0, first, whole[:3]...)
		// Deliveries of different links may interleave.
		p.Say(0, hubtest.TransferOf(2, 11), hubtest.DataOf(t, "between")...)
		p.Say(0, &amqpwire.Transfer{Handle: 1, More: true}, whole[3:6]...)
		p.Say(0, &amqpwire.Transfer{Handle: 1, Settled: amqpwire.Some(false)}, whole[6:]...)
		aborted := hubtest.TransferOf(1, 12)
		aborted.More = true
		p.Say(0, aborted, 1, 2, 3)
		p.Say(0, &amqpwire.Transfer{Handle: 1, Aborted: true})
		p.Say(0, hubtest.TransferOf(1, 13), hubtest.DataOf(t, "after")...)
		synctest.Wait()
		var bodies []string
		for _, m := range h.Messages() {
			bodies = append(bodies, string(m.Body))
		}
		require.Equal(t, []string{"between", "hello", "after"}, bodies)
	})
}

// The answer to an echo has the hub's state.
func TestEchoAndDrain(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		p := hubtest.DialFrames(t, h)
		p.Login(d)
		p.Say(0, &amqpwire.Flow{NextIncomingID: amqpwire.Some(uint32(1)), IncomingWindow: 100, Echo: true})
		flow, _ := hubtest.Want[*amqpwire.Flow](p)
		require.Equal(t, amqpwire.Some(uint32(1)), flow.NextIncomingID)
		p.Attach(hubtest.SenderTo(hubtest.TelemetryAddress, 1))
		p.Say(0, &amqpwire.Flow{NextIncomingID: amqpwire.Some(uint32(1)), IncomingWindow: 100,
			Handle: amqpwire.Some(uint32(1)), Echo: true})
		flow, _ = hubtest.Want[*amqpwire.Flow](p)
		require.Equal(t, amqpwire.Some(uint32(500)), flow.LinkCredit)

		p.Attach(hubtest.ReceiverFrom("/devices/dev-1/messages/devicebound", 2))
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Body: []byte("1")}))
		drain := hubtest.Credit(2, 5)
		drain.NextIncomingID, drain.Drain = amqpwire.Some(uint32(1)), true
		p.Say(0, drain)
		hubtest.Want[*amqpwire.Transfer](p)
		flow, _ = hubtest.Want[*amqpwire.Flow](p)
		require.Equal(t, amqpwire.Some(uint32(5)), flow.DeliveryCount)
		require.Equal(t, amqpwire.Some(uint32(0)), flow.LinkCredit)
		require.True(t, flow.Drain)
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Body: []byte("2")}))
		synctest.Wait()
		require.Equal(t, 1, h.CountC2D("dev-1", hubdata.C2DEnqueued), "the credit is used up")
	})
}

// The client's window limits the hub's transfers, in addition to credit.
func TestTheClientsWindowIsObeyed(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		p := hubtest.DialFrames(t, h)
		p.Open(&amqpwire.Open{ContainerID: "c", MaxFrameSize: 512})
		p.Say(0, &amqpwire.Begin{IncomingWindow: 3, OutgoingWindow: 100})
		hubtest.Want[*amqpwire.Begin](p)
		p.Attach(hubtest.SenderTo("$cbs", 100))
		p.Attach(hubtest.ReceiverFrom("$cbs", 101))
		c := hubtest.Credit(101, 1)
		c.IncomingWindow = 3
		p.Say(0, c)
		require.Equal(t, 200, p.Put(0, "put-token", hubtest.Token(d)))
		p.Attach(hubtest.ReceiverFrom("/devices/dev-1/messages/devicebound", 1))
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Body: make([]byte, 2000)}))
		c = hubtest.Credit(1, 10)
		c.NextIncomingID, c.IncomingWindow = amqpwire.Some(uint32(1)), 2
		p.Say(0, c)
		var payload []byte
		for n := range 10 {
			if n > 0 && n%2 == 0 {
				synctest.Wait()
				require.Empty(t, p.In)
				p.Say(0, &amqpwire.Flow{NextIncomingID: amqpwire.Some(uint32(1 + n)), IncomingWindow: 2})
			}
			x, f := hubtest.Want[*amqpwire.Transfer](p)
			payload = append(payload, f.Payload...)
			require.Equal(t, n == 0, x.DeliveryID.OK)
			if !x.More {
				break
			}
		}
		m, err := amqpwire.DecodeMessage(payload)
		require.NoError(t, err)
		require.Len(t, m.Body(), 2000)
	})
}

// A client cannot expect a transfer behind the next one of the hub.
func TestANextIncomingIDDoesNotLead(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		p := hubtest.DialFrames(t, h)
		p.Login(d) // with one transfer of the hub
		p.Say(0, &amqpwire.Flow{NextIncomingID: amqpwire.Some(uint32(1)), IncomingWindow: 100, Echo: true})
		hubtest.Want[*amqpwire.Flow](p)
		p.Say(0, &amqpwire.Flow{NextIncomingID: amqpwire.Some(uint32(2)), IncomingWindow: 100, Echo: true})
		end, _ := hubtest.Want[*amqpwire.End](p)
		require.Equal(t, amqpwire.WindowViolation, end.Error.Condition)
	})
}

// Ids and counts are serial numbers: zero follows the highest.
func TestSerialNumbersWrap(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		p := hubtest.DialFrames(t, h)
		p.Login(d)
		p.Say(1, &amqpwire.Begin{NextOutgoingID: 1<<32 - 2, IncomingWindow: 100, OutgoingWindow: 100})
		hubtest.Want[*amqpwire.Begin](p)
		a := hubtest.SenderTo(hubtest.TelemetryAddress, 1)
		a.InitialDeliveryCount = amqpwire.Some(uint32(1<<32 - 1))
		p.Say(1, a)
		hubtest.Want[*amqpwire.Attach](p)
		flow, _ := hubtest.Want[*amqpwire.Flow](p)
		require.Equal(t, a.InitialDeliveryCount, flow.DeliveryCount)
		var all []byte
		for i := range uint32(4) {
			var err error
			all, err = amqpwire.AppendFrame(all, 1, hubtest.TransferOf(1, 1<<32-2+i), hubtest.DataOf(t, "x"))
			require.NoError(t, err)
		}
		p.Send(all)
		disposition, _ := hubtest.Want[*amqpwire.Disposition](p)
		require.Equal(t, uint32(1<<32-2), disposition.First)
		require.Equal(t, amqpwire.Some(uint32(1)), disposition.Last, "one disposition settles four")
		require.Equal(t, 4, h.Len())
		p.Say(1, &amqpwire.Flow{NextIncomingID: amqpwire.Some(uint32(0)), IncomingWindow: 1<<32 - 1, Echo: true})
		flow, _ = hubtest.Want[*amqpwire.Flow](p)
		require.Equal(t, amqpwire.Some(uint32(2)), flow.NextIncomingID)
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Body: []byte("1")}))
		p.Say(1, hubtest.ReceiverFrom("/devices/dev-1/messages/devicebound", 2))
		hubtest.Want[*amqpwire.Attach](p)
		wide := hubtest.Credit(2, 1<<32-1)
		wide.IncomingWindow = 1<<32 - 1
		p.Say(1, wide)
		hubtest.Want[*amqpwire.Transfer](p)
	})
}

// A client may give credit before its attach is answered.
func TestCreditBeforeTheAnswer(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Body: []byte("1")}))
		h.Inject(fault.Fault{Kind: fault.SlowAttach, Link: fault.LinkC2D, Delay: time.Minute})
		p := hubtest.DialFrames(t, h)
		p.Login(d)
		p.Say(0, hubtest.ReceiverFrom("/devices/dev-1/messages/devicebound", 1))
		p.Say(0, hubtest.Credit(1, 1))
		start := time.Now()
		hubtest.Want[*amqpwire.Attach](p)
		require.Equal(t, time.Minute, time.Since(start))
		hubtest.Want[*amqpwire.Transfer](p)
	})
}

// A client can detach a link whose attach is unanswered.
func TestGivingUpAnAttach(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		for _, kind := range []fault.Kind{fault.SwallowAttach, fault.SlowAttach} {
			h.Inject(fault.Fault{Kind: kind, Link: fault.LinkTelemetry, Delay: time.Minute})
			p := hubtest.DialFrames(t, h)
			p.Login(d)
			p.Say(0, hubtest.SenderTo(hubtest.TelemetryAddress, 1))
			p.Say(0, &amqpwire.Detach{Handle: 1, Closed: true})
			answer, _ := hubtest.Want[*amqpwire.Attach](p)
			require.Nil(t, answer.Target)
			hubtest.Want[*amqpwire.Detach](p)
			time.Sleep(2 * time.Minute)
			p.Attach(hubtest.SenderTo(hubtest.TelemetryAddress, 1))
			require.Equal(t, 1, h.Links("dev-1", fault.LinkAny))
			p.Conn.Close()
			synctest.Wait()
			require.Zero(t, h.Links("dev-1", fault.LinkAny))
		}
	})
}

// Answers wait for credit up to a limit, and need a receiver.
func TestAnswersWithoutCredit(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		p := hubtest.DialFrames(t, h)
		p.Open(nil)
		p.Begin(0)
		p.Attach(hubtest.SenderTo("$cbs", 100))
		request := func(id uint32) {
			p.Say(0, hubtest.TransferOf(100, id), hubtest.Encoded(t, &amqpwire.Message{
				Properties: &amqpwire.Properties{MessageID: uint64(id)}, Value: hubtest.Token(d), HasValue: true,
				ApplicationProperties: amqpwire.Map{{Key: "operation", Value: "put-token"},
					{Key: "type", Value: "azure-devices.net:sastoken"}, {Key: "name", Value: "x"}},
			})...)
		}
		request(0)
		hubtest.Want[*amqpwire.Disposition](p)
		detach, _ := hubtest.Want[*amqpwire.Detach](p)
		require.Equal(t, amqpwire.PreconditionFailed, detach.Error.Condition)
		p.Say(0, &amqpwire.Detach{Handle: 100, Closed: true})
		p.Attach(hubtest.SenderTo("$cbs", 100))
		p.Attach(hubtest.ReceiverFrom("$cbs", 101))
		for i := range uint32(1001) {
			request(1 + i)
		}
		for {
			f, err := p.Next()
			require.NoError(t, err)
			if detach, ok := f.Body.(*amqpwire.Detach); ok {
				require.EqualValues(t, 101, detach.Handle)
				require.Equal(t, amqpwire.ResourceLimitExceeded, detach.Error.Condition)
				break
			}
		}
	})
}

// Close is quick and leaves nothing behind, in every state of connections.
func TestCloseOfAHubWithAMQP(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		h.Inject(fault.Fault{Kind: fault.SlowAttach, Link: fault.LinkTwinSender, Delay: time.Hour})
		h.Inject(fault.Fault{Kind: fault.SlowPuback, Delay: time.Hour})
		hubtest.DialFrames(t, h)
		half := hubtest.DialFrames(t, h)
		half.Send([]byte("AMQP"))
		open := hubtest.DialFrames(t, h)
		open.Open(nil)
		busy := hubtest.DialFrames(t, h)
		busy.Login(d)
		busy.Attach(hubtest.SenderTo(hubtest.TelemetryAddress, 1))
		busy.Say(0, hubtest.TransferOf(1, 5), hubtest.DataOf(t, "x")...)
		busy.Say(0, hubtest.SenderTo("/devices/dev-1/twin", 2))
		busy.Attach(hubtest.ReceiverFrom("/devices/dev-1/messages/devicebound", 3))
		busy.Say(0, hubtest.Credit(3, 10))
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Body: []byte("1")}))
		dead := hubtest.DialFrames(t, h)
		dead.Login(d)
		dead.Attach(hubtest.SenderTo(hubtest.TelemetryAddress, 1))
		h.Inject(fault.Fault{Kind: fault.HalfOpen})
		synctest.Wait()
		start := time.Now()
		require.NoError(t, h.Close())
		require.Zero(t, time.Since(start))
		require.Zero(t, h.Connections("")+h.Links("", fault.LinkAny))
	})
}

func FuzzAMQPConnection(f *testing.F) {
	seed := func(frames ...hubtest.RawFrame) {
		var all []byte
		for _, x := range frames {
			all, _ = amqpwire.AppendFrame(all, x.Channel, x.Body, x.Payload)
		}
		f.Add(all)
	}
	seed(hubtest.RawFrame{Body: hubtest.SenderTo(hubtest.TelemetryAddress, 1)},
		hubtest.RawFrame{Body: hubtest.TransferOf(1, 5), Payload: []byte{0, 0x53, 0x75,
			0xa0, 0}})
	seed(hubtest.RawFrame{Body: hubtest.ReceiverFrom("/devices/dev-1/messages/devicebound", 1)},
		hubtest.RawFrame{Body: hubtest.Credit(1, 10)},
		hubtest.RawFrame{Body: &amqpwire.Disposition{Role: true, State: &amqpwire.Modified{}}})
	seed(hubtest.RawFrame{Body: hubtest.ReceiverFrom("/devices/dev-1/twin", 1)},
		hubtest.RawFrame{Body: hubtest.SenderTo("/devices/dev-1/twin", 2)},
		hubtest.RawFrame{Body: &amqpwire.Detach{Handle: 1}},
		hubtest.RawFrame{Body: &amqpwire.End{}}, hubtest.RawFrame{Body: &amqpwire.Close{}})
	h, err := testbroker.New(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { h.Close() })
	d, err := h.AddDevice("dev-1")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p := hubtest.DialFrames(t, h)
		p.Login(d)
		h.SendC2D("dev-1", hubdata.C2D{Body: []byte("x")})
		p.Send(b)
		require.NoError(t, p.Conn.(interface{ CloseWrite() error }).CloseWrite())
		p.Conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		for {
			_, err := p.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			require.NoError(t, err, "the hub sends no nonsense, and ends the connection in the end")
		}
	})
}

package amqp_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
)

// windowPeer is a peer that counts the window of each session strictly: it ends a session for a
// transfer beyond it.
type windowPeer struct {
	window  uint32 // of a session
	renewAt uint32 // the rest at which the window is renewed
	credit  uint32 // renewed at half, with the rest of the window
	omit    bool   // flows lack next-incoming-id
	most    int    // transfers of a session, after which the peer ends it; 0: any

	mu                      sync.Mutex
	messages                map[string]int // by their bodies
	sessions, flows, beyond int
}

func (p *windowPeer) options() *amqp.Options {
	p.messages = map[string]int{}
	return &amqp.Options{Batch: 1, Network: between(p.serve)}
}

// windowSession is a session of a windowPeer, with one link at most.
type windowSession struct {
	*windowPeer
	send         func(wire.Performative)
	window, next uint32
	handle       uint32
	credit       uint32
	count        uint32
	transfers    int
}

func (p *windowPeer) serve(c net.Conn) {
	hello(c, wire.ProtocolAMQP)
	sessions := map[uint16]*windowSession{}
	listen(c, func(channel uint16, got wire.Performative, payload []byte) bool {
		switch got.(type) {
		case *wire.Open:
			say(c, channel, &wire.Open{ContainerID: "window", MaxFrameSize: 1 << 16, ChannelMax: 100})
		case *wire.Begin:
			sessions[channel] = p.begin(func(out wire.Performative) { say(c, channel, out) }, channel)
		case *wire.Close:
			say(c, channel, &wire.Close{})
			return false
		default:
			if s := sessions[channel]; s != nil && !s.frame(got, payload) {
				delete(sessions, channel)
			}
		}
		return true
	})
}

func (p *windowPeer) begin(send func(wire.Performative), channel uint16) *windowSession {
	p.mu.Lock()
	p.sessions++
	p.mu.Unlock()
	send(&wire.Begin{RemoteChannel: wire.Some(channel), IncomingWindow: p.window, OutgoingWindow: 100, HandleMax: 100})
	return &windowSession{windowPeer: p, send: send, window: p.window}
}

// frame handles a frame. It returns false when the session has ended.
func (s *windowSession) frame(got wire.Performative, payload []byte) bool {
	switch got := got.(type) {
	case *wire.Attach:
		s.send(&wire.Attach{Name: got.Name, Handle: got.Handle, Role: wire.RoleReceiver, Source: got.Source,
			Target: got.Target})
		s.handle, s.count = got.Handle, 0
		s.giveCredit()
	case *wire.Transfer:
		return s.transfer(got, payload)
	case *wire.Detach:
		s.send(&wire.Detach{Handle: got.Handle, Closed: true})
	case *wire.End:
		s.send(&wire.End{})
		return false
	}
	return true
}

func (s *windowSession) transfer(t *wire.Transfer, payload []byte) bool {
	if s.window == 0 {
		s.mu.Lock()
		s.beyond++
		s.mu.Unlock()
		s.send(&wire.End{Error: wire.Errorf(wire.WindowViolation, "transfer beyond the window")})
		return false
	}
	s.window--
	s.next++
	s.count++
	s.credit--
	if s.transfers++; s.most > 0 && s.transfers > s.most {
		s.send(&wire.End{Error: wire.Errorf("amqp:session:errant-link", "enough")})
		return false
	}
	m, err := wire.DecodeMessage(payload)
	if err != nil {
		panic(err)
	}
	s.mu.Lock()
	s.messages[string(m.Body())]++
	s.mu.Unlock()
	s.send(&wire.Disposition{Role: wire.RoleReceiver, First: t.DeliveryID.V, Settled: true, State: &wire.Accepted{}})
	if s.window <= s.renewAt {
		s.window = s.windowPeer.window
		s.flow(&wire.Flow{})
	}
	if s.credit <= s.windowPeer.credit/2 {
		s.giveCredit()
	}
	return true
}

func (s *windowSession) giveCredit() {
	s.credit = s.windowPeer.credit
	s.flow(&wire.Flow{Handle: wire.Some(s.handle), DeliveryCount: wire.Some(s.count), LinkCredit: wire.Some(s.credit)})
}

func (s *windowSession) flow(f *wire.Flow) {
	if f.IncomingWindow, f.OutgoingWindow = s.window, 100; !s.omit {
		f.NextIncomingID = wire.Some(s.next)
	}
	s.mu.Lock()
	s.flows++
	s.mu.Unlock()
	s.send(f)
}

// sendMany sends n messages and requires that each arrives, in a time in which no wait for a lost
// window fits.
func sendMany(t *testing.T, creds *transport.Credentials, o *amqp.Options, n int) {
	t.Helper()
	began := time.Now()
	c, err := device.New(creds, amqp.New(o), &device.Options{Window: 2000})
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.Open(t.Context()))
	for i := range n {
		require.NoError(t, c.Enqueue(t.Context(), &transport.Message{Body: fmt.Append(nil, i)}, nil))
	}
	require.NoError(t, c.Flush(t.Context()))
	require.Less(t, time.Since(began), 10*time.Second)
}

// A client that does not count the window of its session stops after it. An edge gateway has one
// of 2,048 transfers.
func TestTenThousandMessagesThroughAWindow(t *testing.T) {
	const n = 10_000
	for name, p := range map[string]*windowPeer{
		"a gateway":                    {window: 2048, renewAt: 1024, credit: 100},
		"renewed when nothing is left": {window: 2048, renewAt: 0, credit: 100},
		"much credit":                  {window: 2048, renewAt: 0, credit: 1 << 20},
		"no ids":                       {window: 2048, renewAt: 1024, credit: 100, omit: true},
		"no ids, when nothing is left": {window: 2048, renewAt: 0, credit: 100, omit: true},
		"no ids, much credit":          {window: 2048, renewAt: 0, credit: 1 << 20, omit: true},
		"a small window":               {window: 3, renewAt: 1, credit: 50},
		"a small window, no ids":       {window: 3, renewAt: 1, credit: 50, omit: true},
		"one at a time":                {window: 1, renewAt: 0, credit: 50},
		"one at a time, no ids":        {window: 1, renewAt: 0, credit: 50, omit: true},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			n := n
			if p.window < 10 {
				n /= 10
			}
			sendMany(t, &transport.Credentials{Host: "hub.example.test", DeviceID: "d"}, p.options(), n)
			p.mu.Lock()
			defer p.mu.Unlock()
			require.Zero(t, p.beyond)
			require.Equal(t, 1, p.sessions)
			require.Len(t, p.messages, n)
			for body, times := range p.messages {
				require.Equal(t, 1, times, body)
			}
			require.GreaterOrEqual(t, p.flows, n/int(p.window))
		})
	}
}

// The window of each session is counted anew.
func TestTheWindowOfEachSession(t *testing.T) {
	for _, omit := range []bool{false, true} {
		testkit.Run(t, fmt.Sprint("no ids ", omit), func(t *testing.T) {
			p := &windowPeer{window: 64, renewAt: 0, credit: 100, omit: omit, most: 1000}
			sendMany(t, &transport.Credentials{Host: "hub.example.test", DeviceID: "d"}, p.options(), 5000)
			p.mu.Lock()
			defer p.mu.Unlock()
			require.Zero(t, p.beyond)
			require.GreaterOrEqual(t, p.sessions, 5)
			require.Len(t, p.messages, 5000)
		})
	}
}

// The same with the hub, whose links share the window of a session: tokens, telemetry, twin and
// methods, of several devices on a connection, across losses of links, sessions and connections.
func TestAHubWithoutNextIncomingID(t *testing.T) {
	for name := range transports(nil) {
		testkit.Run(t, name, func(t *testing.T) {
			broker, err := testbroker.New(&testbroker.Options{AMQP: testbroker.AMQPOptions{OmitNextIncomingID: true,
				SessionWindow: 10, Credit: 7}})
			require.NoError(t, err)
			defer broker.Close()
			h := smallHub(t, 0)
			h.Hub = broker
			o := h.options()
			o.Batch = 1
			tr := transports(o)[name]
			h.device(t, "a")
			for round, creds := range []*transport.Credentials{h.device(t, "b"), h.module(t, "a", "m")} {
				id := creds.DeviceID
				if creds.ModuleID != "" {
					id += "/" + creds.ModuleID
				}
				c := openModule(t, creds, tr, func(c *device.Client) {
					require.NoError(t, c.HandleMethod("who", func(context.Context, *device.MethodCall) (int, []byte) {
						return 200, fmt.Appendf(nil, "%q", id)
					}))
				})
				losses := []func() int{
					func() int { return 1 },
					func() int { return h.DetachLinks(id, 0, hubdata.AMQPError{}) },
					func() int { return h.EndSessions(id, hubdata.AMQPError{}) },
					func() int { return h.CloseAMQP(id, hubdata.AMQPError{}) },
				}
				for i, lose := range losses {
					time.Sleep(time.Minute)
					require.Positive(t, lose())
					for j := range 50 {
						require.NoError(t, c.Enqueue(t.Context(), &transport.Message{Body: fmt.Append(nil, j)}, nil))
						_, err := c.PatchReported(t.Context(), fmt.Appendf(nil, `{"n":%d}`, j))
						require.NoError(t, err)
						r, err := h.CallMethod(t.Context(), id, hubdata.MethodCall{Name: "who", ConnectTimeout: time.Minute})
						require.NoError(t, err)
						require.Equal(t, fmt.Sprintf("%q", id), string(r.Payload))
					}
					require.NoError(t, c.Flush(t.Context()))
					require.Len(t, h.Messages(), 50*(len(losses)*round+i+1))
				}
			}
		})
	}
}

package testbroker_test

import (
	"errors"
	"io"
	"net"
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

// rawPeer is a client that sends and reads AMQP frames.
type rawPeer struct {
	t    testing.TB
	conn net.Conn
	in   []byte
}

func dialFrames(t testing.TB, h *testbroker.Hub) *rawPeer {
	t.Helper()
	conn, err := h.Dial(testbroker.PortAMQP)(t.Context(), "tcp", "hub")
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return &rawPeer{t: t, conn: conn}
}

func (p *rawPeer) send(b []byte) {
	p.t.Helper()
	_, err := p.conn.Write(b)
	require.NoError(p.t, err)
}

func (p *rawPeer) say(channel uint16, body amqpwire.Performative, payload ...byte) {
	p.t.Helper()
	b, err := amqpwire.AppendFrame(nil, channel, body, payload)
	require.NoError(p.t, err)
	p.send(b)
}

// fill reads until n bytes are buffered.
func (p *rawPeer) fill(n int) error {
	for len(p.in) < n {
		var b [4096]byte
		m, err := p.conn.Read(b[:])
		p.in = append(p.in, b[:m]...)
		if m == 0 && err != nil {
			return err
		}
	}
	return nil
}

// readable reads available input, and reports whether there was any.
func (p *rawPeer) readable() bool {
	p.conn.SetReadDeadline(time.Now().Add(time.Millisecond))
	defer p.conn.SetReadDeadline(time.Time{})
	return p.fill(len(p.in)+1) == nil
}

// header reads a protocol header and returns its id.
func (p *rawPeer) header() byte {
	p.t.Helper()
	require.NoError(p.t, p.fill(8))
	got := p.in[:8]
	want := amqpwire.ProtocolHeader(got[4])
	require.Equal(p.t, want[:], got)
	p.in = p.in[8:]
	return got[4]
}

type rawFrame struct {
	channel uint16
	body    amqpwire.Performative // nil = a keep-alive
	payload []byte
}

// next returns the next frame.
func (p *rawPeer) next() (rawFrame, error) {
	for {
		f, n, err := amqpwire.Split(p.in, 1<<20)
		if err != nil {
			return rawFrame{}, err
		}
		if n == 0 {
			if err := p.fill(len(p.in) + 1); err != nil {
				return rawFrame{}, err
			}
			continue
		}
		p.in = p.in[n:]
		if len(f.Body) == 0 {
			return rawFrame{channel: f.Channel}, nil
		}
		body, payload, err := f.Performative()
		return rawFrame{f.Channel, body, append([]byte{}, payload...)}, err
	}
}

// want reads a frame whose body must have the type T.
func want[T amqpwire.Performative](p *rawPeer) (T, rawFrame) {
	p.t.Helper()
	f, err := p.next()
	require.NoError(p.t, err)
	var none T
	require.IsType(p.t, none, f.body)
	return f.body.(T), f
}

// open opens a connection without SASL.
func (p *rawPeer) open(o *amqpwire.Open) *amqpwire.Open {
	p.t.Helper()
	h := amqpwire.ProtocolHeader(amqpwire.ProtocolAMQP)
	p.send(h[:])
	require.Equal(p.t, amqpwire.ProtocolAMQP, p.header())
	if o == nil {
		o = &amqpwire.Open{ContainerID: "c", MaxFrameSize: 1 << 16, ChannelMax: 65535}
	}
	p.say(0, o)
	answer, _ := want[*amqpwire.Open](p)
	return answer
}

func (p *rawPeer) begin(channel uint16) *amqpwire.Begin {
	p.t.Helper()
	p.say(channel, &amqpwire.Begin{IncomingWindow: 100, OutgoingWindow: 100, HandleMax: 1 << 30})
	answer, f := want[*amqpwire.Begin](p)
	require.Equal(p.t, amqpwire.Some(channel), answer.RemoteChannel)
	require.Equal(p.t, channel, f.channel)
	return answer
}

func senderTo(address string, handle uint32) *amqpwire.Attach {
	return &amqpwire.Attach{
		Name: address, Handle: handle, Role: amqpwire.RoleSender, SndSettleMode: amqpwire.SendMixed,
		Source: &amqpwire.Source{}, Target: &amqpwire.Target{Address: address},
		InitialDeliveryCount: amqpwire.Some(uint32(0)),
	}
}

func receiverFrom(address string, handle uint32) *amqpwire.Attach {
	return &amqpwire.Attach{
		Name: address, Handle: handle, Role: amqpwire.RoleReceiver, SndSettleMode: amqpwire.SendMixed,
		Source: &amqpwire.Source{Address: address}, Target: &amqpwire.Target{},
	}
}

func transferOf(handle, id uint32) *amqpwire.Transfer {
	return &amqpwire.Transfer{Handle: handle, DeliveryID: amqpwire.Some(id), DeliveryTag: []byte{byte(id)},
		MessageFormat: amqpwire.Some(uint32(0))}
}

func credit(handle, n uint32) *amqpwire.Flow {
	return &amqpwire.Flow{NextIncomingID: amqpwire.Some(uint32(0)), IncomingWindow: 100, OutgoingWindow: 100,
		Handle: amqpwire.Some(handle), DeliveryCount: amqpwire.Some(uint32(0)), LinkCredit: amqpwire.Some(n)}
}

func encoded(t testing.TB, m *amqpwire.Message) []byte {
	t.Helper()
	b, err := amqpwire.AppendMessage(nil, m)
	require.NoError(t, err)
	return b
}

func dataOf(t testing.TB, s string) []byte {
	return encoded(t, &amqpwire.Message{Data: [][]byte{[]byte(s)}})
}

// login opens a connection with a session on channel 0 and a pair of $cbs links, and sends the
// token.
func (p *rawPeer) login(d hubdata.Device) {
	p.t.Helper()
	p.open(nil)
	p.begin(0)
	p.say(0, senderTo("$cbs", 100))
	want[*amqpwire.Attach](p)
	want[*amqpwire.Flow](p)
	p.say(0, receiverFrom("$cbs", 101))
	want[*amqpwire.Attach](p)
	p.say(0, credit(101, 10))
	require.Equal(p.t, 200, p.put(0, "put-token", hubtest.Token(d)))
}

// put sends a token and returns the status.
func (p *rawPeer) put(id uint32, operation, token string) int {
	p.t.Helper()
	p.say(0, transferOf(100, id), encoded(p.t, &amqpwire.Message{
		Properties: &amqpwire.Properties{MessageID: uint64(id)}, Value: token, HasValue: true,
		ApplicationProperties: amqpwire.Map{{Key: "operation", Value: operation},
			{Key: "type", Value: "azure-devices.net:sastoken"}, {Key: "name", Value: "x"}},
	})...)
	var status int
	for left := 2; left > 0; {
		f, err := p.next()
		require.NoError(p.t, err)
		switch f.body.(type) {
		case *amqpwire.Transfer:
			left--
			m, err := amqpwire.DecodeMessage(f.payload)
			require.NoError(p.t, err)
			code, _ := m.ApplicationProperties.Get("status-code")
			require.IsType(p.t, int32(0), code)
			require.Equal(p.t, uint64(id), m.Properties.CorrelationID)
			status = int(code.(int32))
		case *amqpwire.Disposition:
			left--
		default:
			require.IsType(p.t, &amqpwire.Flow{}, f.body)
		}
	}
	return status
}

// attach attaches a link, which must be accepted.
func (p *rawPeer) attach(a *amqpwire.Attach) *amqpwire.Attach {
	p.t.Helper()
	p.say(0, a)
	answer, _ := want[*amqpwire.Attach](p)
	require.Equal(p.t, a.Name, answer.Name)
	require.Equal(p.t, !a.Role, answer.Role)
	if a.Role == amqpwire.RoleSender {
		require.NotNil(p.t, answer.Target)
		want[*amqpwire.Flow](p)
	} else {
		require.NotNil(p.t, answer.Source)
		require.True(p.t, answer.InitialDeliveryCount.OK)
	}
	return answer
}

func (p *rawPeer) ended() error {
	p.t.Helper()
	_, err := p.next()
	require.Error(p.t, err)
	return err
}

const telemetryAddress = "/devices/dev-1/messages/events"

type violation struct {
	closes, ends, detaches amqpwire.Symbol
	do                     func(p *rawPeer)
}

func violations() map[string]violation {
	const nowhere = 9
	attached := func(p *rawPeer) { p.attach(senderTo(telemetryAddress, 1)) }
	return map[string]violation{
		"second open": {closes: amqpwire.IllegalState,
			do: func(p *rawPeer) { p.say(0, &amqpwire.Open{ContainerID: "c", MaxFrameSize: 512}) }},
		"frame without session": {closes: amqpwire.FramingError,
			do: func(p *rawPeer) { p.say(nowhere, &amqpwire.End{}) }},
		"channel too high": {closes: amqpwire.FramingError, do: func(p *rawPeer) { p.say(8192, &amqpwire.Begin{}) }},
		"second begin":     {closes: amqpwire.IllegalState, do: func(p *rawPeer) { p.say(0, &amqpwire.Begin{}) }},
		"begin that answers": {closes: amqpwire.NotAllowed,
			do: func(p *rawPeer) { p.say(nowhere, &amqpwire.Begin{RemoteChannel: amqpwire.Some(uint16(0))}) }},
		"frame of SASL":   {closes: amqpwire.FramingError, do: func(p *rawPeer) { p.say(0, &amqpwire.Outcome{}) }},
		"frame too short": {closes: amqpwire.FramingError, do: func(p *rawPeer) { p.send([]byte{0, 0, 0, 7}) }},
		"frame too long": {closes: amqpwire.FramingError,
			do: func(p *rawPeer) { p.send([]byte{0, 1, 0, 1, 2, 0, 0, 0}) }},
		"bad data offset": {closes: amqpwire.FramingError,
			do: func(p *rawPeer) { p.send([]byte{0, 0, 0, 8, 1, 0, 0, 0}) }},
		"type that is none": {closes: amqpwire.FramingError,
			do: func(p *rawPeer) { p.send([]byte{0, 0, 0, 8, 2, 9, 0, 0}) }},
		"body that is none": {closes: amqpwire.DecodeError,
			do: func(p *rawPeer) { p.send([]byte{0, 0, 0, 9, 2, 0, 0, 0, 0x40}) }},
		"unknown performative": {closes: amqpwire.DecodeError,
			do: func(p *rawPeer) { p.send([]byte{0, 0, 0, 12, 2, 0, 0, 0, 0, 0x53, 0x1a, 0x45}) }},
		"mandatory field missing": {closes: amqpwire.InvalidField,
			do: func(p *rawPeer) { p.send([]byte{0, 0, 0, 12, 2, 0, 0, 0, 0, 0x53, 0x16, 0x45}) }},
		"handle too high": {closes: amqpwire.FramingError,
			do: func(p *rawPeer) { p.say(0, senderTo(telemetryAddress, 256)) }},
		"handle in use": {ends: amqpwire.HandleInUse,
			do: func(p *rawPeer) { attached(p); a := senderTo(telemetryAddress, 1); a.Name = "2"; p.say(0, a) }},
		"no initial-delivery-count": {ends: amqpwire.InvalidField,
			do: func(p *rawPeer) { a := senderTo(telemetryAddress, 1); a.InitialDeliveryCount.OK = false; p.say(0, a) }},
		"settle mode that is none": {ends: amqpwire.InvalidField,
			do: func(p *rawPeer) { a := senderTo(telemetryAddress, 1); a.SndSettleMode = 3; p.say(0, a) }},
		"rcv-settle-mode as well": {ends: amqpwire.InvalidField,
			do: func(p *rawPeer) { a := senderTo(telemetryAddress, 1); a.RcvSettleMode = 2; p.say(0, a) }},
		"flow on no link": {ends: amqpwire.UnattachedHandle, do: func(p *rawPeer) { p.say(0, credit(nowhere, 1)) }},
		"transfer on no link": {ends: amqpwire.UnattachedHandle,
			do: func(p *rawPeer) { p.say(0, transferOf(nowhere, 0)) }},
		"detach of no link": {ends: amqpwire.UnattachedHandle,
			do: func(p *rawPeer) { p.say(0, &amqpwire.Detach{Handle: nowhere}) }},
		"credit of no link": {ends: amqpwire.InvalidField,
			do: func(p *rawPeer) { p.say(0, &amqpwire.Flow{LinkCredit: amqpwire.Some(uint32(1))}) }},
		"transfer after detach": {ends: amqpwire.UnattachedHandle, do: func(p *rawPeer) {
			attached(p)
			p.say(0, &amqpwire.Detach{Handle: 1, Closed: true})
			want[*amqpwire.Detach](p)
			p.say(0, transferOf(1, 5))
		}},
		"transfer to a receiver": {ends: amqpwire.NotAllowed, do: func(p *rawPeer) {
			p.attach(receiverFrom("/devices/dev-1/messages/devicebound", 1))
			p.say(0, transferOf(1, 5))
		}},
		"delivery-id again": {ends: amqpwire.InvalidField,
			do: func(p *rawPeer) { attached(p); p.say(0, transferOf(1, 0), dataOf(p.t, "x")...) }},
		"disposition of no range": {ends: amqpwire.InvalidField, do: func(p *rawPeer) {
			p.say(0, &amqpwire.Disposition{Role: amqpwire.RoleReceiver, First: 5, Last: amqpwire.Some(uint32(4))})
		}},
		"no delivery-id": {detaches: amqpwire.InvalidField,
			do: func(p *rawPeer) { attached(p); x := transferOf(1, 5); x.DeliveryID.OK = false; p.say(0, x) }},
		"no delivery-tag": {detaches: amqpwire.InvalidField,
			do: func(p *rawPeer) { attached(p); x := transferOf(1, 5); x.DeliveryTag = nil; p.say(0, x) }},
		"delivery-tag too long": {detaches: amqpwire.InvalidField,
			do: func(p *rawPeer) { attached(p); x := transferOf(1, 5); x.DeliveryTag = make([]byte, 33); p.say(0, x) }},
		"resume": {detaches: amqpwire.NotImplemented,
			do: func(p *rawPeer) { attached(p); x := transferOf(1, 5); x.Resume = true; p.say(0, x) }},
		"deliveries mixed": {detaches: amqpwire.InvalidField, do: func(p *rawPeer) {
			attached(p)
			x := transferOf(1, 5)
			x.More = true
			p.say(0, x, 0)
			p.say(0, transferOf(1, 6))
		}},
		"not settled as announced": {detaches: amqpwire.InvalidField, do: func(p *rawPeer) {
			a := senderTo(telemetryAddress, 1)
			a.SndSettleMode = amqpwire.SendSettled
			p.attach(a)
			p.say(0, transferOf(1, 5), dataOf(p.t, "x")...)
		}},
		"settled unannounced": {detaches: amqpwire.InvalidField, do: func(p *rawPeer) {
			a := senderTo(telemetryAddress, 1)
			a.SndSettleMode = amqpwire.SendUnsettled
			p.attach(a)
			x := transferOf(1, 5)
			x.Settled = amqpwire.Some(true)
			p.say(0, x, dataOf(p.t, "x")...)
		}},
		"settled message of nonsense": {detaches: amqpwire.DecodeError, do: func(p *rawPeer) {
			attached(p)
			x := transferOf(1, 5)
			x.Settled = amqpwire.Some(true)
			p.say(0, x, 0x40)
		}},
		"message too large": {detaches: amqpwire.MessageSizeExceeded, do: func(p *rawPeer) {
			attached(p)
			x := transferOf(1, 5)
			x.More = true
			for range 20 {
				p.say(0, x, make([]byte, 60000)...)
			}
		}},
		"beyond the credit": {detaches: amqpwire.TransferLimitExceeded, do: func(p *rawPeer) {
			p.say(0, senderTo(telemetryAddress+"/", 2)) // unknown address: the hub refuses it and gives no credit
			want[*amqpwire.Attach](p)
			want[*amqpwire.Detach](p)
			a := senderTo(telemetryAddress, 1)
			p.say(0, a)
			want[*amqpwire.Attach](p)
			x := transferOf(1, 5)
			x.Settled = amqpwire.Some(true)
			p.say(0, x, dataOf(p.t, "x")...)
		}},
	}
}

// TestViolationsAreAnswered violates one rule of the standard at a time, and checks the standard's
// condition on the smallest affected unit.
func TestViolationsAreAnswered(t *testing.T) {
	for name, c := range violations() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, d := hubtest.NewHub(t, nil)
				if c.detaches == amqpwire.TransferLimitExceeded {
					h.Inject(fault.Fault{Kind: fault.WithholdCredit, Link: fault.LinkTelemetry})
				}
				p := dialFrames(t, h)
				p.login(d)
				c.do(p)
				var got amqpwire.Performative
				for {
					f, err := p.next()
					require.NoError(t, err)
					if _, flow := f.body.(*amqpwire.Flow); !flow {
						got = f.body
						break
					}
				}
				switch {
				case c.closes != "":
					require.IsType(t, &amqpwire.Close{}, got)
					require.Equal(t, c.closes, got.(*amqpwire.Close).Error.Condition)
					require.ErrorIs(t, p.ended(), io.EOF)
				case c.ends != "":
					require.IsType(t, &amqpwire.End{}, got)
					require.Equal(t, c.ends, got.(*amqpwire.End).Error.Condition)
					// Frames that cross the end are ignored; then the channel is free.
					p.say(0, transferOf(1, 77))
					p.say(0, &amqpwire.End{})
					p.begin(0)
				default:
					require.IsType(t, &amqpwire.Detach{}, got)
					require.True(t, got.(*amqpwire.Detach).Closed)
					require.Equal(t, c.detaches, got.(*amqpwire.Detach).Error.Condition)
					// Frames that cross the detach are ignored; then the handle is free, and the session works.
					p.say(0, transferOf(1, 77))
					p.say(0, credit(1, 5))
					p.say(0, &amqpwire.Detach{Handle: 1, Closed: true})
					p.say(0, credit(1, 5))
					p.attach(senderTo(telemetryAddress, 1))
				}
			})
		})
	}
}

func TestFramesOfAnUnknownLinkAreAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := hubtest.NewHub(t, nil)
		p := dialFrames(t, h)
		p.login(d)
		p.attach(senderTo(telemetryAddress, 1))
		require.Equal(t, 1, h.DetachLinks("dev-1", fault.LinkTelemetry,
			hubdata.AMQPError{Condition: "amqp:link:detach-forced"}))
		want[*amqpwire.Detach](p)
		p.say(0, &amqpwire.Detach{Handle: 1, Closed: true})
		p.say(0, transferOf(1, 5))
		end, _ := want[*amqpwire.End](p)
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
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, d := hubtest.NewHub(t, &testbroker.Options{AMQP: testbroker.AMQPOptions{SessionWindow: c.window,
					Credit: c.credit}})
				p := dialFrames(t, h)
				p.login(d)
				p.attach(senderTo(telemetryAddress, 1))
				id := uint32(5)
				flood := func(n int) (got []amqpwire.Performative) {
					var all []byte
					for range n {
						var err error
						all, err = amqpwire.AppendFrame(all, 0, transferOf(1, id), dataOf(t, "x"))
						require.NoError(t, err)
						id++
					}
					p.send(all)
					synctest.Wait()
					for len(p.in) > 0 || p.readable() {
						f, err := p.next()
						require.NoError(t, err)
						got = append(got, f.body)
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
		})
	}
}

func TestHeadersThatMakeNoSense(t *testing.T) {
	for name, c := range map[string]struct {
		send string
		want byte
	}{
		"TLS in band": {"AMQP\x02\x01\x00\x00", amqpwire.ProtocolSASL}, "0-9-1": {"AMQP\x00\x00\x09\x01",
			amqpwire.ProtocolSASL},
		"HTTP": {"GET / HTTP/1.1\r\n", amqpwire.ProtocolSASL}, "SASL twice": {"", amqpwire.ProtocolAMQP},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, _ := hubtest.NewHub(t, nil)
				p := dialFrames(t, h)
				if c.send == "" {
					sasl := amqpwire.ProtocolHeader(amqpwire.ProtocolSASL)
					p.send(sasl[:])
					require.Equal(t, amqpwire.ProtocolSASL, p.header())
					m, _ := want[*amqpwire.Mechanisms](p)
					require.Equal(t, []amqpwire.Symbol{"MSSBCBS", "PLAIN", "ANONYMOUS", "EXTERNAL"}, m.Mechanisms)
					p.say(0, &amqpwire.Init{Mechanism: "MSSBCBS"})
					want[*amqpwire.Outcome](p)
					p.send(sasl[:])
				} else {
					p.send([]byte(c.send))
				}
				require.Equal(t, c.want, p.header())
				require.ErrorIs(t, p.ended(), io.EOF)
			})
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
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, _ := hubtest.NewHub(t, nil)
				p := dialFrames(t, h)
				header := amqpwire.ProtocolHeader(amqpwire.ProtocolAMQP)
				p.send(header[:])
				require.Equal(t, amqpwire.ProtocolAMQP, p.header())
				p.say(0, c.say)
				want[*amqpwire.Open](p)
				end, _ := want[*amqpwire.Close](p)
				require.Equal(t, c.want, end.Error.Condition)
				require.ErrorIs(t, p.ended(), io.EOF)
				require.Zero(t, h.Connections(""))
			})
		})
	}
}

// A client need not wait for answers: some send the whole handshake at once.
func TestPipelinedHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := hubtest.NewHub(t, nil)
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
			add(1, senderTo(telemetryAddress, 0), nil)
			add(0, nil, nil)
			p := dialFrames(t, h)
			for piece := range pieces(all, size) {
				p.send(piece)
				synctest.Wait()
			}
			require.Equal(t, amqpwire.ProtocolSASL, p.header())
			want[*amqpwire.Mechanisms](p)
			outcome, _ := want[*amqpwire.Outcome](p)
			require.Equal(t, amqpwire.SASLOK, outcome.Code)
			require.Equal(t, amqpwire.ProtocolAMQP, p.header())
			want[*amqpwire.Open](p)
			want[*amqpwire.Begin](p)
			want[*amqpwire.Attach](p)
			flow, _ := want[*amqpwire.Flow](p)
			require.Equal(t, amqpwire.Some(uint32(500)), flow.LinkCredit)
			p.say(1, transferOf(0, 0), dataOf(t, "x")...)
			want[*amqpwire.Disposition](p)
			p.say(0, &amqpwire.Close{})
			want[*amqpwire.Close](p)
			require.ErrorIs(t, p.ended(), io.EOF)
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
		p := dialFrames(t, h)
		answer := p.open(nil)
		require.Equal(t, amqpwire.Some(uint32(30000)), answer.IdleTimeout, "half of it is announced")
		for range 10 {
			time.Sleep(59 * time.Second)
			p.say(0, nil)
		}
		require.Equal(t, 1, h.Connections(""))
		start := time.Now()
		end, _ := want[*amqpwire.Close](p)
		require.Equal(t, amqpwire.ResourceLimitExceeded, end.Error.Condition)
		require.Equal(t, time.Minute, time.Since(start))
		require.ErrorIs(t, p.ended(), io.EOF)
		time.Sleep(2 * time.Second) // the client's time to close
		require.Zero(t, h.Connections(""))
	})
}

func TestTheHubKeepsConnectionsAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := hubtest.NewHub(t, &testbroker.Options{AMQP: testbroker.AMQPOptions{IdleTimeout: -1}})
		p := dialFrames(t, h)
		answer := p.open(&amqpwire.Open{ContainerID: "c", MaxFrameSize: 512, IdleTimeout: amqpwire.Some(uint32(10000))})
		require.False(t, answer.IdleTimeout.OK)
		for range 100 {
			start := time.Now()
			f, err := p.next()
			require.NoError(t, err)
			require.Nil(t, f.body)
			require.LessOrEqual(t, time.Since(start), 5*time.Second)
		}
	})
}

func TestSilentHandshake(t *testing.T) {
	for name, begin := range map[string]func(p *rawPeer){
		"nothing": func(*rawPeer) {},
		"header":  func(p *rawPeer) { h := amqpwire.ProtocolHeader(amqpwire.ProtocolSASL); p.send(h[:]) },
		"half":    func(p *rawPeer) { p.send([]byte("AMQP")) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, _ := hubtest.NewHub(t, nil)
				p := dialFrames(t, h)
				begin(p)
				start := time.Now()
				for {
					var b [100]byte
					if _, err := p.conn.Read(b[:]); err != nil {
						break
					}
				}
				require.LessOrEqual(t, time.Since(start), 62*time.Second)
				require.Zero(t, h.Connections(""))
			})
		})
	}
}

func TestAbortedAndPartialDeliveries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := hubtest.NewHub(t, nil)
		p := dialFrames(t, h)
		p.login(d)
		p.attach(senderTo(telemetryAddress, 1))
		p.attach(&amqpwire.Attach{Name: "other", Handle: 2, Role: amqpwire.RoleSender, SndSettleMode: amqpwire.SendMixed,
			Source: &amqpwire.Source{}, Target: &amqpwire.Target{Address: telemetryAddress},
			InitialDeliveryCount: amqpwire.Some(uint32(7))})
		whole := dataOf(t, "hello")
		first := transferOf(1, 10)
		first.More = true
		p.say(0, first, whole[:3]...)
		// Deliveries of different links may interleave.
		p.say(0, transferOf(2, 11), dataOf(t, "between")...)
		p.say(0, &amqpwire.Transfer{Handle: 1, More: true}, whole[3:6]...)
		p.say(0, &amqpwire.Transfer{Handle: 1, Settled: amqpwire.Some(false)}, whole[6:]...)
		aborted := transferOf(1, 12)
		aborted.More = true
		p.say(0, aborted, 1, 2, 3)
		p.say(0, &amqpwire.Transfer{Handle: 1, Aborted: true})
		p.say(0, transferOf(1, 13), dataOf(t, "after")...)
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
	synctest.Test(t, func(t *testing.T) {
		h, d := hubtest.NewHub(t, nil)
		p := dialFrames(t, h)
		p.login(d)
		p.say(0, &amqpwire.Flow{NextIncomingID: amqpwire.Some(uint32(1)), IncomingWindow: 100, Echo: true})
		flow, _ := want[*amqpwire.Flow](p)
		require.Equal(t, amqpwire.Some(uint32(1)), flow.NextIncomingID)
		p.attach(senderTo(telemetryAddress, 1))
		p.say(0, &amqpwire.Flow{NextIncomingID: amqpwire.Some(uint32(1)), IncomingWindow: 100,
			Handle: amqpwire.Some(uint32(1)), Echo: true})
		flow, _ = want[*amqpwire.Flow](p)
		require.Equal(t, amqpwire.Some(uint32(500)), flow.LinkCredit)

		p.attach(receiverFrom("/devices/dev-1/messages/devicebound", 2))
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Body: []byte("1")}))
		drain := credit(2, 5)
		drain.NextIncomingID, drain.Drain = amqpwire.Some(uint32(1)), true
		p.say(0, drain)
		want[*amqpwire.Transfer](p)
		flow, _ = want[*amqpwire.Flow](p)
		require.Equal(t, amqpwire.Some(uint32(5)), flow.DeliveryCount)
		require.Equal(t, amqpwire.Some(uint32(0)), flow.LinkCredit)
		require.True(t, flow.Drain)
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Body: []byte("2")}))
		synctest.Wait()
		require.Equal(t, 1, h.CountC2D("dev-1", hubdata.Enqueued), "the credit is used up")
	})
}

// The client's window limits the hub's transfers, in addition to credit.
func TestTheClientsWindowIsObeyed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := hubtest.NewHub(t, nil)
		p := dialFrames(t, h)
		p.open(&amqpwire.Open{ContainerID: "c", MaxFrameSize: 512})
		p.say(0, &amqpwire.Begin{IncomingWindow: 3, OutgoingWindow: 100})
		want[*amqpwire.Begin](p)
		p.say(0, senderTo("$cbs", 100))
		want[*amqpwire.Attach](p)
		want[*amqpwire.Flow](p)
		p.say(0, receiverFrom("$cbs", 101))
		want[*amqpwire.Attach](p)
		c := credit(101, 1)
		c.IncomingWindow = 3
		p.say(0, c)
		require.Equal(t, 200, p.put(0, "put-token", hubtest.Token(d)))
		p.attach(receiverFrom("/devices/dev-1/messages/devicebound", 1))
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Body: make([]byte, 2000)}))
		c = credit(1, 10)
		c.NextIncomingID, c.IncomingWindow = amqpwire.Some(uint32(1)), 2
		p.say(0, c)
		var payload []byte
		for n := range 10 {
			if n > 0 && n%2 == 0 {
				synctest.Wait()
				require.Empty(t, p.in)
				p.say(0, &amqpwire.Flow{NextIncomingID: amqpwire.Some(uint32(1 + n)), IncomingWindow: 2})
			}
			x, f := want[*amqpwire.Transfer](p)
			payload = append(payload, f.payload...)
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
	synctest.Test(t, func(t *testing.T) {
		h, d := hubtest.NewHub(t, nil)
		p := dialFrames(t, h)
		p.login(d) // with one transfer of the hub
		p.say(0, &amqpwire.Flow{NextIncomingID: amqpwire.Some(uint32(1)), IncomingWindow: 100, Echo: true})
		want[*amqpwire.Flow](p)
		p.say(0, &amqpwire.Flow{NextIncomingID: amqpwire.Some(uint32(2)), IncomingWindow: 100, Echo: true})
		end, _ := want[*amqpwire.End](p)
		require.Equal(t, amqpwire.WindowViolation, end.Error.Condition)
	})
}

// Ids and counts are serial numbers: zero follows the highest.
func TestSerialNumbersWrap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := hubtest.NewHub(t, nil)
		p := dialFrames(t, h)
		p.login(d)
		p.say(1, &amqpwire.Begin{NextOutgoingID: 1<<32 - 2, IncomingWindow: 100, OutgoingWindow: 100})
		want[*amqpwire.Begin](p)
		a := senderTo(telemetryAddress, 1)
		a.InitialDeliveryCount = amqpwire.Some(uint32(1<<32 - 1))
		p.say(1, a)
		want[*amqpwire.Attach](p)
		flow, _ := want[*amqpwire.Flow](p)
		require.Equal(t, a.InitialDeliveryCount, flow.DeliveryCount)
		var all []byte
		for i := range uint32(4) {
			var err error
			all, err = amqpwire.AppendFrame(all, 1, transferOf(1, 1<<32-2+i), dataOf(t, "x"))
			require.NoError(t, err)
		}
		p.send(all)
		disposition, _ := want[*amqpwire.Disposition](p)
		require.Equal(t, uint32(1<<32-2), disposition.First)
		require.Equal(t, amqpwire.Some(uint32(1)), disposition.Last, "one disposition settles four")
		require.Equal(t, 4, h.Len())
		p.say(1, &amqpwire.Flow{NextIncomingID: amqpwire.Some(uint32(0)), IncomingWindow: 1<<32 - 1, Echo: true})
		flow, _ = want[*amqpwire.Flow](p)
		require.Equal(t, amqpwire.Some(uint32(2)), flow.NextIncomingID)
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Body: []byte("1")}))
		p.say(1, receiverFrom("/devices/dev-1/messages/devicebound", 2))
		want[*amqpwire.Attach](p)
		wide := credit(2, 1<<32-1)
		wide.IncomingWindow = 1<<32 - 1
		p.say(1, wide)
		want[*amqpwire.Transfer](p)
	})
}

// A client may give credit before its attach is answered.
func TestCreditBeforeTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := hubtest.NewHub(t, nil)
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Body: []byte("1")}))
		h.Inject(fault.Fault{Kind: fault.SlowAttach, Link: fault.LinkC2D, Delay: time.Minute})
		p := dialFrames(t, h)
		p.login(d)
		p.say(0, receiverFrom("/devices/dev-1/messages/devicebound", 1))
		p.say(0, credit(1, 1))
		start := time.Now()
		want[*amqpwire.Attach](p)
		require.Equal(t, time.Minute, time.Since(start))
		want[*amqpwire.Transfer](p)
	})
}

// A client can detach a link whose attach is unanswered.
func TestGivingUpAnAttach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := hubtest.NewHub(t, nil)
		for _, kind := range []fault.Kind{fault.SwallowAttach, fault.SlowAttach} {
			h.Inject(fault.Fault{Kind: kind, Link: fault.LinkTelemetry, Delay: time.Minute})
			p := dialFrames(t, h)
			p.login(d)
			p.say(0, senderTo(telemetryAddress, 1))
			p.say(0, &amqpwire.Detach{Handle: 1, Closed: true})
			answer, _ := want[*amqpwire.Attach](p)
			require.Nil(t, answer.Target)
			want[*amqpwire.Detach](p)
			time.Sleep(2 * time.Minute)
			p.attach(senderTo(telemetryAddress, 1))
			require.Equal(t, 1, h.Links("dev-1", fault.LinkAny))
			p.conn.Close()
			synctest.Wait()
			require.Zero(t, h.Links("dev-1", fault.LinkAny))
		}
	})
}

// Answers wait for credit up to a limit, and need a receiver.
func TestAnswersWithoutCredit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := hubtest.NewHub(t, nil)
		p := dialFrames(t, h)
		p.open(nil)
		p.begin(0)
		p.say(0, senderTo("$cbs", 100))
		want[*amqpwire.Attach](p)
		want[*amqpwire.Flow](p)
		request := func(id uint32) {
			p.say(0, transferOf(100, id), encoded(t, &amqpwire.Message{
				Properties: &amqpwire.Properties{MessageID: uint64(id)}, Value: hubtest.Token(d), HasValue: true,
				ApplicationProperties: amqpwire.Map{{Key: "operation", Value: "put-token"},
					{Key: "type", Value: "azure-devices.net:sastoken"}, {Key: "name", Value: "x"}},
			})...)
		}
		request(0)
		want[*amqpwire.Disposition](p)
		detach, _ := want[*amqpwire.Detach](p)
		require.Equal(t, amqpwire.PreconditionFailed, detach.Error.Condition)
		p.say(0, &amqpwire.Detach{Handle: 100, Closed: true})
		p.say(0, senderTo("$cbs", 100))
		want[*amqpwire.Attach](p)
		want[*amqpwire.Flow](p)
		p.say(0, receiverFrom("$cbs", 101))
		want[*amqpwire.Attach](p)
		for i := range uint32(1001) {
			request(1 + i)
		}
		for {
			f, err := p.next()
			require.NoError(t, err)
			if detach, ok := f.body.(*amqpwire.Detach); ok {
				require.EqualValues(t, 101, detach.Handle)
				require.Equal(t, amqpwire.ResourceLimitExceeded, detach.Error.Condition)
				break
			}
		}
	})
}

// Close is quick and leaves nothing behind, in every state of connections.
func TestCloseOfAHubWithAMQP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := hubtest.NewHub(t, nil)
		h.Inject(fault.Fault{Kind: fault.SlowAttach, Link: fault.LinkTwinSender, Delay: time.Hour})
		h.Inject(fault.Fault{Kind: fault.SlowPuback, Delay: time.Hour})
		dialFrames(t, h)
		half := dialFrames(t, h)
		half.send([]byte("AMQP"))
		open := dialFrames(t, h)
		open.open(nil)
		busy := dialFrames(t, h)
		busy.login(d)
		busy.attach(senderTo(telemetryAddress, 1))
		busy.say(0, transferOf(1, 5), dataOf(t, "x")...)
		busy.say(0, senderTo("/devices/dev-1/twin", 2))
		busy.attach(receiverFrom("/devices/dev-1/messages/devicebound", 3))
		busy.say(0, credit(3, 10))
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Body: []byte("1")}))
		dead := dialFrames(t, h)
		dead.login(d)
		dead.attach(senderTo(telemetryAddress, 1))
		h.Inject(fault.Fault{Kind: fault.HalfOpen})
		synctest.Wait()
		start := time.Now()
		require.NoError(t, h.Close())
		require.Zero(t, time.Since(start))
		require.Zero(t, h.Connections("")+h.Links("", fault.LinkAny))
	})
}

func TestGarbageNeverBreaksTheHub(t *testing.T) {
	h, d := hubtest.NewHub(t, nil)
	for _, s := range []string{"", "AMQP", "AMQP\x00\x01\x00\x00\x00\x00\x00\x04",
		"AMQP\x03\x01\x00\x00\x00\x00\x00\x08\x02\x01\x00\x00", "\x16\x03\x01\x00\x00"} {
		p := dialFrames(t, h)
		p.send([]byte(s))
		p.conn.Close()
	}
	loginAMQP(t, h, d)
}

func FuzzAMQPConnection(f *testing.F) {
	seed := func(frames ...rawFrame) {
		var all []byte
		for _, x := range frames {
			all, _ = amqpwire.AppendFrame(all, x.channel, x.body, x.payload)
		}
		f.Add(all)
	}
	seed(rawFrame{body: senderTo(telemetryAddress, 1)}, rawFrame{body: transferOf(1, 5), payload: []byte{0, 0x53, 0x75,
		0xa0, 0}})
	seed(rawFrame{body: receiverFrom("/devices/dev-1/messages/devicebound", 1)}, rawFrame{body: credit(1, 10)},
		rawFrame{body: &amqpwire.Disposition{Role: true, State: &amqpwire.Modified{}}})
	seed(rawFrame{body: receiverFrom("/devices/dev-1/twin", 1)}, rawFrame{body: senderTo("/devices/dev-1/twin", 2)},
		rawFrame{body: &amqpwire.Detach{Handle: 1}}, rawFrame{body: &amqpwire.End{}}, rawFrame{body: &amqpwire.Close{}})
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
		p := dialFrames(t, h)
		p.login(d)
		h.SendC2D("dev-1", hubdata.C2D{Body: []byte("x")})
		p.send(b)
		require.NoError(t, p.conn.(interface{ CloseWrite() error }).CloseWrite())
		p.conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		for {
			_, err := p.next()
			if errors.Is(err, io.EOF) {
				return
			}
			require.NoError(t, err, "the hub sends no nonsense, and ends the connection in the end")
		}
	})
}

func beginOf(window uint32) *amqpwire.Begin {
	return &amqpwire.Begin{IncomingWindow: window, OutgoingWindow: window, HandleMax: 255}
}

package hubtest

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// RawPeer is a client that sends and reads AMQP frames.
type RawPeer struct {
	T    testing.TB
	Conn net.Conn
	In   []byte
}

// DialFrames returns a client of frames, connected in memory.
func DialFrames(t testing.TB, h *testbroker.Hub) *RawPeer {
	t.Helper()
	conn := DialPort(t, h, testbroker.PortAMQP)
	t.Cleanup(func() { conn.Close() })
	return &RawPeer{T: t, Conn: conn}
}

// Send writes bytes.
func (p *RawPeer) Send(b []byte) {
	p.T.Helper()
	_, err := p.Conn.Write(b)
	require.NoError(p.T, err)
}

// Say sends a frame.
func (p *RawPeer) Say(channel uint16, body amqpwire.Performative, payload ...byte) {
	p.T.Helper()
	b, err := amqpwire.AppendFrame(nil, channel, body, payload)
	require.NoError(p.T, err)
	p.Send(b)
}

// fill reads until n bytes are buffered.
func (p *RawPeer) fill(n int) error {
	for len(p.In) < n {
		var b [4096]byte
		m, err := p.Conn.Read(b[:])
		p.In = append(p.In, b[:m]...)
		if m == 0 && err != nil {
			return err
		}
	}
	return nil
}

// Readable reads available input, and reports whether there was any.
func (p *RawPeer) Readable() bool {
	p.Conn.SetReadDeadline(time.Now().Add(time.Millisecond))
	defer p.Conn.SetReadDeadline(time.Time{})
	return p.fill(len(p.In)+1) == nil
}

// Header reads a protocol header and returns its id.
func (p *RawPeer) Header() byte {
	p.T.Helper()
	require.NoError(p.T, p.fill(8))
	got := p.In[:8]
	want := amqpwire.ProtocolHeader(got[4])
	require.Equal(p.T, want[:], got)
	p.In = p.In[8:]
	return got[4]
}

// A RawFrame is a frame as it was read.
type RawFrame struct {
	Channel uint16
	Body    amqpwire.Performative // nil = a keep-alive
	Payload []byte
}

// Next returns the next frame.
func (p *RawPeer) Next() (RawFrame, error) {
	for {
		f, n, err := amqpwire.Split(p.In, 1<<20)
		if err != nil {
			return RawFrame{}, err
		}
		if n == 0 {
			if err := p.fill(len(p.In) + 1); err != nil {
				return RawFrame{}, err
			}
			continue
		}
		p.In = p.In[n:]
		if len(f.Body) == 0 {
			return RawFrame{Channel: f.Channel}, nil
		}
		body, payload, err := f.Performative()
		return RawFrame{f.Channel, body, append([]byte{}, payload...)}, err
	}
}

// Want reads a frame whose body must have the type T.
func Want[T amqpwire.Performative](p *RawPeer) (T, RawFrame) {
	p.T.Helper()
	f, err := p.Next()
	require.NoError(p.T, err)
	var none T
	require.IsType(p.T, none, f.Body)
	return f.Body.(T), f
}

// Open opens a connection without SASL.
func (p *RawPeer) Open(o *amqpwire.Open) *amqpwire.Open {
	p.T.Helper()
	h := amqpwire.ProtocolHeader(amqpwire.ProtocolAMQP)
	p.Send(h[:])
	require.Equal(p.T, amqpwire.ProtocolAMQP, p.Header())
	if o == nil {
		o = &amqpwire.Open{ContainerID: "c", MaxFrameSize: 1 << 16, ChannelMax: 65535}
	}
	p.Say(0, o)
	answer, _ := Want[*amqpwire.Open](p)
	return answer
}

// Begin begins a session.
func (p *RawPeer) Begin(channel uint16) *amqpwire.Begin {
	p.T.Helper()
	p.Say(channel, &amqpwire.Begin{IncomingWindow: 100, OutgoingWindow: 100, HandleMax: 1 << 30})
	answer, f := Want[*amqpwire.Begin](p)
	require.Equal(p.T, amqpwire.Some(channel), answer.RemoteChannel)
	require.Equal(p.T, channel, f.Channel)
	return answer
}

// SenderTo returns the attach of a link on which the client sends.
func SenderTo(address string, handle uint32) *amqpwire.Attach {
	return &amqpwire.Attach{
		Name: address, Handle: handle, Role: amqpwire.RoleSender, SndSettleMode: amqpwire.SendMixed,
		Source: &amqpwire.Source{}, Target: &amqpwire.Target{Address: address},
		InitialDeliveryCount: amqpwire.Some(uint32(0)),
	}
}

// ReceiverFrom returns the attach of a link on which the hub sends.
func ReceiverFrom(address string, handle uint32) *amqpwire.Attach {
	return &amqpwire.Attach{
		Name: address, Handle: handle, Role: amqpwire.RoleReceiver, SndSettleMode: amqpwire.SendMixed,
		Source: &amqpwire.Source{Address: address}, Target: &amqpwire.Target{},
	}
}

// TransferOf returns a transfer of a whole message.
func TransferOf(handle, id uint32) *amqpwire.Transfer {
	return &amqpwire.Transfer{Handle: handle, DeliveryID: amqpwire.Some(id), DeliveryTag: []byte{byte(id)},
		MessageFormat: amqpwire.Some(uint32(0))}
}

// Credit returns a flow that gives a link credit.
func Credit(handle, n uint32) *amqpwire.Flow {
	return &amqpwire.Flow{NextIncomingID: amqpwire.Some(uint32(0)), IncomingWindow: 100, OutgoingWindow: 100,
		Handle: amqpwire.Some(handle), DeliveryCount: amqpwire.Some(uint32(0)), LinkCredit: amqpwire.Some(n)}
}

// Encoded encodes a message.
func Encoded(t testing.TB, m *amqpwire.Message) []byte {
	t.Helper()
	b, err := amqpwire.AppendMessage(nil, m)
	require.NoError(t, err)
	return b
}

// DataOf encodes a message with a body.
func DataOf(t testing.TB, s string) []byte {
	return Encoded(t, &amqpwire.Message{Data: [][]byte{[]byte(s)}})
}

// Login opens a connection with a session on channel 0 and a pair of $cbs links, and sends the
// token.
func (p *RawPeer) Login(d hubdata.Device) {
	p.T.Helper()
	p.Open(nil)
	p.Begin(0)
	p.Say(0, SenderTo("$cbs", 100))
	Want[*amqpwire.Attach](p)
	Want[*amqpwire.Flow](p)
	p.Say(0, ReceiverFrom("$cbs", 101))
	Want[*amqpwire.Attach](p)
	p.Say(0, Credit(101, 10))
	require.Equal(p.T, 200, p.Put(0, "put-token", Token(d)))
}

// Put sends a token and returns the status.
func (p *RawPeer) Put(id uint32, operation, token string) int {
	p.T.Helper()
	p.Say(0, TransferOf(100, id), Encoded(p.T, &amqpwire.Message{
		Properties: &amqpwire.Properties{MessageID: uint64(id)}, Value: token, HasValue: true,
		ApplicationProperties: amqpwire.Map{{Key: "operation", Value: operation},
			{Key: "type", Value: "azure-devices.net:sastoken"}, {Key: "name", Value: "x"}},
	})...)
	var status int
	for left := 2; left > 0; {
		f, err := p.Next()
		require.NoError(p.T, err)
		switch f.Body.(type) {
		case *amqpwire.Transfer:
			left--
			m, err := amqpwire.DecodeMessage(f.Payload)
			require.NoError(p.T, err)
			code, _ := m.ApplicationProperties.Get("status-code")
			require.IsType(p.T, int32(0), code)
			require.Equal(p.T, uint64(id), m.Properties.CorrelationID)
			status = int(code.(int32))
		case *amqpwire.Disposition:
			left--
		default:
			require.IsType(p.T, &amqpwire.Flow{}, f.Body)
		}
	}
	return status
}

// Attach attaches a link, which must be accepted.
func (p *RawPeer) Attach(a *amqpwire.Attach) *amqpwire.Attach {
	p.T.Helper()
	p.Say(0, a)
	answer, _ := Want[*amqpwire.Attach](p)
	require.Equal(p.T, a.Name, answer.Name)
	require.Equal(p.T, !a.Role, answer.Role)
	if a.Role == amqpwire.RoleSender {
		require.NotNil(p.T, answer.Target)
		Want[*amqpwire.Flow](p)
	} else {
		require.NotNil(p.T, answer.Source)
		require.True(p.T, answer.InitialDeliveryCount.OK)
	}
	return answer
}

// Ended returns the error of the next read, which must fail.
func (p *RawPeer) Ended() error {
	p.T.Helper()
	_, err := p.Next()
	require.Error(p.T, err)
	return err
}

// TelemetryAddress is the address of telemetry of dev-1.
const TelemetryAddress = "/devices/dev-1/messages/events"

// BeginOf returns a begin with an incoming window.
func BeginOf(window uint32) *amqpwire.Begin {
	return &amqpwire.Begin{IncomingWindow: window, OutgoingWindow: window, HandleMax: 255}
}

package hubtest

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// Peer is an AMQP client that uses a third-party library.
type Peer struct {
	T    testing.TB
	Hub  *testbroker.Hub
	Conn *amqp.Conn
}

// NewPeer opens a connection on a stream.
func NewPeer(t testing.TB, h *testbroker.Hub, stream net.Conn, o *amqp.ConnOptions) *Peer {
	t.Helper()
	if o == nil {
		o = &amqp.ConnOptions{}
	}
	o.ContainerID, o.HostName = "client", h.HostName()
	conn, err := amqp.NewConn(t.Context(), stream, o)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return &Peer{t, h, conn}
}

// DialPeer opens an in-memory connection.
func DialPeer(t testing.TB, h *testbroker.Hub) *Peer {
	t.Helper()
	stream := DialPort(t, h, testbroker.PortAMQP)
	return NewPeer(t, h, stream, nil)
}

// Session begins a session.
func (p *Peer) Session() *amqp.Session {
	p.T.Helper()
	s, err := p.Conn.NewSession(p.T.Context(), nil)
	require.NoError(p.T, err)
	return s
}

// CBS is a pair of $cbs links.
type CBS struct {
	t        testing.TB
	Sender   *amqp.Sender
	Receiver *amqp.Receiver
}

// CBS attaches the $cbs links in a new session.
func (p *Peer) CBS() *CBS {
	p.T.Helper()
	s := p.Session()
	sender, err := s.NewSender(p.T.Context(), "$cbs", nil)
	require.NoError(p.T, err)
	receiver, err := s.NewReceiver(p.T.Context(), "$cbs", &amqp.ReceiverOptions{Credit: 50})
	require.NoError(p.T, err)
	return &CBS{p.T, sender, receiver}
}

// TokenMessage returns a request to the $cbs links.
func TokenMessage(id any, name string, body any) *amqp.Message {
	return &amqp.Message{
		Properties: &amqp.MessageProperties{MessageID: id},
		ApplicationProperties: map[string]any{
			"operation": "put-token", "type": "servicebus.windows.net:sastoken", "name": name,
		},
		Value: body,
	}
}

// Ask sends a request and returns the answer.
func (c *CBS) Ask(m *amqp.Message) *amqp.Message {
	c.t.Helper()
	require.NoError(c.t, c.Sender.Send(c.t.Context(), m, nil))
	answer, err := c.Receiver.Receive(c.t.Context(), nil)
	require.NoError(c.t, err)
	require.NoError(c.t, c.Receiver.AcceptMessage(c.t.Context(), answer))
	return answer
}

// Put sends a token and returns the status.
func (c *CBS) Put(token string) int {
	c.t.Helper()
	answer := c.Ask(TokenMessage("1", "x", token))
	require.IsType(c.t, "", answer.ApplicationProperties["status-description"])
	return int(answer.ApplicationProperties["status-code"].(int32))
}

// LoginAMQP opens a connection and sends a device's token.
func LoginAMQP(t testing.TB, h *testbroker.Hub, d hubdata.Device) *Peer {
	t.Helper()
	p := DialPeer(t, h)
	require.Equal(t, 200, p.CBS().Put(Token(d)))
	return p
}

// Resource returns the resource of tokens of a device.
func Resource(d hubdata.Device) string {
	if d.ModuleID != "" {
		return "/devices/" + d.ID + "/modules/" + d.ModuleID
	}
	return "/devices/" + d.ID
}

// Telemetry attaches a telemetry link.
func (p *Peer) Telemetry(d hubdata.Device) *amqp.Sender {
	p.T.Helper()
	l, err := p.Session().NewSender(p.T.Context(), Resource(d)+"/messages/events", nil)
	require.NoError(p.T, err)
	return l
}

// C2dMessages attaches a C2D link.
func (p *Peer) C2dMessages(d hubdata.Device, o *amqp.ReceiverOptions) *amqp.Receiver {
	p.T.Helper()
	l, err := p.Session().NewReceiver(p.T.Context(), Resource(d)+"/messages/devicebound", o)
	require.NoError(p.T, err)
	return l
}

// Condition returns the condition of an AMQP error.
func Condition(t testing.TB, err error) string {
	t.Helper()
	var e *amqp.Error
	require.ErrorAs(t, err, &e)
	return string(e.Condition)
}

// Body returns a message with a body.
func Body(s string) *amqp.Message { return amqp.NewMessage([]byte(s)) }

// Soon returns a context that ends in a second.
func Soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	t.Cleanup(cancel)
	return ctx
}

// PairOptions set the link property that names the pair.
func PairOptions(channel string) (*amqp.SenderOptions, *amqp.ReceiverOptions) {
	properties := map[string]any{"com.microsoft:channel-correlation-id": channel,
		"com.microsoft:api-version": "2021-04-12"}
	return &amqp.SenderOptions{Properties: properties}, &amqp.ReceiverOptions{Properties: properties, Credit: 10}
}

// Pair attaches both links of a pair.
func Pair(p *Peer, address, channel string) (*amqp.Sender, *amqp.Receiver) {
	p.T.Helper()
	so, ro := PairOptions(channel)
	session := p.Session()
	s, err := session.NewSender(p.T.Context(), address, so)
	require.NoError(p.T, err)
	r, err := session.NewReceiver(p.T.Context(), address, ro)
	require.NoError(p.T, err)
	return s, r
}

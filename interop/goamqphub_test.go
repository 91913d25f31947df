package interop

import (
	"crypto/tls"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// The hub's node names for the device of the tests.
const (
	amqpEvents      = "/devices/dev-1/messages/events"
	amqpDeviceBound = "/devices/dev-1/messages/devicebound"
)

// batchFormat is the message format of a batch: each data section holds an encoded message.
const batchFormat = 0x80013700

// plain is a connection of the library go-amqp to the hub, without Hubline's client.
type plain struct {
	t       testing.TB
	hub     *testbroker.Hub
	conn    *amqp.Conn
	session *amqp.Session
	tokens  *amqp.Sender
	answers *amqp.Receiver
}

// dialPlain connects over TLS. Without a mechanism it uses no SASL layer.
func dialPlain(t testing.TB, hub *testbroker.Hub, addr string, mechanism amqp.SASLType, certs ...tls.Certificate) (
	*plain, error) {
	t.Helper()
	config := hub.ClientTLS()
	config.Certificates = certs
	stream, err := tls.Dial("tcp", addr, config)
	require.NoError(t, err)
	conn, err := amqp.NewConn(soon(t), stream, &amqp.ConnOptions{HostName: hub.HostName(), SASLType: mechanism})
	if err != nil {
		_ = stream.Close()
		return nil, err
	}
	t.Cleanup(func() { _ = conn.Close() })
	session, err := conn.NewSession(soon(t), nil)
	return &plain{t: t, hub: hub, conn: conn, session: session}, err
}

func (p *plain) put(name, token string) (status int32, description string) {
	p.t.Helper()
	var err error
	if p.tokens == nil {
		p.tokens, err = p.session.NewSender(soon(p.t), "$cbs", nil)
		require.NoError(p.t, err)
		p.answers, err = p.session.NewReceiver(soon(p.t), "$cbs", &amqp.ReceiverOptions{Credit: 10})
		require.NoError(p.t, err)
	}
	id := amqp.UUID{1, 2, 3, byte(time.Now().UnixNano())}
	require.NoError(p.t, p.tokens.Send(soon(p.t), &amqp.Message{
		Properties: &amqp.MessageProperties{MessageID: id},
		ApplicationProperties: map[string]any{
			"operation": "put-token", "type": "servicebus.windows.net:sastoken", "name": name,
		},
		Value: token,
	}, nil))
	m, err := p.answers.Receive(soon(p.t), nil)
	require.NoError(p.t, err)
	require.NoError(p.t, p.answers.AcceptMessage(soon(p.t), m))
	require.Equal(p.t, id, m.Properties.CorrelationID, "of the type of the message id")
	status, ok := m.ApplicationProperties["status-code"].(int32)
	require.True(p.t, ok, "the status is an int: %T", m.ApplicationProperties["status-code"])
	return status, m.ApplicationProperties["status-description"].(string)
}

func (p *plain) sender(address string) *amqp.Sender {
	p.t.Helper()
	s, err := p.session.NewSender(soon(p.t), address, nil)
	require.NoError(p.t, err)
	return s
}

// plainHub is a hub with one device, for connections of go-amqp.
type plainHub struct {
	hub            *testbroker.Hub
	dev            hubdata.Device
	addr, resource string
	good           string // a token of the device
}

func newPlainHub(t testing.TB) *plainHub {
	t.Helper()
	hub, dev := hubfixture.OpenDevice(t, nil, deviceID)
	listener, err := hub.Listen(testbroker.PortAMQPS, "127.0.0.1:0")
	require.NoError(t, err)
	resource := hub.HostName() + "/devices/" + dev.ID
	return &plainHub{hub, dev, listener.String(), resource, token(t, dev.PrimaryKey, resource, time.Hour)}
}

// dial connects and puts the token.
func (h *plainHub) dial(t testing.TB) *plain {
	t.Helper()
	p, err := dialPlain(t, h.hub, h.addr, nil)
	require.NoError(t, err)
	status, description := p.put(h.resource, h.good)
	require.EqualValues(t, 200, status, description)
	return p
}

func TestGoAMQPAuthentication(t *testing.T) {
	h := newPlainHub(t)
	hub, dev, addr, resource, good := h.hub, h.dev, h.addr, h.resource, h.good
	other, err := hub.AddDevice("dev-2")
	require.NoError(t, err)
	for name, mechanism := range map[string]amqp.SASLType{"none": nil, "ANONYMOUS": amqp.SASLTypeAnonymous()} {
		p, err := dialPlain(t, hub, addr, mechanism)
		require.NoError(t, err)
		_, err = p.session.NewSender(soon(t), amqpEvents, nil)
		requireCondition(t, err, amqp.ErrCondUnauthorizedAccess)
		for what, text := range map[string]string{
			"another key":            token(t, other.PrimaryKey, resource, time.Hour),
			"expired":                token(t, dev.PrimaryKey, resource, -time.Hour),
			"of a device not there":  token(t, dev.PrimaryKey, hub.HostName()+"/devices/none", time.Hour),
			"no token at all":        "SharedAccessSignature",
			"of another device here": token(t, dev.PrimaryKey, hub.HostName()+"/devices/dev-2", time.Hour),
		} {
			status, description := p.put(resource, text)
			require.GreaterOrEqual(t, status, int32(400), what)
			if name == "none" {
				seen(t, "token %s: %d %s", what, status, description)
			}
		}
		status, _ := p.put(resource, good)
		require.EqualValues(t, 200, status)
		require.NoError(t, p.sender(amqpEvents).Send(soon(t), amqp.NewMessage([]byte(name)), nil))
		_, err = p.session.NewSender(soon(t), "/devices/dev-2/messages/events", nil)
		requireCondition(t, err, amqp.ErrCondUnauthorizedAccess)
	}
	p, err := dialPlain(t, hub, addr, amqp.SASLTypePlain("dev-1@sas.hub", good))
	require.NoError(t, err)
	require.NoError(t, p.sender(amqpEvents).Send(soon(t), amqp.NewMessage([]byte("PLAIN")), nil))
	_, err = dialPlain(t, hub, addr, amqp.SASLTypePlain("dev-1@sas.hub", token(t, other.PrimaryKey, resource, time.Hour)))
	require.ErrorContains(t, err, "auth failed with code 0x1")

	cert := testbroker.NewClientCert("dev-3", time.Time{}, time.Time{})
	_, err = hub.AddDeviceX509("dev-3", testbroker.Thumbprint(cert.Leaf))
	require.NoError(t, err)
	for _, mechanism := range []amqp.SASLType{nil, amqp.SASLTypeExternal("")} {
		p, err := dialPlain(t, hub, addr, mechanism, cert)
		require.NoError(t, err)
		require.NoError(t, p.sender("/devices/dev-3/messages/events").Send(soon(t), amqp.NewMessage(nil), nil))
	}
	seen(t, "CBS without SASL and with ANONYMOUS, PLAIN, a certificate without SASL and with EXTERNAL: a message each "+
		"was accepted")
}

func TestGoAMQPTelemetry(t *testing.T) {
	h := newPlainHub(t)
	s := h.dial(t).sender(amqpEvents)
	const n = 500
	receipts := make([]amqp.SendReceipt, n)
	for i := range n {
		m := amqp.NewMessage(fmt.Append(nil, i))
		m.Properties = &amqp.MessageProperties{MessageID: fmt.Sprint(i), CorrelationID: "c",
			ContentType: pointer("text/plain"), ContentEncoding: pointer("utf-8")}
		m.Annotations = amqp.Annotations{"dt-subject": "thermostat1"}
		m.ApplicationProperties = map[string]any{"größe": "1 & 2 = 3/Ω"}
		var err error
		receipts[i], err = s.SendWithReceipt(soon(t), m, nil)
		require.NoError(t, err)
	}
	for _, r := range receipts {
		state, err := r.Wait(soon(t))
		require.NoError(t, err)
		require.IsType(t, &amqp.StateAccepted{}, state)
	}
	require.Equal(t, n, h.hub.Len())
	for i, m := range h.hub.Messages() {
		require.Equal(t, fmt.Sprint(i), m.MessageID)
		require.Equal(t, "c text/plain utf-8 thermostat1", m.CorrelationID+" "+m.ContentType+" "+m.ContentEncoding+" "+
			m.Component)
		require.Equal(t, []hubdata.Property{{Name: "größe", Value: "1 & 2 = 3/Ω"}}, m.Properties)
		require.Equal(t, fmt.Sprint(i), string(m.Body))
	}
	seen(t, "%d messages, all in flight at a time: accepted, in order, properties as sent", n)
}

func TestGoAMQPBatch(t *testing.T) {
	h := newPlainHub(t)
	s := h.dial(t).sender(amqpEvents)
	batch := &amqp.Message{Format: batchFormat}
	for i := range 100 {
		inner, err := (&amqp.Message{
			Data: [][]byte{fmt.Append(nil, "b", i)}, Properties: &amqp.MessageProperties{MessageID: fmt.Sprint("b", i)},
			ApplicationProperties: map[string]any{"n": fmt.Sprint(i)},
		}).MarshalBinary()
		require.NoError(t, err)
		batch.Data = append(batch.Data, inner)
	}
	require.NoError(t, s.Send(soon(t), batch, nil))
	for i, m := range h.hub.Messages() {
		require.Equal(t, fmt.Sprint("b", i), m.MessageID)
		require.Equal(t, []hubdata.Property{{Name: "n", Value: fmt.Sprint(i)}}, m.Properties)
	}
	require.Equal(t, 100, h.hub.Len())
	seen(t, "a batch of 100: accepted, in order")
}

func TestGoAMQPSizesAndSettledMessages(t *testing.T) {
	h := newPlainHub(t)
	p := h.dial(t)
	s := p.sender(amqpEvents)
	require.NoError(t, s.Send(soon(t), amqp.NewMessage(make([]byte, 255<<10)), nil))
	err := s.Send(soon(t), amqp.NewMessage(make([]byte, 257<<10)), nil)
	require.Error(t, err)
	seen(t, "255 KiB accepted; 257 KiB: %v", err)

	settled, err := p.session.NewSender(soon(t), amqpEvents,
		&amqp.SenderOptions{SettlementMode: amqp.SenderSettleModeSettled.Ptr()})
	require.NoError(t, err)
	before := h.hub.Len()
	require.NoError(t, settled.Send(soon(t), amqp.NewMessage([]byte("settled")), nil))
	require.NoError(t, h.hub.WaitMessages(soon(t), before+1))
	require.Zero(t, h.hub.Messages()[before].QoS)
	seen(t, "sent settled: arrived")
}

func TestGoAMQPCloudToDevice(t *testing.T) {
	h := newPlainHub(t)
	hub, dev := h.hub, h.dev
	for _, mode := range []amqp.ReceiverSettleMode{amqp.ReceiverSettleModeFirst, amqp.ReceiverSettleModeSecond} {
		p := h.dial(t)
		r, err := p.session.NewReceiver(soon(t), amqpDeviceBound, &amqp.ReceiverOptions{Credit: 10,
			SettlementMode: mode.Ptr()})
		require.NoError(t, err)
		send := func(body string) {
			t.Helper()
			require.NoError(t, hub.SendC2D(dev.ID, hubdata.C2D{
				MessageID: "id of " + body, ContentType: "text/plain",
				Properties: []hubdata.Property{{Name: "ä/b", Value: "100 %"}}, Body: []byte(body),
			}))
		}
		receive := func(body string, deliveries int) *amqp.Message {
			t.Helper()
			m, err := r.Receive(soon(t), nil)
			require.NoError(t, err)
			require.Equal(t, body, string(m.GetData()))
			require.Equal(t, "id of "+body, m.Properties.MessageID)
			require.Equal(t, amqpDeviceBound, *m.Properties.To)
			require.Equal(t, "100 %", m.ApplicationProperties["ä/b"])
			require.Len(t, m.DeliveryTag, 16)
			require.EqualValues(t, deliveries-1, m.Annotations["iothub-deliverycount"])
			return m
		}
		state := func(body string) (state hubdata.C2DState) {
			for _, c := range hub.C2DLog(dev.ID) {
				if string(c.C2D.Body) == body {
					state = c.State
				}
			}
			return state
		}
		becomes := func(body string, want hubdata.C2DState) {
			t.Helper()
			require.NoError(t, hub.Wait(soon(t),
				func([]hubdata.Message) bool { return state(body) == want }), "%s is %v", body, state(body))
		}
		name := func(what string) string { return fmt.Sprint(what, " ", mode) }
		send(name("accept"))
		require.NoError(t, r.AcceptMessage(soon(t), receive(name("accept"), 1)))
		becomes(name("accept"), hubdata.Completed)
		send(name("reject"))
		err = r.RejectMessage(soon(t), receive(name("reject"), 1), &amqp.Error{Condition: "test:no",
			Description: "not for me"})
		if mode == amqp.ReceiverSettleModeSecond { // the library returns after the hub's confirmation
			requireCondition(t, err, "test:no")
		} else {
			require.NoError(t, err)
		}
		becomes(name("reject"), hubdata.Rejected)
		send(name("release"))
		require.NoError(t, r.ReleaseMessage(soon(t), receive(name("release"), 1)))
		require.NoError(t, r.ModifyMessage(soon(t), receive(name("release"), 2),
			&amqp.ModifyMessageOptions{DeliveryFailed: true}))
		require.NoError(t, r.AcceptMessage(soon(t), receive(name("release"), 3)))
		becomes(name("release"), hubdata.Completed)
		send(name("given up"))
		for i := range 10 {
			require.NoError(t, r.ReleaseMessage(soon(t), receive(name("given up"), i+1)))
		}
		becomes(name("given up"), hubdata.DeadLettered)
		seen(t, "settle mode %v: accepted, rejected, released, modified, and released ten times (dead letter)", mode)
		send(name("cut"))
		receive(name("cut"), 1) // not settled
		require.Equal(t, 1, hub.Drop(dev.ID))
		<-p.conn.Done()
		p = h.dial(t)
		r, err = p.session.NewReceiver(soon(t), amqpDeviceBound, &amqp.ReceiverOptions{Credit: 10,
			SettlementMode: mode.Ptr()})
		require.NoError(t, err)
		require.NoError(t, r.AcceptMessage(soon(t), receive(name("cut"), 2)))
		becomes(name("cut"), hubdata.Completed)
		require.NoError(t, p.sender(amqpEvents).Send(soon(t), amqp.NewMessage([]byte("after the cut")), nil))
		require.NoError(t, p.conn.Close())
		seen(t, "settle mode %v: connection reset with an unsettled message: redelivered on the next one", mode)
	}
}

func TestGoAMQPRenewal(t *testing.T) {
	t.Parallel()
	hub, err := testbroker.New(&testbroker.Options{TokenGrace: -1})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, hub.Close()) })
	dev, err := hub.AddDevice(deviceID)
	require.NoError(t, err)
	resource := hub.HostName() + "/devices/" + dev.ID
	listener, err := hub.Listen(testbroker.PortAMQPS, "127.0.0.1:0")
	require.NoError(t, err)
	p, err := dialPlain(t, hub, listener.String(), nil)
	require.NoError(t, err)
	fresh := func(life time.Duration) {
		t.Helper()
		status, description := p.put(resource, token(t, dev.PrimaryKey, resource, life))
		require.EqualValues(t, 200, status, description)
	}
	fresh(3 * time.Second)
	s := p.sender(amqpEvents)
	began := time.Now()
	for i := 0; time.Since(began) < 4*time.Second; i++ { // longer than the first token
		require.NoError(t, s.Send(soon(t), amqp.NewMessage(fmt.Append(nil, i)), nil))
		if i == 0 {
			fresh(5 * time.Second)
		}
		time.Sleep(50 * time.Millisecond)
	}
	seen(t, "renewed in place: the link lives on beyond the first token, %d messages", hub.Len())
	for err == nil {
		err = s.Send(soon(t), amqp.NewMessage([]byte("until the end")), nil)
		time.Sleep(50 * time.Millisecond)
	}
	requireCondition(t, err, amqp.ErrCondUnauthorizedAccess)
	fresh(time.Hour)
	require.NoError(t, p.sender(amqpEvents).Send(soon(t), amqp.NewMessage([]byte("again")), nil))
	seen(t, "not renewed: %v; with a fresh token a new link on the same connection", err)
}

func TestGoAMQPEnds(t *testing.T) {
	h := newPlainHub(t)
	hub, dev := h.hub, h.dev
	e := hubdata.AMQPError{Condition: "amqp:link:detach-forced", Description: "as planned"}
	p := h.dial(t)
	s := p.sender(amqpEvents)
	require.Equal(t, 1, hub.DetachLinks(dev.ID, fault.LinkTelemetry, e))
	requireCondition(t, s.Send(soon(t), amqp.NewMessage(nil), nil), "amqp:link:detach-forced")
	require.NoError(t, p.sender(amqpEvents).Send(soon(t), amqp.NewMessage(nil), nil))
	e.Condition = "amqp:connection:forced"
	require.Equal(t, 1, hub.CloseAMQP(dev.ID, e))
	<-p.conn.Done()
	requireCondition(t, p.conn.Err(), amqp.ErrCondConnectionForced)
	p = h.dial(t)
	require.NoError(t, p.sender(amqpEvents).Send(soon(t), amqp.NewMessage(nil), nil))
	require.NoError(t, p.conn.Close())
	eventually(t, "the hub notices the close", func() bool { return hub.Connections(dev.ID) == 0 })
	seen(t, "link detached, connection closed by the hub with conditions, closed by the client: each was noticed")
}

func pointer[T any](v T) *T { return &v }

func requireCondition(t testing.TB, err error, want amqp.ErrCond) {
	t.Helper()
	var e *amqp.Error
	require.True(t, errors.As(err, &e), "%v", err)
	require.Equal(t, want, e.Condition)
}

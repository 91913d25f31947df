package amqpfront_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

func TestAddressesOfLinks(t *testing.T) {
	for _, c := range []struct {
		address  string
		sender   string // the condition of the refusal; empty = accepted
		receiver string
	}{
		{"/devices/dev-1/messages/events", "", "amqp:not-allowed"},
		{"devices/dev-1/messages/events", "", "amqp:not-allowed"},
		{"/devices/dev%2D1/messages/events", "", "amqp:not-allowed"},
		{"amqps://hub.example.test/devices/dev-1/messages/events", "", "amqp:not-allowed"},
		{"amqps://HUB.example.test:5671/devices/dev-1/messages/events", "", "amqp:not-allowed"},
		{"amqps://localhost/devices/dev-1/messages/events", "", "amqp:not-allowed"},
		{"amqps://hub2.example.test/devices/dev-1/messages/events", "amqp:not-found", "amqp:not-found"},
		{"/devices/dev-1/messages/devicebound", "amqp:not-allowed", ""},
		{"/devices/dev-1/messages/deviceBound", "amqp:not-allowed", ""},
		{"/devices/dev-1/modules/mod-1/messages/events", "", ""},
		{"/devices/dev-1/modules/mod-1/messages/devicebound", "amqp:not-allowed", ""},
		{"/devices/dev-1/twin", "", ""},
		{"/devices/dev-1/modules/mod-1/twin", "", ""},
		{"/devices/dev-1/methods/devicebound", "", ""},
		{"/devices/dev-1/methods/deviceBound", "", ""},
		{"/devices/a%20b/messages/events", "", "amqp:not-allowed"},
		{"/devices/a%2520b/messages/events", "", "amqp:not-allowed"},
		{"/devices/dev-2/messages/events", "amqp:unauthorized-access", "amqp:not-allowed"},
		{"/devices/nobody/messages/events", "amqp:not-found", "amqp:not-allowed"},
		{"/devices/nobody/messages/devicebound", "amqp:not-allowed", "amqp:not-found"},
		{"/devices/dev-1/modules/nobody/messages/events", "amqp:not-found", "amqp:not-found"},
		{"/devices/dev-1/messages", "amqp:not-found", "amqp:not-found"},
		{"/devices/dev-1/messages/events/", "amqp:not-found", "amqp:not-found"},
		{"/devices//messages/events", "amqp:not-found", "amqp:not-found"},
		{"/devices/%zz/messages/events", "amqp:not-found", "amqp:not-allowed"},
		{"/messages/devicebound", "amqp:unauthorized-access", "amqp:not-allowed"},
		{"", "amqp:invalid-field", "amqp:invalid-field"},
	} {
		hubtest.RunInBubble(t, c.address, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
			mod := hubtest.AddModule(t, h, "dev-1", "mod-1")
			hubtest.AddDevice(t, h, "dev-2")
			odd := hubtest.AddDevice(t, h, "a%20b")
			p := hubtest.DialPeer(t, h)
			tokens := p.CBS()
			for _, d := range []hubdata.Device{d, mod, odd} {
				require.Equal(t, 200, tokens.Put(hubtest.Token(d)))
			}
			s := p.Session()
			check := func(want string, err error) {
				t.Helper()
				if want == "" {
					require.NoError(t, err)
				} else {
					require.Equal(t, want, hubtest.Condition(t, err))
				}
			}
			_, err := s.NewSender(t.Context(), c.address, nil)
			check(c.sender, err)
			_, err = s.NewReceiver(t.Context(), c.address, nil)
			check(c.receiver, err)
			_, err = s.NewSender(t.Context(), hubtest.TelemetryAddress, nil)
			require.NoError(t, err, "a refusal leaves the session as it is")
		})
	}
}

func TestLinksThatTheHubDoesNotHave(t *testing.T) {
	for name, c := range map[string]struct {
		change func(a *amqpwire.Attach)
		want   amqpwire.Symbol
	}{
		"transactions": {func(a *amqpwire.Attach) { a.Target = &amqpwire.Coordinator{} }, amqpwire.NotImplemented},
		"dynamic": {func(a *amqpwire.Attach) {
			a.Target = &amqpwire.Target{Dynamic: true}
		}, amqpwire.NotImplemented},
		"resumed": {func(a *amqpwire.Attach) {
			a.Unsettled = amqpwire.Map{{Key: []byte{1}, Value: nil}}
		}, amqpwire.NotImplemented},
		"no target": {func(a *amqpwire.Attach) { a.Target = nil }, amqpwire.InvalidField},
		"address of a number": {func(a *amqpwire.Attach) {
			a.Target = &amqpwire.Target{Address: uint32(1)}
		}, amqpwire.InvalidField},
		"without an address": {func(a *amqpwire.Attach) { a.Target = &amqpwire.Target{} }, amqpwire.InvalidField},
		"receiver, no source": {func(a *amqpwire.Attach) {
			a.Role, a.Source = amqpwire.RoleReceiver, nil
		}, amqpwire.InvalidField},
		"receiver, no address": {func(a *amqpwire.Attach) { a.Role = amqpwire.RoleReceiver }, amqpwire.InvalidField},
	} {
		hubtest.RunInBubble(t, name, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
			p := hubtest.DialFrames(t, h)
			p.Login(d)
			a := hubtest.SenderTo(hubtest.TelemetryAddress, 1)
			c.change(a)
			p.Say(0, a)
			answer, _ := hubtest.Want[*amqpwire.Attach](p)
			if a.Role == amqpwire.RoleSender {
				require.Nil(t, answer.Target)
			} else {
				require.Nil(t, answer.Source)
			}
			detach, _ := hubtest.Want[*amqpwire.Detach](p)
			require.True(t, detach.Closed)
			require.Equal(t, c.want, detach.Error.Condition)
			p.Say(0, &amqpwire.Detach{Handle: 1, Closed: true})
			p.Attach(hubtest.SenderTo(hubtest.TelemetryAddress, 1))
		})
	}
}

func TestWhatTelemetryIsRejected(t *testing.T) {
	text := func(n int) string { return strings.Repeat("x", n) }
	for name, c := range map[string]struct {
		m    *amqp.Message
		want string
	}{
		"value":    {&amqp.Message{Value: int32(1)}, "amqp:not-allowed"},
		"sequence": {&amqp.Message{Sequence: [][]any{{"x"}}}, "amqp:not-allowed"},
		"bytes as a property": {&amqp.Message{Data: [][]byte{{1}}, ApplicationProperties: map[string]any{"a": []byte("x")}},
			"amqp:invalid-field"},
		"component, a number": {&amqp.Message{Data: [][]byte{{1}}, Annotations: amqp.Annotations{"dt-subject": int32(1)}},
			"amqp:invalid-field"},
		"component in a batch": {&amqp.Message{Format: amqpwire.BatchFormat,
			Data: [][]byte{hubtest.Encoded(t,
				&amqpwire.Message{MessageAnnotations: amqpwire.Map{{Key: amqpwire.Symbol("dt-subject"),
					Value: true}}})}},
			"amqp:invalid-field"},
		"component makes it so": {&amqp.Message{Data: [][]byte{make([]byte, hubdata.MaxMessage)},
			Annotations: amqp.Annotations{"dt-subject": "c"}},
			"amqp:link:message-size-exceeded"},
		"nameless property": {&amqp.Message{Data: [][]byte{{1}}, ApplicationProperties: map[string]any{"": "x"}},
			"amqp:invalid-field"},
		"long id": {&amqp.Message{Data: [][]byte{{1}}, Properties: &amqp.MessageProperties{MessageID: text(129)}},
			"amqp:invalid-field"},
		"large": {&amqp.Message{Data: [][]byte{make([]byte, hubdata.MaxMessage+1)}},
			"amqp:link:message-size-exceeded"},
		"large by its properties": {&amqp.Message{Data: [][]byte{make([]byte, hubdata.MaxMessage)},
			ApplicationProperties: map[string]any{"a": "b"}},
			"amqp:link:message-size-exceeded"},
		"another format": {&amqp.Message{Format: 7, Data: [][]byte{{1}}}, "amqp:not-implemented"},
		"batch of nothing": {&amqp.Message{Format: amqpwire.BatchFormat, ApplicationProperties: map[string]any{"a": "b"}},
			"amqp:invalid-field"},
		"batch of nonsense": {&amqp.Message{Format: amqpwire.BatchFormat, Data: [][]byte{{0x40}}}, "amqp:decode-error"},
		"batch of 501": {&amqp.Message{Format: amqpwire.BatchFormat, Data: make([][]byte, 501)},
			"amqp:invalid-field"},
		"batch, one is bad": {&amqp.Message{Format: amqpwire.BatchFormat, Data: [][]byte{hubtest.DataOf(t, "good"),
			hubtest.Encoded(t, &amqpwire.Message{Value: true, HasValue: true})}},
			"amqp:not-allowed"},
		"batch, too large": {&amqp.Message{Format: amqpwire.BatchFormat, Data: [][]byte{hubtest.DataOf(t, text(200<<10)),
			hubtest.DataOf(t, text(100<<10))}},
			"amqp:link:message-size-exceeded"},
	} {
		hubtest.RunInBubble(t, name, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
			l := hubtest.LoginAMQP(t, h, d).Telemetry(d)
			require.Equal(t, c.want, hubtest.Condition(t, l.Send(t.Context(), c.m, nil)))
			require.Zero(t, h.Len())
			require.NoError(t, l.Send(t.Context(), &amqp.Message{Data: [][]byte{make([]byte, hubdata.MaxMessage)}}, nil),
				"the link lives on")
		})
	}
}

func TestMaxMessageSizeOfALink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := hubtest.NewHub(t, &testbroker.Options{AMQP: testbroker.AMQPOptions{MaxMessageSize: 1000, MaxFrameSize: 512}})
		l := hubtest.LoginAMQP(t, h, d).Telemetry(d)
		require.EqualValues(t, 1000, l.MaxMessageSize())
		require.Equal(t, "amqp:link:message-size-exceeded",
			hubtest.Condition(t, l.Send(t.Context(), hubtest.Body(strings.Repeat("x", 1000)),
				nil)))
		require.NoError(t, l.Send(t.Context(), hubtest.Body(strings.Repeat("x", 990)), nil), "in frames")
		require.Len(t, h.Messages()[0].Body, 990)
	})
}

func TestBatch(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		l := hubtest.LoginAMQP(t, h, d).Telemetry(d)
		batch := &amqp.Message{Format: amqpwire.BatchFormat}
		for i := range 500 {
			batch.Data = append(batch.Data, hubtest.Encoded(t, &amqpwire.Message{
				Properties: &amqpwire.Properties{MessageID: fmt.Sprint(i)}, Data: [][]byte{[]byte("x")},
				ApplicationProperties: amqpwire.Map{{Key: "n", Value: fmt.Sprint(i)}},
			}))
		}
		require.NoError(t, l.Send(t.Context(), batch, nil))
		require.Equal(t, 500, h.Len())
		for i, m := range h.Messages() {
			require.Equal(t, fmt.Sprint(i), m.MessageID)
			n, _ := m.Property("n")
			require.Equal(t, m.MessageID, n)
		}
	})
}

func TestC2DMessagesOverAMQP(t *testing.T) {
	hubtest.InBubble(t, &testbroker.Options{Seed: 7}, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		expiry := time.Now().Add(time.Minute)
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{
			MessageID: "m", CorrelationID: "c", UserID: "u", ContentType: "t", ContentEncoding: "e", Ack: "full", Expiry: expiry,
			Properties: []hubdata.Property{{Name: "a", Value: "b"}, {Name: "empty"}}, Body: []byte("reboot"),
		}))
		r := hubtest.LoginAMQP(t, h, d).C2dMessages(d, nil)
		m, err := r.Receive(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, "reboot", string(m.GetData()))
		p := m.Properties
		require.Equal(t, "m", p.MessageID)
		require.Equal(t, "c", p.CorrelationID)
		require.Equal(t, "u", string(p.UserID))
		require.Equal(t, "/devices/dev-1/messages/devicebound", *p.To)
		require.Equal(t, "t", *p.ContentType)
		require.Equal(t, "e", *p.ContentEncoding)
		require.True(t, p.AbsoluteExpiryTime.Equal(expiry))
		require.Equal(t, map[string]any{"a": "b", "empty": "", "iothub-ack": "full"}, m.ApplicationProperties)
		require.Len(t, m.DeliveryTag, 16)
		record := h.C2DLog("dev-1")[0]
		require.Equal(t, hubdata.C2DInvisible, record.State)
		require.Regexp(t, "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$", record.LockToken)
		b := m.DeliveryTag
		require.Equal(t, fmt.Sprintf("%x-%x-%x-%x-%x", []byte{b[3], b[2], b[1], b[0]}, []byte{b[5], b[4]}, []byte{b[7], b[6]},
			b[8:10], b[10:]), record.LockToken)
		require.Equal(t, amqp.Annotations{
			"iothub-enqueuedtime": record.Enqueued, "iothub-deliverycount": uint8(0), "x-opt-sequence-number": uint64(1),
			"x-opt-lock-token": record.LockToken,
		}, m.Annotations)
		require.NoError(t, r.AcceptMessage(t.Context(), m))
		require.NoError(t, h.WaitC2D(hubtest.Soon(t), "dev-1", hubdata.C2DCompleted, 1))
		require.Equal(t, "Success", h.C2DLog("dev-1")[0].Feedback)
	})
}

func TestOutcomesOfC2DMessages(t *testing.T) {
	second, settled := amqp.ReceiverSettleModeSecond, amqp.SenderSettleModeSettled
	accept := func(r *amqp.Receiver, m *amqp.Message) error { return r.AcceptMessage(context.Background(), m) }
	for name, c := range map[string]struct {
		o        *amqp.ReceiverOptions
		settle   func(r *amqp.Receiver, m *amqp.Message) error
		state    hubdata.C2DState
		feedback string
		times    int // expected deliveries
	}{
		"accepted":         {nil, accept, hubdata.C2DCompleted, "Success", 1},
		"accepted, second": {&amqp.ReceiverOptions{SettlementMode: &second}, accept, hubdata.C2DCompleted, "Success", 1},
		"settled": {&amqp.ReceiverOptions{RequestedSenderSettleMode: &settled}, accept, hubdata.C2DCompleted,
			"Success", 1},
		"rejected": {nil, func(r *amqp.Receiver, m *amqp.Message) error {
			return r.RejectMessage(context.Background(), m, &amqp.Error{Condition: "x"})
		}, hubdata.C2DRejected, "Rejected", 1},
		"rejected, second": {&amqp.ReceiverOptions{SettlementMode: &second}, func(r *amqp.Receiver, m *amqp.Message) error {
			return r.RejectMessage(context.Background(), m, nil)
		}, hubdata.C2DRejected, "Rejected", 1},
		"released": {nil, func(r *amqp.Receiver, m *amqp.Message) error {
			return r.ReleaseMessage(context.Background(), m)
		}, hubdata.C2DDeadLettered, "DeliveryCountExceeded", 10},
		"released, second": {&amqp.ReceiverOptions{SettlementMode: &second}, func(r *amqp.Receiver, m *amqp.Message) error {
			return r.ReleaseMessage(context.Background(), m)
		}, hubdata.C2DDeadLettered, "DeliveryCountExceeded", 10},
		"modified": {nil, func(r *amqp.Receiver, m *amqp.Message) error {
			return r.ModifyMessage(context.Background(), m, &amqp.ModifyMessageOptions{DeliveryFailed: true})
		}, hubdata.C2DDeadLettered, "DeliveryCountExceeded", 10},
	} {
		hubtest.RunInBubble(t, name, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
			require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Ack: "full", Body: []byte("1")}))
			r := hubtest.LoginAMQP(t, h, d).C2dMessages(d, c.o)
			tags := make(map[string]bool)
			for i := range c.times {
				m, err := r.Receive(hubtest.Soon(t), nil)
				require.NoError(t, err)
				require.Equal(t, uint8(i), m.Annotations["iothub-deliverycount"])
				tags[string(m.DeliveryTag)] = true
				require.NoError(t, c.settle(r, m))
			}
			require.NoError(t, h.WaitC2D(hubtest.Soon(t), "dev-1", c.state, 1))
			require.Len(t, tags, c.times)
			record := h.C2DLog("dev-1")[0]
			require.Equal(t, c.feedback, record.Feedback)
			require.Equal(t, c.times, record.Deliveries)
			_, err := r.Receive(hubtest.Soon(t), nil)
			require.ErrorIs(t, err, context.DeadlineExceeded)
		})
	}
}

// A client that settles too late gets an error if it expects a state, and the C2D message is
// delivered again.
func TestTheLockOfAC2DMessageEnds(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Body: []byte("1")}))
		p := hubtest.DialFrames(t, h)
		p.Login(d)
		a := hubtest.ReceiverFrom("/devices/dev-1/messages/devicebound", 1)
		a.RcvSettleMode = amqpwire.ReceiveSecond
		require.Equal(t, amqpwire.ReceiveSecond, p.Attach(a).RcvSettleMode)
		p.Say(0, hubtest.Credit(1, 10))
		first, _ := hubtest.Want[*amqpwire.Transfer](p)
		time.Sleep(61 * time.Second)
		again, _ := hubtest.Want[*amqpwire.Transfer](p)
		require.NotEqual(t, first.DeliveryTag, again.DeliveryTag)
		settle := func(x *amqpwire.Transfer, state amqpwire.DeliveryState) amqpwire.DeliveryState {
			p.Say(0, &amqpwire.Disposition{Role: amqpwire.RoleReceiver, First: x.DeliveryID.V, State: state})
			answer, _ := hubtest.Want[*amqpwire.Disposition](p)
			require.Equal(t, amqpwire.RoleSender, answer.Role)
			require.True(t, answer.Settled)
			require.Equal(t, x.DeliveryID.V, answer.First)
			return answer.State
		}
		late := settle(first, &amqpwire.Accepted{})
		require.EqualValues(t, "com.microsoft:message-lock-lost", late.(*amqpwire.Rejected).Error.Condition)
		require.Equal(t, hubdata.C2DInvisible, h.C2DLog("dev-1")[0].State)
		p.Say(0, &amqpwire.Disposition{Role: amqpwire.RoleReceiver, First: again.DeliveryID.V, State: &amqpwire.Received{}})
		require.Equal(t, &amqpwire.Accepted{}, settle(again, &amqpwire.Accepted{}))
		require.Equal(t, hubdata.C2DCompleted, h.C2DLog("dev-1")[0].State)
		p.Say(0, &amqpwire.Disposition{Role: amqpwire.RoleReceiver, First: 0, Last: amqpwire.Some(uint32(1<<31 - 1)),
			Settled: true})
		p.Say(0, &amqpwire.Close{})
		hubtest.Want[*amqpwire.Close](p)
	})
}

// Dispositions of ranges, some without a state.
func TestRangesOfDispositions(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		for i := range 6 {
			require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Body: []byte{byte(i)}}))
		}
		p := hubtest.DialFrames(t, h)
		p.Login(d)
		p.Attach(hubtest.ReceiverFrom("/devices/dev-1/messages/devicebound", 1))
		p.Say(0, hubtest.Credit(1, 6))
		var ids []uint32
		for range 6 {
			x, _ := hubtest.Want[*amqpwire.Transfer](p)
			ids = append(ids, x.DeliveryID.V)
		}
		p.Say(0, &amqpwire.Disposition{Role: amqpwire.RoleReceiver, First: ids[1], Last: amqpwire.Some(ids[3]), Settled: true,
			State: &amqpwire.Accepted{}})
		p.Say(0, &amqpwire.Disposition{Role: amqpwire.RoleReceiver, First: ids[5], Settled: true})
		synctest.Wait()
		var states []hubdata.C2DState
		for _, r := range h.C2DLog("dev-1") {
			states = append(states, r.State)
		}
		const done, there, back = hubdata.C2DCompleted, hubdata.C2DInvisible, hubdata.C2DEnqueued
		require.Equal(t, []hubdata.C2DState{there, done, done, done, there, back}, states)
		p.Say(0, &amqpwire.Detach{Handle: 1, Closed: true})
		synctest.Wait()
		require.Equal(t, 3, h.CountC2D("dev-1", back), "what is unsettled goes back")
	})
}

func TestANewC2DLinkReplacesTheOlder(t *testing.T) {
	for name, c := range map[string]struct {
		other bool // on another connection
		want  string
	}{"same connection": {false, "amqp:link:stolen"}, "another connection": {true,
		"com.microsoft:link-creation-conflict"}} {
		hubtest.RunInBubble(t, name, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
			p := hubtest.LoginAMQP(t, h, d)
			old, s := p.C2dMessages(d, &amqp.ReceiverOptions{Credit: 5}), p.Telemetry(d)
			require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Body: []byte("1")}))
			_, err := old.Receive(t.Context(), nil)
			require.NoError(t, err)
			if c.other {
				p = hubtest.LoginAMQP(t, h, d)
			}
			fresh := p.C2dMessages(d, &amqp.ReceiverOptions{Credit: 5})
			m, err := fresh.Receive(hubtest.Soon(t), nil)
			require.NoError(t, err, "what was not settled comes again")
			require.NoError(t, fresh.AcceptMessage(t.Context(), m))
			_, err = old.Receive(t.Context(), nil)
			require.Equal(t, c.want, hubtest.Condition(t, err))
			require.NoError(t, s.Send(t.Context(), hubtest.Body("x"), nil), "telemetry goes on")
			require.NoError(t, h.WaitC2D(hubtest.Soon(t), "dev-1", hubdata.C2DCompleted, 1))
			require.Equal(t, 1, h.Links("dev-1", fault.LinkC2D))
		})
	}
}

// MQTT and AMQP share the queue; the newest receiver gets the waiting messages.
func TestANewReceiverReplacesTheOlderAcrossProtocols(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		m := hubtest.Login(t, h, d)
		require.Equal(t, []byte{1}, m.Subscribe(1, "devices/dev-1/messages/devicebound/#"))
		synctest.Wait() // the hub makes it the receiver after the SUBACK
		r := hubtest.LoginAMQP(t, h, d).C2dMessages(d, nil)
		require.Error(t, m.End())
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Body: []byte("1")}))
		_, err := r.Receive(hubtest.Soon(t), nil)
		require.NoError(t, err)

		m = hubtest.Login(t, h, d)
		require.Equal(t, []byte{1}, m.Subscribe(1, "devices/dev-1/messages/devicebound/#"))
		require.Contains(t, string(m.Expect(3)), "1")
		_, err = r.Receive(hubtest.Soon(t), nil)
		require.Equal(t, "com.microsoft:link-creation-conflict", hubtest.Condition(t, err))
	})
}

// Some clients use the same link names in all sessions. Within a session a name identifies one
// link.
func TestNamesOfLinks(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		p := hubtest.DialFrames(t, h)
		p.Login(d)
		p.Attach(hubtest.SenderTo(hubtest.TelemetryAddress, 1))
		p.Begin(1)
		p.Say(1, hubtest.SenderTo(hubtest.TelemetryAddress, 1))
		hubtest.Want[*amqpwire.Attach](p)
		hubtest.Want[*amqpwire.Flow](p)
		require.Equal(t, 2, h.Links("dev-1", fault.LinkTelemetry))
		p.Say(0, hubtest.SenderTo(hubtest.TelemetryAddress, 2))
		detach, f := hubtest.Want[*amqpwire.Detach](p)
		require.EqualValues(t, 0, f.Channel)
		require.EqualValues(t, 1, detach.Handle)
		require.Equal(t, amqpwire.LinkStolen, detach.Error.Condition)
		hubtest.Want[*amqpwire.Attach](p)
		hubtest.Want[*amqpwire.Flow](p)
		require.Equal(t, 2, h.Links("dev-1", fault.LinkTelemetry))
	})
}

// The hub respects the client's max-message-size: a larger message waits for a link that can carry
// it.
func TestC2DMessagesTooLargeForALinkWait(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Body: make([]byte, 5000)}))
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Body: []byte("small")}))
		p := hubtest.LoginAMQP(t, h, d)
		m, err := p.C2dMessages(d, &amqp.ReceiverOptions{MaxMessageSize: 1000}).Receive(hubtest.Soon(t), nil)
		require.NoError(t, err)
		require.Equal(t, "small", string(m.GetData()))
		m, err = p.C2dMessages(d, nil).Receive(hubtest.Soon(t), nil)
		require.NoError(t, err)
		require.Len(t, m.GetData(), 5000)
	})
}

// Every request is answered on the receiver paired with its sender, with an id of the same type.
func TestLinksForTwins(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		p := hubtest.LoginAMQP(t, h, d)
		s1, r1 := hubtest.Pair(p, "/devices/dev-1/twin", "twin:1")
		s2, r2 := hubtest.Pair(p, "/devices/dev-1/twin", "twin:2")
		for i, c := range []struct {
			s *amqp.Sender
			r *amqp.Receiver
		}{{s1, r1}, {s2, r2}, {s1, r1}} {
			for _, id := range []any{fmt.Sprint("GET-", i), amqp.UUID{1, 15: byte(i)}, uint64(i)} {
				require.NoError(t, c.s.Send(t.Context(), &amqp.Message{
					Annotations: amqp.Annotations{"operation": "GET"}, Properties: &amqp.MessageProperties{CorrelationID: id},
					Data: [][]byte{[]byte(" ")},
				}, nil))
				m, err := c.r.Receive(hubtest.Soon(t), nil)
				require.NoError(t, err)
				require.Equal(t, id, m.Properties.CorrelationID)
				require.Equal(t, int32(200), m.Annotations["status"])
				require.Equal(t, `{"desired":{"$version":1},"reported":{"$version":1}}`, string(m.GetData()))
			}
		}
		require.Equal(t, "amqp:invalid-field", hubtest.Condition(t, s1.Send(t.Context(), hubtest.Body(" "), nil)))
		require.NoError(t, r2.Close(t.Context()))
		require.Equal(t, "amqp:precondition-failed",
			hubtest.Condition(t, s2.Send(t.Context(),
				&amqp.Message{Properties: &amqp.MessageProperties{CorrelationID: "x"}}, nil)))
		require.Equal(t, 3, h.Links("dev-1", fault.LinkAny))
	})
}

// A second pair of method links replaces the first.
func TestANewPairOfMethodLinksReplacesTheOlder(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		p := hubtest.LoginAMQP(t, h, d)
		s1, r1 := hubtest.Pair(p, "/devices/dev-1/methods/devicebound", "methods:1")
		require.Equal(t, "amqp:invalid-field", hubtest.Condition(t, s1.Send(t.Context(), hubtest.Body("{}"), nil)),
			"it answers nothing")
		s2, _ := hubtest.Pair(p, "/devices/dev-1/methods/devicebound", "methods:2")
		_, err := r1.Receive(t.Context(), nil)
		require.Equal(t, "amqp:link:stolen", hubtest.Condition(t, err))
		require.Equal(t, "amqp:link:stolen", hubtest.Condition(t, s1.Send(t.Context(), hubtest.Body("{}"), nil)))
		require.Equal(t, 2, h.Links("dev-1", fault.LinkAny))
		q := hubtest.LoginAMQP(t, h, d)
		hubtest.Pair(q, "/devices/dev-1/methods/devicebound", "methods:2")
		require.Equal(t, "com.microsoft:link-creation-conflict",
			hubtest.Condition(t, s2.Send(t.Context(), hubtest.Body("{}"), nil)))
		require.Equal(t, 2, h.Links("dev-1", fault.LinkAny))
		two := hubtest.AddDevice(t, h, "dev-2")
		o := hubtest.LoginAMQP(t, h, two)
		hubtest.Pair(o, "/devices/dev-2/methods/devicebound", "methods:2")
		require.Equal(t, 4, h.Links("", fault.LinkAny), "another device is another")
	})
}

// SendRaw and the log work as over MQTT, because the hub is the same.
func TestBothProtocolsFeedOneLog(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		w := hubtest.Login(t, h, d)
		l := hubtest.LoginAMQP(t, h, d).Telemetry(d)
		w.Publish(1, hubtest.Events+"%24.mid=a", "same")
		w.Acked()
		id := func(s string) *amqp.Message {
			return &amqp.Message{Properties: &amqp.MessageProperties{MessageID: "a"}, Data: [][]byte{[]byte(s)}}
		}
		require.NoError(t, l.Send(t.Context(), id("same"), nil))
		require.Empty(t, h.Conflicts())
		require.NoError(t, l.Send(t.Context(), id("other"), nil))
		require.Len(t, h.Conflicts(), 1)
		require.Equal(t, 2, h.Connections("dev-1"))
		require.True(t, bytes.Equal(h.Messages()[0].Body, h.Messages()[1].Body))
	})
}

package hub_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

const (
	modInputs = "devices/dev-1/modules/mod-1/inputs/"
	modEvents = "/devices/dev-1/modules/mod-1/messages/events"
)

// newModule makes a hub with the module dev-1/mod-1.
func newModule(t testing.TB, o *testbroker.Options) (*testbroker.Hub, hubdata.Device) {
	h, _ := hubtest.NewHub(t, o)
	mod := hubtest.AddModule(t, h, "dev-1", "mod-1")
	return h, mod
}

// listener logs in and subscribes to the inputs of a module.
func listener(t testing.TB, h *testbroker.Hub, mod hubdata.Device) *hubtest.Wire {
	w := hubtest.Login(t, h, mod)
	require.Equal(t, []byte{1}, w.Subscribe(1, modInputs+"#"))
	return w
}

func toInput(t testing.TB, h *testbroker.Hub, input string, bodies ...string) {
	t.Helper()
	for _, b := range bodies {
		require.NoError(t, h.SendInput("dev-1/mod-1", input, hubdata.C2D{Body: []byte(b)}))
	}
}

// inputStates returns the states and delivery counts of all messages to inputs.
func inputStates(h *testbroker.Hub) (all []string) {
	for _, r := range h.InputLog("") {
		all = append(all, fmt.Sprint(r.Input, " ", r.State, " ", r.Deliveries))
	}
	return all
}

// everyProperty is a message with all system properties.
func everyProperty() hubdata.C2D {
	return hubdata.C2D{
		MessageID: "m1", CorrelationID: "1234", UserID: "user1", ContentType: "application/json", ContentEncoding: "utf-8",
		To: "foo", Schema: "schema1", InterfaceID: "urn:if:1", Component: "testComponent",
		ConnectionDeviceID: "fromDevice1", ConnectionModuleID: "fromModule1", DiagnosticID: "d1",
		DiagnosticContext: "creationtimeutc=1", CreationTime: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC),
		Expiry:     time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC),
		Properties: []hubdata.Property{{Name: "Foo", Value: "Bar"}, {Name: "Prop2", Value: "Value2"}}, Body: []byte("{}"),
	}
}

// The first topic is a vector of the service's own gateway.
func TestInputMessageHasTheTopicOfAGateway(t *testing.T) {
	m := everyProperty()
	m.Properties = append(m.Properties, hubdata.Property{Name: "Prop3", Value: "Value3"})
	bare := m
	bare.InterfaceID, bare.DiagnosticID, bare.DiagnosticContext = "", "", ""
	bare.CreationTime, bare.Expiry = time.Time{}, time.Time{}
	const vector = modInputs + "input1/Foo=Bar&Prop2=Value2&Prop3=Value3&%24.ce=utf-8&%24.ct=application%2Fjson&" +
		"%24.schema=schema1&%24.to=foo&%24.uid=user1&%24.cid=1234&%24.mid=m1&%24.cdid=fromDevice1&%24.cmid=fromModule1&" +
		"%24.sub=testComponent"
	synctest.Test(t, func(t *testing.T) {
		h, mod := newModule(t, nil)
		w := listener(t, h, mod)
		for _, c := range []struct {
			m    hubdata.C2D
			want string
		}{
			{bare, vector},
			{m, vector + "&%24.exp=2031-01-01T00%3A00%3A00.0000000Z&%24.ctime=2030-01-01T00%3A00%3A00.0000000Z" +
				"&%24.ifid=urn%3Aif%3A1&%24.diagid=d1&%24.diagctx=creationtimeutc%3D1"},
			{hubdata.C2D{Ack: "full"}, modInputs + "input1/iothub-ack=full"},
			{hubdata.C2D{}, modInputs + "input1/"},
		} {
			require.NoError(t, h.SendInput("dev-1/mod-1", "input1", c.m))
			got := hubtest.ReadPublish(w)
			require.Equal(t, c.want, got.Topic)
			require.Equal(t, string(c.m.Body), got.Body)
			hubtest.Ack(w, got.ID)
		}
		require.NoError(t, h.WaitInputs(t.Context(), "dev-1/mod-1", hubdata.C2DCompleted, 4))
		require.Equal(t, "input1", h.InputLog("dev-1")[3].Input)
		require.Empty(t, h.C2DLog(""), "they are no C2D messages")
	})
}

func TestC2DMessageHasAllSystemProperties(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		w := hubtest.Receiver(t, h, d, 1)
		require.NoError(t, h.SendC2D("dev-1", everyProperty()))
		c := hubtest.ReadPublish(w)
		require.Equal(t, "devices/dev-1/messages/devicebound/%24.to=foo&%24.mid=m1&%24.cid=1234&%24.uid=user1&"+
			"%24.ct=application%2Fjson&%24.ce=utf-8&%24.exp=2031-01-01T00%3A00%3A00.0000000Z&%24.schema=schema1&"+
			"%24.cdid=fromDevice1&%24.cmid=fromModule1&%24.sub=testComponent&"+
			"%24.ctime=2030-01-01T00%3A00%3A00.0000000Z&%24.ifid=urn%3Aif%3A1&%24.diagid=d1&"+
			"%24.diagctx=creationtimeutc%3D1&Foo=Bar&Prop2=Value2", c.Topic)
		w.Conn.Close()
		synctest.Wait()

		p := hubtest.OverHTTP(t, h, d)
		r, lock := hubtest.PullC2D(p)
		for name, want := range map[string]string{
			"iothub-to": "foo", "iothub-messageschema": "schema1", "iothub-interface-id": "urn:if:1",
			"dt-subject": "testComponent", "iothub-creationtimeutc": "2030-01-01T00:00:00.0000000Z",
			"iothub-connection-device-id": "fromDevice1", "iothub-connection-module-id": "fromModule1",
		} {
			require.Equal(t, want, r.Header.Get(name), name)
		}
		require.Equal(t, 204, p.Do("POST", hubtest.Inbound+"/"+lock+"/abandon"+hubtest.Version, "").StatusCode)

		m, err := hubtest.LoginAMQP(t, h, d).C2dMessages(d, nil).Receive(hubtest.Soon(t), nil)
		require.NoError(t, err)
		checkAMQP(t, m, "")
	})
}

// checkAMQP checks a message that was sent as everyProperty.
func checkAMQP(t *testing.T, m *amqp.Message, input string) {
	p := m.Properties
	require.Equal(t, []any{"m1", "1234", "user1", "application/json", "utf-8", "foo"},
		[]any{p.MessageID, p.CorrelationID, string(p.UserID), *p.ContentType, *p.ContentEncoding, *p.To})
	require.Equal(t, time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC), p.AbsoluteExpiryTime.UTC())
	require.Equal(t, map[string]any{"Foo": "Bar", "Prop2": "Value2", "iothub-message-schema": "schema1",
		"iothub-creation-time-utc": "2030-01-01T00:00:00.0000000Z"}, m.ApplicationProperties)
	for name, want := range map[string]string{
		"x-opt-input-name": input, "iothub-connection-device-id": "fromDevice1",
		"iothub-connection-module-id": "fromModule1", "iothub-interface-id": "urn:if:1", "dt-subject": "testComponent",
		"Diagnostic-Id": "d1", "Correlation-Context": "creationtimeutc=1",
	} {
		if want == "" {
			require.NotContains(t, m.Annotations, name)
			continue
		}
		require.Equal(t, want, m.Annotations[name], name)
	}
}

func TestInputsOverAMQPAreSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, mod := newModule(t, nil)
		p := hubtest.LoginAMQP(t, h, mod)
		l, err := p.Session().NewReceiver(t.Context(), modEvents, nil)
		require.NoError(t, err)
		require.Equal(t, 1, h.Links("dev-1/mod-1", fault.LinkInput))
		require.NoError(t, h.SendInput("dev-1/mod-1", "in", everyProperty()))
		m, err := l.Receive(hubtest.Soon(t), nil)
		require.NoError(t, err)
		checkAMQP(t, m, "in")
		require.NoError(t, l.AcceptMessage(t.Context(), m))

		toInput(t, h, "other", "released", "rejected")
		m, err = l.Receive(hubtest.Soon(t), nil)
		require.NoError(t, err)
		require.Nil(t, m.Properties.AbsoluteExpiryTime, "the sender has set none")
		require.Nil(t, m.Properties.To)
		require.NoError(t, l.ReleaseMessage(t.Context(), m))
		for _, want := range []string{"released", "rejected"} {
			m, err = l.Receive(hubtest.Soon(t), nil)
			require.NoError(t, err)
			require.Equal(t, want, string(m.GetData()))
			if want == "rejected" {
				require.NoError(t, l.RejectMessage(t.Context(), m, nil))
				continue
			}
			require.Equal(t, uint8(1), m.Annotations["iothub-deliverycount"])
			require.NoError(t, l.AcceptMessage(t.Context(), m))
		}
		synctest.Wait()
		require.Equal(t, []string{"in completed 1", "other completed 2", "other rejected 1"}, inputStates(h))
	})
}

func TestInputsKeepTheirOrderAndComeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen sync.Map
		h, mod := newModule(t, &testbroker.Options{OnEvent: func(e event.Event) {
			if e.Kind == event.InputChanged {
				seen.Store(e.String(), true)
			}
		}})
		toInput(t, h, "a", "1")
		toInput(t, h, "b", "2")
		toInput(t, h, "a", "3")
		first, _ := hubtest.Keeper(t, h, mod)
		require.Equal(t, []byte{1}, first.Subscribe(1, "devices/dev-1/modules/mod-1/#"))
		c := hubtest.ReadPublish(first)
		require.Equal(t, []string{"2", "3"}, hubtest.ReadBodies(first, 2))
		hubtest.Ack(first, c.ID)
		first.Ping()
		first.Conn.Close()
		synctest.Wait()
		second, present := hubtest.Keeper(t, h, mod)
		require.Equal(t, byte(1), present)
		require.Equal(t, []string{"+2", "+3"}, hubtest.ReadBodies(second, 2))
		require.Equal(t, []string{"a completed 1", "b invisible 2", "a invisible 2"}, inputStates(h))
		time.Sleep(time.Minute)
		require.Equal(t, []string{"+2", "+3"}, hubtest.ReadBodies(second, 2), "their locks have ended")
		_, ok := seen.Load("#1 dev-1/mod-1 input message without an id completed")
		require.True(t, ok)
	})
}

func TestUnacknowledgedInputsStopTheFlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, mod := newModule(t, nil)
		w := listener(t, h, mod)
		for i := range 20 {
			toInput(t, h, "a", fmt.Sprint(i))
		}
		c := hubtest.ReadPublish(w)
		hubtest.ReadBodies(w, 15)
		hubtest.Quiet(w)
		hubtest.Ack(w, c.ID)
		require.Equal(t, []string{"16"}, hubtest.ReadBodies(w, 1))
		hubtest.Quiet(w)
	})
}

// TestInputsExpireInALongQueue queues messages with other expiries behind each other, for nobody.
func TestInputsExpireInALongQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := newModule(t, nil)
		for _, after := range []time.Duration{5 * time.Hour, 6 * time.Hour, time.Hour, 3 * time.Hour, 0} {
			m := hubdata.C2D{}
			if after > 0 {
				m.Expiry = time.Now().Add(after)
			}
			require.NoError(t, h.SendInput("dev-1/mod-1", "a", m))
		}
		for i, after := range []int{1, 2, 3, 5, 6} { // the default is 2 hours
			require.NoError(t, h.WaitInputs(t.Context(), "", hubdata.C2DExpired, i+1))
			require.Equal(t, time.Duration(after)*time.Hour, time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)))
		}
		begin := time.Now()
		for range 20_000 {
			toInput(t, h, "a", "x")
		}
		require.Equal(t, 20_000, h.CountInputs("", hubdata.C2DEnqueued))
		require.Equal(t, begin, time.Now())
	})
}

// TestC2DMessagesAndInputsDoNotDisturbEachOther uses both queues of a module on one connection.
func TestC2DMessagesAndInputsDoNotDisturbEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, mod := newModule(t, nil)
		w := hubtest.Login(t, h, mod)
		w.Subscribe(1, "devices/dev-1/modules/mod-1/#")
		toInput(t, h, "a", "input")
		input := hubtest.ReadPublish(w)
		require.NoError(t, h.SendC2D("dev-1/mod-1", hubdata.C2D{Body: []byte("command")}))
		c2d := hubtest.ReadPublish(w)
		require.NotEqual(t, input.ID, c2d.ID)
		hubtest.Ack(w, c2d.ID)
		w.Ping()
		require.Equal(t, []string{"a invisible 1"}, inputStates(h))
		require.Equal(t, []string{"completed 1"}, hubtest.States(h))
		hubtest.Ack(w, input.ID)
		w.Ping()
		require.Equal(t, []string{"a completed 1"}, inputStates(h))

		toInput(t, h, "a", "waits")
		hubtest.ReadPublish(w)
		h.RemoveDevice("dev-1/mod-1")
		require.Equal(t, 1, h.CountInputs("", hubdata.C2DPurged))
		h.Reset()
		require.Empty(t, h.InputLog(""))
	})
}

func TestInvalidInputMessagesAreRefused(t *testing.T) {
	h, _ := newModule(t, &testbroker.Options{Inputs: testbroker.C2DOptions{Queue: 1}})
	big := hubdata.C2D{Body: make([]byte, hubdata.MaxMessage+1)}
	for name, c := range map[string]struct {
		module, input string
		m             hubdata.C2D
		want          string
	}{
		"no module":      {"dev-1", "a", hubdata.C2D{}, "is no module"},
		"unknown module": {"dev-1/mod-2", "a", hubdata.C2D{}, "no such identity"},
		"no input":       {"dev-1/mod-1", "", hubdata.C2D{}, "0 characters"},
		"long name":      {"dev-1/mod-1", strings.Repeat("a", 129), hubdata.C2D{}, "129 characters"},
		"slash":          {"dev-1/mod-1", "a/b", hubdata.C2D{}, "'/' is not allowed"},
		"wildcard":       {"dev-1/mod-1", "#", hubdata.C2D{}, "'#' is not allowed"},
		"big":            {"dev-1/mod-1", "a", big, "at most 262144"},
		"topic":          {"dev-1/mod-1", "a", hubdata.C2D{Topic: "t"}, "Options.Broker"},
		"long topic":     {"dev-1/mod-1", "a", hubdata.C2D{Schema: strings.Repeat("a", 1<<16)}, "65535"},
	} {
		require.ErrorContains(t, h.SendInput(c.module, c.input, c.m), c.want, name)
	}
	toInput(t, h, "a", strings.Repeat("x", hubdata.MaxMessage))
	require.ErrorIs(t, h.SendInput("dev-1/mod-1", "a", hubdata.C2D{}), testbroker.ErrQueueFull)
	plain, err := testbroker.New(&testbroker.Options{Broker: &testbroker.BrokerOptions{}})
	require.NoError(t, err)
	defer plain.Close()
	require.ErrorContains(t, plain.SendInput("dev-1/mod-1", "a", hubdata.C2D{}), "plain broker")
}

// TestSystemPropertiesOfTelemetry checks that the log has the same properties from each protocol.
func TestSystemPropertiesOfTelemetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, mod := newModule(t, nil)
		want := hubdata.Message{
			MessageID: "m1", CorrelationID: "1234", ContentType: "application/json", ContentEncoding: "utf-8",
			Component: "testComponent", CreationTime: "2030-01-01T00:00:00.0000000Z", Expiry: "2031-01-01T00:00:00.0000000Z",
			To: modEvents, UserID: "user1", Schema: "schema1", InterfaceID: "urn:if:1", Output: "out",
			ConnectionDeviceID: "fromDevice1", ConnectionModuleID: "fromModule1", DiagnosticID: "d1", DiagnosticContext: "c=1",
		}
		w := hubtest.Login(t, h, mod)
		w.Publish(1, strings.TrimPrefix(modEvents, "/")+"/%24.mid=m1&%24.cid=1234&%24.ct=application%2Fjson&%24.ce=utf-8&"+
			"%24.sub=testComponent&%24.ctime=2030-01-01T00:00:00.0000000Z&%24.exp=2031-01-01T00:00:00.0000000Z&"+
			"%24.to=%2Fdevices%2Fdev-1%2Fmodules%2Fmod-1%2Fmessages%2Fevents&%24.uid=user1&%24.schema=schema1&"+
			"%24.ifid=urn:if:1&%24.on=out&%24.cdid=fromDevice1&%24.cmid=fromModule1&%24.diagid=d1&%24.diagctx=c%3D1", "x")
		w.Acked()
		l, err := hubtest.LoginAMQP(t, h, mod).Session().NewSender(t.Context(), modEvents, nil)
		require.NoError(t, err)
		expiry, to, kind, encoding := time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC), modEvents, "application/json", "utf-8"
		require.NoError(t, l.Send(t.Context(), &amqp.Message{
			Properties: &amqp.MessageProperties{MessageID: "m1", CorrelationID: "1234", UserID: []byte("user1"), To: &to,
				ContentType: &kind, ContentEncoding: &encoding, AbsoluteExpiryTime: &expiry},
			Annotations: amqp.Annotations{"dt-subject": "testComponent", "iothub-interface-id": "urn:if:1",
				"Diagnostic-Id": "d1", "Correlation-Context": "c=1"},
			ApplicationProperties: map[string]any{"iothub-creation-time-utc": want.CreationTime, "iothub-outputname": "out",
				"iothub-message-schema": "schema1", "iothub-connection-device-id": "fromDevice1",
				"iothub-connection-module-id": "fromModule1"},
			Data: [][]byte{[]byte("x")},
		}, nil))
		r := hubtest.OverHTTP(t, h, mod).Post(modEvents+hubtest.Version, "x", "iothub-messageid", "m1",
			"iothub-correlationid", "1234",
			"iothub-contenttype", kind, "iothub-contentencoding", encoding, "dt-subject", "testComponent",
			"iothub-creationtimeutc", want.CreationTime, "iothub-expiry", want.Expiry, "iothub-to", to,
			"iothub-userid", "user1", "iothub-messageschema", "schema1", "iothub-interface-id", "urn:if:1",
			"iothub-connection-device-id", "fromDevice1", "iothub-connection-module-id", "fromModule1")
		require.Equal(t, 204, r.StatusCode, r.Text)
		all := h.Messages()
		require.Len(t, all, 3)
		for _, m := range all {
			if m.Protocol == hubdata.HTTP { // which has no headers for these
				want.Output, want.DiagnosticID, want.DiagnosticContext = "", "", ""
			}
			require.Equal(t, want, hubdata.Message{
				MessageID: m.MessageID, CorrelationID: m.CorrelationID, ContentType: m.ContentType,
				ContentEncoding: m.ContentEncoding, Component: m.Component, CreationTime: m.CreationTime, Expiry: m.Expiry,
				To: m.To, UserID: m.UserID, Schema: m.Schema, InterfaceID: m.InterfaceID, Output: m.Output,
				ConnectionDeviceID: m.ConnectionDeviceID, ConnectionModuleID: m.ConnectionModuleID,
				DiagnosticID: m.DiagnosticID, DiagnosticContext: m.DiagnosticContext,
			})
			require.Empty(t, m.Properties)
		}
	})
}

package dps_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

// What official clients send, and the order and form of answers that they rely on.

// An askDPS polls an operation, or registers if there is none. The body is sent in the form of the
// protocol. A refusal is an answer with a status of 400 or more; an error means that there is no
// answer and that the next request has a new connection.
type askDPS func(operation, body string) (dpsAnswer, error)

// A dpsSession is a session of the registration reg-1 with a service that has one hub.
type dpsSession struct {
	t   testing.TB
	hub *testbroker.Hub
	ask askDPS
}

func (s dpsSession) register(body string) dpsAnswer { return s.poll("", body) }

func (s dpsSession) poll(operation, body string) dpsAnswer {
	s.t.Helper()
	a, err := s.ask(operation, body)
	require.NoError(s.t, err)
	return a
}

// dpsAsks returns the function of a session over each protocol.
func dpsAsks(t testing.TB, d *testbroker.DPS, e dpsdata.Enrollment) map[string]askDPS {
	web, w, l := overDPSAs(t, d, e), dpsLogin(t, d, "reg-1", e.PrimaryKey), dpsAMQP(t, d, "reg-1", e.PrimaryKey)
	n := uint16(0)
	return map[string]askDPS{"HTTP": func(operation, body string) (dpsAnswer, error) {
		path := "/" + testScope + "/registrations/reg-1"
		if operation == "" {
			return tryDPS(web, "PUT", path+"/register"+dpsVersion, body)
		}
		return tryDPS(web, "GET", path+"/operations/"+operation+dpsVersion, body)
	}, "MQTT": func(operation, body string) (a dpsAnswer, err error) {
		topic := dpsRegister + "rid"
		if operation != "" {
			topic = dpsPoll + "rid&operationId=" + operation
		}
		n++
		w.Publish(n, topic, body)
		kind, packet, err := w.Read()
		if err != nil {
			w = dpsLogin(t, d, "reg-1", e.PrimaryKey)
			return a, err
		}
		require.EqualValues(t, hubtest.Puback, kind, "the PUBACK comes before the answer")
		require.Equal(t, n, binary.BigEndian.Uint16(packet))
		topic, a = readDPS(w)
		_, err = fmt.Sscanf(topic, dpsAnswers+"%d/?$rid=rid", &a.status)
		require.NoError(t, err, topic)
		_, a.retryAfter, _ = strings.Cut(topic, "retry-after=")
		return a, nil
	}, "AMQP": func(operation, body string) (a dpsAnswer, err error) {
		m := dpsRegisterMessage(body)
		if operation != "" {
			m = dpsPollMessage(operation, body)
		}
		m.Properties = &amqp.MessageProperties{CorrelationID: "c-1"}
		var refused *amqp.Error
		if err := l.sender.Send(t.Context(), m, nil); errors.As(err, &refused) {
			a = dpsAnswer{body: refused.Description, retryAfter: retryAfter(refused.Info)}
			decodeAnswer(&a)
			a.status = a.ErrorCode / 1000
			return a, nil
		} else if err != nil {
			l = dpsAMQP(t, d, "reg-1", e.PrimaryKey)
			return a, err
		}
		got, err := l.receiver.Receive(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, l.receiver.AcceptMessage(t.Context(), got))
		a = dpsAnswer{status: 200, body: string(got.GetData()), retryAfter: retryAfter(got.ApplicationProperties)}
		decodeAnswer(&a)
		if a.Status == "assigning" {
			a.status = 202
		}
		return a, nil
	}}
}

// eachDPSProtocol runs check for the registration reg-1 over each protocol.
func eachDPSProtocol(t *testing.T, o *testbroker.DPSOptions,
	check func(t *testing.T, d *testbroker.DPS, s dpsSession)) {
	for _, protocol := range []string{"HTTP", "MQTT", "AMQP"} {
		testkit.Run(t, protocol, func(t *testing.T) {
			d, hubs := newDPS(t, o, "hub-a.example.test")
			asks := dpsAsks(t, d, enroll(t, d, dpsdata.Enrollment{ID: "reg-1"}))
			check(t, d, dpsSession{t, hubs["hub-a.example.test"], asks[protocol]})
		})
	}
}

func TestBodiesOfKnownClients(t *testing.T) {
	eachDPSProtocol(t, nil, func(t *testing.T, d *testbroker.DPS, s dpsSession) {
		operation := ""
		for _, c := range []struct{ client, body, payload string }{
			{"C# over MQTT and AMQP", "", ""},
			{"C# over MQTT and AMQP, with a payload", `{"payload":{"a":1}}`, `{"a":1}`},
			{"C# over HTTP, Java, Node, C", `{"registrationId":"reg-1"}`, ""},
			{"the same with a payload", `{"registrationId":"reg-1","payload":{"a":1}}`, `{"a":1}`},
			{"another letter case", `{"registrationId":"REG-1"}`, ""},
			{"Python", `{"payload":null,"registrationId":"reg-1"}`, ""},
			{"C, with JSON that is no object", `{"registrationId":"reg-1","payload":"text"}`, `"text"`},
			{"the newest SDK", "{}", ""},
			{"white space", " ", ""},
		} {
			a := s.register(c.body)
			require.Equal(t, 202, a.status, "%s: %s", c.client, a.body)
			operation = a.OperationID
			log := d.Requests()
			require.Equal(t, c.payload, string(log[len(log)-1].Payload), c.client)
			require.Equal(t, c.body, string(log[len(log)-1].Body))
		}
		for client, body := range map[string]string{
			"C#, Java, C": "", "Node and Python over MQTT": " ", "C# over AMQP": "iotdps-get-operationstatus",
			"Node over HTTP": "{}", "Java": "null",
		} {
			a := s.poll(operation, body)
			require.Equal(t, "assigned", a.Status, "%s: %s", client, a.body)
		}
		for _, body := range []string{`{"registrationId":"reg-2"}`, `{"registrationId":""}`, "{", "[]", `"reg-1"`} {
			a := s.register(body)
			require.Equal(t, 400, a.status, body)
			require.Equal(t, 400004, a.ErrorCode)
		}
	})
}

// AMQP has more forms of a body: C# and Java send no section, Node and C# a value.
func TestFormsOfBodiesOverAMQP(t *testing.T) {
	withDevice(t, func(t *testing.T, d *testbroker.DPS, e dpsdata.Enrollment) {
		l := dpsAMQP(t, d, "reg-1", e.PrimaryKey)
		register, poll := dpsRegisterMessage("").ApplicationProperties, dpsPollMessage("", nil).ApplicationProperties
		body := `{"registrationId":"reg-1","payload":7}`
		for name, m := range map[string]*amqp.Message{
			"data": {Data: [][]byte{[]byte(body)}}, "two data sections": {Data: [][]byte{[]byte(body[:9]), []byte(body[9:])}},
			"a string": {Value: body}, "bytes": {Value: []byte(body)},
		} {
			m.ApplicationProperties = register
			poll["iotdps-operation-id"] = l.request(m).OperationID
			log := d.Requests()
			require.Equal(t, "7", string(log[len(log)-1].Payload), name)
		}
		for name, m := range map[string]*amqp.Message{
			"no section": {}, "empty data": {Data: [][]byte{{}}}, "a string": {Value: "iotdps-get-operationstatus"},
			"an empty string": {Value: ""},
		} {
			m.ApplicationProperties = poll
			require.Equal(t, "assigned", l.request(m).Status, name)
		}
		require.Equal(t, "assigning", l.request(&amqp.Message{ApplicationProperties: register}).Status)
	})
}

func TestForcedRegistrationsOverHTTP(t *testing.T) {
	withDevice(t, func(t *testing.T, d *testbroker.DPS, e dpsdata.Enrollment) {
		p := overDPSAs(t, d, e)
		path := "/" + testScope + "/registrations/reg-1/register" + dpsVersion + "&forceRegistration=true"
		require.Equal(t, 202, provision(p, "PUT", path, "").status)
	})
}

// Java and the SDK for boards refuse a 2xx answer without an operation id.
func TestEverySuccessHasAnOperationID(t *testing.T) {
	eachDPSProtocol(t, &testbroker.DPSOptions{Polls: -1}, func(t *testing.T, d *testbroker.DPS, s dpsSession) {
		expect := func(status string) {
			t.Helper()
			a := s.register("")
			require.Equal(t, 200, a.status)
			require.Equal(t, status, a.Status)
			require.NotEmpty(t, a.OperationID)
			again := s.poll(a.OperationID, "")
			require.Equal(t, []string{status, a.OperationID}, []string{again.Status, again.OperationID})
		}
		expect("assigned")
		require.NoError(t, d.Unlink("hub-a.example.test"))
		expect("failed")
		require.NoError(t, d.SetEnabled("reg-1", false))
		expect("disabled")
	})
	eachDPSProtocol(t, nil, func(t *testing.T, _ *testbroker.DPS, s dpsSession) {
		a := s.register("")
		require.Equal(t, "assigning", a.Status)
		require.Equal(t, a.OperationID, s.poll(a.OperationID, "").OperationID)
	})
}

func TestPollsOfUnknownOperations(t *testing.T) {
	eachDPSProtocol(t, nil, func(t *testing.T, d *testbroker.DPS, s dpsSession) {
		other := enroll(t, d, dpsdata.Enrollment{ID: "reg-2"})
		p := overDPS(t, d)
		p.Token = dpsToken(d, "reg-2", other.PrimaryKey)
		s.register("")
		for what, operation := range map[string]string{
			"of another registration": register(p, "reg-2", "").OperationID, "unknown": "5.x", "odd": "4.d0.a%2Fb",
		} {
			a := s.poll(operation, "")
			require.Equal(t, 404, a.status, what)
			require.Equal(t, 404000, a.ErrorCode)
		}
	})
}

// C# fails if an answer overtakes the PUBACK. Python looks for the request id first in the topic,
// Java for the delay not first.
func TestThePubackComesBeforeEveryAnswer(t *testing.T) {
	withDevice(t, func(t *testing.T, d *testbroker.DPS, e dpsdata.Enrollment) {
		w := dpsLogin(t, d, "reg-1", e.PrimaryKey)
		n := uint16(0)
		// The id of a request comes back unchanged, whatever it is, and may be used again.
		rids := []string{"1", "1", "1a2b3c4d-0000-4000-8000-00000000000f", strings.Repeat("r", 200), "a%20-b/c$d=e"}
		ask := func(topic, body, want string) dpsAnswer {
			t.Helper()
			rid := rids[int(n)%len(rids)]
			n++
			w.Publish(n, strings.Replace(topic, "$rid=", "$rid="+rid, 1), body)
			require.Equal(t, n, w.Acked())
			got, a := readDPS(w)
			require.Equal(t, dpsAnswers+strings.Replace(want, "$rid=", "$rid="+rid, 1), got)
			require.True(t, json.Valid([]byte(a.body)), a.body)
			return a
		}
		for range rids {
			operation := "&operationId=" + ask(dpsRegister, "", "202/?$rid=&retry-after=3").OperationID
			ask(dpsPoll+operation, "", "200/?$rid=")
			ask(dpsRegister, "{", "400/?$rid=")
			ask(dpsPoll+"&operationId=5.x", "", "404/?$rid=")
			d.Inject(fault.Fault{Kind: fault.RefuseProvisioning, RetryAfter: 5 * time.Second})
			ask(dpsRegister, "", "429/?$rid=&retry-after=5")
			d.Inject(fault.Fault{Kind: fault.RefuseProvisioning, Status: 500, RetryAfter: 9 * time.Second})
			ask(dpsPoll+operation, "", "500/?$rid=&retry-after=9")
			d.Inject(fault.Fault{Kind: fault.SlowProvisioning, Delay: time.Second})
			ask(dpsPoll+operation, "", "200/?$rid=")
			d.Inject(fault.Fault{Kind: fault.WrongStatus, Route: fault.RouteOperation, Text: "failed"})
			ask(dpsPoll+operation, "", "200/?$rid=")
		}
		require.NoError(t, d.Delete("reg-1"))
		ask(dpsRegister, "", "404/?$rid=")
	})
}

func TestSessionsAtTheDPSAreNew(t *testing.T) {
	withDevice(t, func(t *testing.T, d *testbroker.DPS, e dpsdata.Enrollment) {
		kept := dpsConnect(d, "reg-1", e.PrimaryKey)
		kept.Flags = 0 // the client wants to keep its session
		w := dialDPS(t, d)
		require.Equal(t, []byte{0, 0}, w.Connect(kept))
		require.Equal(t, []byte{1}, w.Subscribe(2, dpsAnswers+"#"), "QoS 2 is granted as 1")
		w = dialDPS(t, d)
		require.Equal(t, []byte{0, 0}, w.Connect(kept), "no session is present")
		w.Publish(1, dpsRegister+"1", "")
		require.EqualValues(t, 1, w.Acked())
		w.Ping() // the subscription is gone with the session
	})
}

// Java publishes with QoS 0. A client may leave answers without a PUBACK, or subscribe with QoS 0.
func TestOtherLevelsOfQoSAtTheDPS(t *testing.T) {
	withDevice(t, func(t *testing.T, d *testbroker.DPS, e dpsdata.Enrollment) {
		w := dpsLogin(t, d, "reg-1", e.PrimaryKey)
		w.Send(hubtest.PublishBytes(0, 0, dpsRegister+"1", ""))
		_, a := readDPS(w)
		require.Equal(t, "assigning", a.Status)
		for range 3 {
			w.Send(hubtest.PublishBytes(0, 0, dpsPoll+"1&operationId="+a.OperationID, ""))
			require.Contains(t, string(w.Expect(3)), `"assigned"`)
		}
		require.Equal(t, []byte{0}, w.Subscribe(0, dpsAnswers+"#"))
		w.Send(hubtest.PublishBytes(0, 0, dpsRegister+"1", ""))
		body := string(w.Expect(3))
		require.True(t, strings.HasPrefix(body[2:], dpsAnswers+"202/?$rid=1&retry-after=3{"), "without a packet id: %s", body)
	})
}

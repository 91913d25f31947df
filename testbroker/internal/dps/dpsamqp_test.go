package dps_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

var dpsLinkProperties = map[string]any{
	"com.microsoft:api-version": "2019-03-31", "com.microsoft:client-version": "test/1.0",
}

// A dpsLinks is a pair of links for a registration, of a third-party library.
type dpsLinks struct {
	t        testing.TB
	sender   *amqp.Sender
	receiver *amqp.Receiver
}

// openDPS opens a connection over AMQP without TLS.
func openDPS(t testing.TB, d *testbroker.DPS, sasl amqp.SASLType) (*amqp.Conn, error) {
	stream, err := d.Dial(testbroker.PortAMQP)(t.Context(), "tcp", "dps:5672")
	require.NoError(t, err)
	conn, err := amqp.NewConn(t.Context(), stream, &amqp.ConnOptions{HostName: d.HostName(), SASLType: sasl})
	if err == nil {
		t.Cleanup(func() { conn.Close() })
	}
	return conn, err
}

// attachDPS attaches both links.
func attachDPS(t testing.TB, conn *amqp.Conn, address string) (*dpsLinks, error) {
	s, err := conn.NewSession(t.Context(), nil)
	require.NoError(t, err)
	l := &dpsLinks{t: t}
	l.sender, err = s.NewSender(t.Context(), address, &amqp.SenderOptions{Properties: dpsLinkProperties})
	if err != nil {
		return nil, err
	}
	l.receiver, err = s.NewReceiver(t.Context(), address, &amqp.ReceiverOptions{Properties: dpsLinkProperties})
	return l, err
}

func dpsUser(d *testbroker.DPS, id, key string) amqp.SASLType {
	return amqp.SASLTypePlain(d.IDScope()+"/registrations/"+id, dpsToken(d, id, key))
}

func dpsAMQP(t testing.TB, d *testbroker.DPS, id, key string) *dpsLinks {
	conn, err := openDPS(t, d, dpsUser(d, id, key))
	require.NoError(t, err)
	l, err := attachDPS(t, conn, d.IDScope()+"/registrations/"+id)
	require.NoError(t, err)
	return l
}

// request sends a message and returns the answer.
func (l *dpsLinks) request(m *amqp.Message) dpsAnswer {
	l.t.Helper()
	m.Properties = &amqp.MessageProperties{CorrelationID: "c-1"}
	require.NoError(l.t, l.sender.Send(l.t.Context(), m, nil))
	got, err := l.receiver.Receive(l.t.Context(), nil)
	require.NoError(l.t, err)
	require.NoError(l.t, l.receiver.AcceptMessage(l.t.Context(), got))
	require.Equal(l.t, "c-1", got.Properties.CorrelationID)
	a := dpsAnswer{body: string(got.GetData())}
	require.Equal(l.t, got.ApplicationProperties["Retry-After"], got.ApplicationProperties["retry-after"])
	a.retryAfter = retryAfter(got.ApplicationProperties)
	require.NoError(l.t, json.Unmarshal(got.GetData(), &a), a.body)
	return a
}

func retryAfter(properties map[string]any) string {
	switch v := properties["Retry-After"]; {
	case v != properties["retry-after"]:
		return fmt.Sprint("two values: ", properties)
	case v != nil:
		return fmt.Sprint(v)
	}
	return ""
}

// rejected sends a message that must be rejected, and returns the error in it.
func (l *dpsLinks) rejected(m *amqp.Message) (a dpsAnswer, e *amqp.Error) {
	l.t.Helper()
	require.ErrorAs(l.t, l.sender.Send(l.t.Context(), m, nil), &e)
	require.NoError(l.t, json.Unmarshal([]byte(e.Description), &a), e.Description)
	return a, e
}

func dpsRegisterMessage(body string) *amqp.Message {
	m := &amqp.Message{ApplicationProperties: map[string]any{
		"iotdps-operation-type": "iotdps-register", "iotdps-forceRegistration": false,
	}}
	m.Data = [][]byte{[]byte(body)}
	return m
}

func dpsPollMessage(operation string, value any) *amqp.Message {
	return &amqp.Message{Value: value, ApplicationProperties: map[string]any{
		"iotdps-operation-type": "iotdps-get-operationstatus", "iotdps-operation-id": operation,
	}}
}

func TestRegistrationOverAMQP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, hubs := newDPS(t, nil, "hub-a.example.test")
		e := enroll(t, d, dpsdata.Enrollment{ID: "reg-1"})
		l := dpsAMQP(t, d, "reg-1", e.PrimaryKey)
		a := l.request(dpsRegisterMessage(`{"payload":{"a":1}}`))
		require.Equal(t, "assigning", a.Status)
		require.Equal(t, "3", a.retryAfter)
		for _, value := range []any{"iotdps-get-operationstatus", ""} {
			result := l.request(dpsPollMessage(a.OperationID, value))
			require.Equal(t, "assigned", result.Status)
			require.Equal(t, "hub-a.example.test", result.State.AssignedHub)
			require.Empty(t, result.retryAfter)
		}
		value := dpsRegisterMessage("")
		value.Data, value.Value = nil, `{"registrationId":"reg-1"}`
		require.Equal(t, "assigning", l.request(value).Status)
		require.Equal(t, "assigning", l.request(dpsRegisterMessage("")).Status)
		refused, _ := l.rejected(dpsPollMessage("5.unknown", ""))
		require.Equal(t, 404000, refused.ErrorCode)
		var rejected *amqp.Error
		require.ErrorAs(t, l.sender.Send(t.Context(), amqp.NewMessage([]byte("x")), nil), &rejected)
		require.EqualValues(t, "amqp:not-implemented", rejected.Condition)
		require.Len(t, hubs["hub-a.example.test"].Devices(), 1)
		log := d.Requests()
		require.Equal(t, hubdata.AMQP, log[0].Protocol)
		require.JSONEq(t, `{"a":1}`, string(log[0].Payload))
		require.Equal(t, "2019-03-31", log[0].APIVersion)
	})
}

func TestThrottledRegistrationOverAMQP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := newDPS(t, &testbroker.DPSOptions{RegistrationsPerMinute: 1}, "hub-a.example.test")
		e := enroll(t, d, dpsdata.Enrollment{ID: "reg-1"})
		l := dpsAMQP(t, d, "reg-1", e.PrimaryKey)
		l.request(dpsRegisterMessage(""))
		a, rejected := l.rejected(dpsRegisterMessage(""))
		require.Equal(t, 429001, a.ErrorCode)
		require.EqualValues(t, "com.microsoft:device-container-throttled", rejected.Condition, "as Node.js needs it")
		require.EqualValues(t, 60, rejected.Info["Retry-After"])
		require.EqualValues(t, 60, rejected.Info["retry-after"])
	})
}

func TestAddressesOfRegistrations(t *testing.T) {
	withDevice(t, func(t *testing.T, d *testbroker.DPS, e dpsdata.Enrollment) {
		for address, condition := range map[string]amqp.ErrCond{
			testScope + "/registrations/reg-1":                                   "",
			"/" + testScope + "/registrations/reg-1":                             "",
			"amqps://" + d.HostName() + "/" + testScope + "/registrations/r":     amqp.ErrCondUnauthorizedAccess,
			"amqps://" + d.HostName() + "/" + testScope + "/registrations/reg-1": "",
			"amqps://other.example.test/" + testScope + "/registrations/reg-1":   amqp.ErrCondNotFound,
			testScope + "/registrations/reg-2":                                   amqp.ErrCondUnauthorizedAccess,
			"0ne00ABCDE0/registrations/reg-1":                                    amqp.ErrCondUnauthorizedAccess,
			"$cbs":                                                               amqp.ErrCondNotFound,
		} {
			conn, err := openDPS(t, d, dpsUser(d, "reg-1", e.PrimaryKey))
			require.NoError(t, err)
			_, err = attachDPS(t, conn, address)
			if condition == "" {
				require.NoError(t, err, address)
				continue
			}
			var refused *amqp.Error
			require.ErrorAs(t, err, &refused, address)
			require.Equal(t, condition, refused.Condition, address)
		}
		conn, err := openDPS(t, d, dpsUser(d, "reg-1", e.PrimaryKey))
		require.NoError(t, err)
		s, err := conn.NewSession(t.Context(), nil)
		require.NoError(t, err)
		_, err = s.NewSender(t.Context(), testScope+"/registrations/reg-1", nil)
		require.ErrorContains(t, err, "api-version")
	})
}

func TestSASLAtTheDPS(t *testing.T) {
	withDevice(t, func(t *testing.T, d *testbroker.DPS, e dpsdata.Enrollment) {
		user := d.IDScope() + "/registrations/reg-1"
		for name, c := range map[string]struct {
			sasl amqp.SASLType
			ok   bool
		}{
			"token":       {dpsUser(d, "reg-1", e.PrimaryKey), true},
			"secondary":   {dpsUser(d, "reg-1", e.SecondaryKey), true},
			"other key":   {dpsUser(d, "reg-1", dpsdata.DeriveKey(e.PrimaryKey, "x")), false},
			"not a token": {amqp.SASLTypePlain(user, "x"), false},
			"other scope": {amqp.SASLTypePlain("0ne00ABCDE0/registrations/reg-1", dpsToken(d, "reg-1", e.PrimaryKey)), false},
			"a device":    {amqp.SASLTypePlain("reg-1@sas.dps", dpsToken(d, "reg-1", e.PrimaryKey)), false},
			"external":    {amqp.SASLTypeExternal(""), false}, // without TLS
		} {
			_, err := openDPS(t, d, c.sasl)
			require.Equal(t, c.ok, err == nil, "%s: %v", name, err)
		}
		l := dpsAMQP(t, d, "reg-9", e.PrimaryKey)
		a, _ := l.rejected(dpsRegisterMessage(""))
		require.Equal(t, 404201, a.ErrorCode, "a device that is not enrolled")
		long := enroll(t, d, dpsdata.Enrollment{ID: strings.Repeat("r", 128)})
		require.Equal(t, "assigning", dpsAMQP(t, d, long.ID, long.PrimaryKey).request(dpsRegisterMessage("")).Status)
		conn, err := openDPS(t, d, amqp.SASLTypeAnonymous())
		require.NoError(t, err)
		_, err = attachDPS(t, conn, user)
		var refused *amqp.Error
		require.ErrorAs(t, err, &refused)
		require.Equal(t, amqp.ErrCondUnauthorizedAccess, refused.Condition)
	})
}

func TestRegistrationOverAMQPWithACertificate(t *testing.T) {
	d, hubs := newDPS(t, &testbroker.DPSOptions{Polls: -1}, "hub-a.example.test")
	root := testbroker.NewCertAuthority("root")
	enroll(t, d, dpsdata.Enrollment{ID: "grp", Group: true, Certificates: []*x509.Certificate{root.Cert()}})
	for n, sasl := range []amqp.SASLType{nil, amqp.SASLTypeExternal("")} {
		id := fmt.Sprint("reg-", n)
		config := d.ClientTLS()
		config.Certificates = []tls.Certificate{root.NewClientCert(id, time.Time{}, time.Time{})}
		raw, err := d.Dial(testbroker.PortAMQPS)(t.Context(), "tcp", "dps:5671")
		require.NoError(t, err)
		conn, err := amqp.NewConn(t.Context(), tls.Client(raw, config),
			&amqp.ConnOptions{HostName: d.HostName(), SASLType: sasl})
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		l, err := attachDPS(t, conn, d.IDScope()+"/registrations/"+id)
		require.NoError(t, err)
		a := l.request(dpsRegisterMessage("{}"))
		require.Equal(t, "assigned", a.Status)
		require.Equal(t, "grp", a.State.X509.EnrollmentGroupID)
	}
	require.Len(t, hubs["hub-a.example.test"].Devices(), 2)
}

func TestConnectFaultsOfTheDPSOverAMQP(t *testing.T) {
	withDevice(t, func(t *testing.T, d *testbroker.DPS, e dpsdata.Enrollment) {
		user := dpsUser(d, "reg-1", e.PrimaryKey)
		for _, kind := range []fault.Kind{fault.RefuseSASL, fault.RefuseConnect, fault.DropConnect} {
			in := d.Inject(fault.Fault{Kind: kind})
			conn, err := openDPS(t, d, user)
			if err == nil { // the open is answered before the close
				_, err = conn.NewSession(t.Context(), nil)
			}
			require.Error(t, err, kind)
			require.Equal(t, 1, in.Fired(), kind)
		}
		refused := d.Inject(fault.Fault{Kind: fault.RefuseAttach})
		conn, err := openDPS(t, d, user)
		require.NoError(t, err)
		_, err = attachDPS(t, conn, d.IDScope()+"/registrations/reg-1")
		require.Error(t, err)
		require.Equal(t, 1, refused.Fired())
	})
}

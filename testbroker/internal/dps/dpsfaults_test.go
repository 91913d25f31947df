package dps_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

func TestUnknownProvisioningFaultsPanic(t *testing.T) {
	d, _ := newDPS(t, nil)
	require.Panics(t, func() { d.Inject(fault.Fault{Kind: 999}) })
}

func TestProvisioningFaults(t *testing.T) {
	eachDPSProtocol(t, nil, func(t *testing.T, d *testbroker.DPS, s dpsSession) {
		inject := func(f fault.Fault) func() {
			in := d.Inject(f)
			return func() { require.Equal(t, 1, in.Fired(), f.Kind) }
		}
		final := func() dpsAnswer {
			a := s.poll(s.register("").OperationID, "")
			require.Equal(t, 200, a.status, a.body)
			return a
		}

		fired := inject(fault.Fault{Kind: fault.DropBeforeProvisioning})
		_, err := s.ask("", "")
		require.Error(t, err)
		require.Empty(t, d.Requests())
		fired()
		fired = inject(fault.Fault{Kind: fault.DropAfterProvisioning, Route: fault.RouteRegister})
		_, err = s.ask("", "")
		require.Error(t, err)
		require.Len(t, s.hub.Devices(), 1, "the registration is stored")
		fired()

		fired = inject(fault.Fault{
			Kind: fault.RefuseProvisioning, Route: fault.RouteOperation, After: 1, RetryAfter: 7 * time.Second,
		})
		operation := s.register("").OperationID
		require.Equal(t, 200, s.poll(operation, "").status)
		a := s.poll(operation, "")
		require.Equal(t, 429, a.status, "the second poll")
		require.Equal(t, 429001, a.ErrorCode)
		require.Equal(t, "7", a.retryAfter)
		fired()
		fired = inject(fault.Fault{Kind: fault.RefuseProvisioning, Status: 503, ErrorCode: 503001, Description: "busy"})
		a = s.register("")
		require.Equal(t, 503, a.status)
		require.Equal(t, "busy", a.Message)
		fired()

		for _, text := range []string{"", "0", "-1", "soon"} {
			fired = inject(fault.Fault{Kind: fault.WrongRetryAfter, Text: text})
			require.Equal(t, text, s.register("").retryAfter)
			fired()
		}
		inject(fault.Fault{Kind: fault.RefuseProvisioning})
		fired = inject(fault.Fault{Kind: fault.WrongRetryAfter, Text: "9"})
		require.Equal(t, "9", s.register("").retryAfter, "also in a refusal")
		fired()

		fired = inject(fault.Fault{Kind: fault.SlowProvisioning, Delay: 20 * time.Second})
		start := time.Now()
		s.register("")
		require.Equal(t, 20*time.Second, time.Since(start))
		fired()
		fired = inject(fault.Fault{Kind: fault.GarbleProvisioning})
		require.Equal(t, `{"operationId`, s.register("").body)
		fired()
		huge := strings.Repeat("x", 1<<20)
		fired = inject(fault.Fault{Kind: fault.GarbleProvisioning, Bytes: []byte(huge)})
		require.Len(t, s.register("").body, len(huge))
		fired()
		fired = inject(fault.Fault{Kind: fault.OmitOperationID})
		a = s.register("")
		require.NotContains(t, a.body, "operationId")
		require.Equal(t, "assigning", a.Status)
		fired()

		for _, text := range []string{"unassigned", "disabled", "failed", "blacklisted"} {
			fired = inject(fault.Fault{Kind: fault.WrongStatus, Route: fault.RouteOperation, Text: text})
			a = final()
			require.Equal(t, text, a.Status)
			require.Equal(t, text, a.State.Status)
			require.Empty(t, a.State.AssignedHub)
			if text == "failed" {
				require.Equal(t, 400207, a.State.ErrorCode)
			}
			fired()
		}
		stay := d.Inject(fault.Fault{Kind: fault.WrongStatus, Route: fault.RouteOperation, Text: "assigning", Times: 2})
		operation = s.register("").OperationID
		for n := range 3 {
			require.Equal(t, n == 2, s.poll(operation, "").status == 200)
		}
		require.Equal(t, 2, stay.Fired())

		inject(fault.Fault{Kind: fault.WrongHub, Text: "gone.example.test"})
		inject(fault.Fault{Kind: fault.WrongProfile, Text: "mqttV9"})
		fired = inject(fault.Fault{Kind: fault.WrongDeviceID, Text: "other"})
		a = final()
		require.Equal(t, "gone.example.test", a.State.AssignedHub)
		require.Equal(t, "mqttV9", a.State.ConnectionProfile)
		require.Equal(t, "other", a.State.DeviceID)
		fired()
	})
}

func TestProvisioningWithoutAnAnswer(t *testing.T) {
	withDevice(t, func(t *testing.T, d *testbroker.DPS, e dpsdata.Enrollment) {
		w := dpsLogin(t, d, "reg-1", e.PrimaryKey)
		d.Inject(fault.Fault{Kind: fault.SwallowProvisioning, Device: "reg-1"})
		w.Publish(1, dpsRegister+"1", "")
		require.EqualValues(t, 1, w.Acked())
		w.Ping() // no answer
		require.Len(t, d.Requests(), 1)
	})
}

func TestOrderOfAnswersOverMQTT(t *testing.T) {
	withDevice(t, func(t *testing.T, d *testbroker.DPS, e dpsdata.Enrollment) {
		w := dpsLogin(t, d, "reg-1", e.PrimaryKey)
		d.Inject(fault.Fault{Kind: fault.AnswerBeforePuback})
		w.Publish(1, dpsRegister+"1", "")
		topic, _ := readDPS(w)
		require.Equal(t, dpsAnswers+"202/?$rid=1&retry-after=3", topic)
		require.EqualValues(t, 1, w.Acked())
		d.Inject(fault.Fault{Kind: fault.ReorderProperties})
		w.Publish(2, dpsRegister+"2", "")
		w.Acked()
		topic, _ = readDPS(w)
		require.Equal(t, dpsAnswers+"202/?x&retry-after=3&$rid=2", topic)
		d.Inject(fault.Fault{Kind: fault.MisnameProvisioning})
		d.Inject(fault.Fault{Kind: fault.DuplicateProvisioning})
		w.Publish(3, dpsRegister+"3", "")
		w.Acked()
		for range 2 {
			topic, _ = readDPS(w)
			require.Equal(t, dpsAnswers+"202/?$rid=3-other&retry-after=3", topic)
		}
	})
}

func TestProvisioningFaultsOverAMQP(t *testing.T) {
	withDevice(t, func(t *testing.T, d *testbroker.DPS, e dpsdata.Enrollment) {
		l := dpsAMQP(t, d, "reg-1", e.PrimaryKey)
		d.Inject(fault.Fault{Kind: fault.RefuseProvisioning, Status: 500, RetryAfter: 2 * time.Second})
		a, rejected := l.rejected(dpsRegisterMessage(""))
		require.Equal(t, 500001, a.ErrorCode)
		require.EqualValues(t, "amqp:internal-error", rejected.Condition)
		require.EqualValues(t, 2, rejected.Info["Retry-After"])
		d.Inject(fault.Fault{Kind: fault.MisnameProvisioning})
		m := dpsRegisterMessage("")
		m.Properties = &amqp.MessageProperties{CorrelationID: "c-1"}
		require.NoError(t, l.sender.Send(t.Context(), m, nil))
		got, err := l.receiver.Receive(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, "c-1-other", got.Properties.CorrelationID)
	})
}

func TestIssuedCertificates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, hubs := newDPS(t, &testbroker.DPSOptions{Polls: -1}, "hub-a.example.test")
		h := hubs["hub-a.example.test"]
		root := testbroker.NewCertAuthority("root")
		sub := root.NewAuthority("sub")
		e := enroll(t, d, dpsdata.Enrollment{ID: "reg-1", Issue: sub.Issuer(time.Hour)})
		plain := enroll(t, d, dpsdata.Enrollment{ID: "reg-2"})
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		require.NoError(t, err)
		request := func(name string) string {
			der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
				Subject: pkix.Name{CommonName: name},
			}, key)
			require.NoError(t, err)
			return `{"csr":"` + base64.StdEncoding.EncodeToString(der) + `"}`
		}
		p := overDPSAs(t, d, e)
		path := "/" + testScope + "/registrations/reg-1/register?api-version="
		a := provision(p, "PUT", path+"2026-11-02-preview", request("reg-1"))
		require.Equal(t, "assigned", a.Status, a.body)
		require.Equal(t, "classic", a.State.ConnectionProfile)
		require.Len(t, a.State.IssuedCertificateChain, 2)
		cert := tls.Certificate{PrivateKey: key}
		for _, text := range a.State.IssuedCertificateChain {
			der, err := base64.StdEncoding.DecodeString(text)
			require.NoError(t, err)
			cert.Certificate = append(cert.Certificate, der)
		}
		leaf, err := x509.ParseCertificate(cert.Certificate[0])
		require.NoError(t, err)
		require.Equal(t, "reg-1", leaf.Subject.CommonName)
		require.Equal(t, &key.PublicKey, leaf.PublicKey)
		log := d.Requests()
		require.NotEmpty(t, log[len(log)-1].CSR)

		raw := hubtest.DialPort(t, h, testbroker.PortMQTTS)
		config := h.ClientTLS()
		config.Certificates = []tls.Certificate{cert}
		w := hubtest.NewWire(t, tls.Client(raw, config))
		require.Equal(t, []byte{0, 0}, w.Connect(hubtest.Connect{
			Name: "MQTT", Level: 4, Flags: 2, ClientID: "reg-1", User: h.HostName() + "/reg-1/?api-version=2021-04-12",
		}), "the issued certificate is that of the device at its hub")

		d.Inject(fault.Fault{Kind: fault.WrongChain})
		a = provision(p, "PUT", path+"2025-07-01-preview", request("reg-1"))
		require.Empty(t, a.State.ConnectionProfile, "the version does not know it")
		der, err := base64.StdEncoding.DecodeString(a.State.IssuedCertificateChain[0])
		require.NoError(t, err)
		leaf, err = x509.ParseCertificate(der)
		require.NoError(t, err)
		require.Equal(t, "reg-1", leaf.Subject.CommonName)
		require.NotEqual(t, &key.PublicKey, leaf.PublicKey)
		a = provision(p, "PUT", path+"2025-07-01-preview", request("reg-9"))
		require.Equal(t, 400004, a.ErrorCode, "a request for another name")
		p.Token = dpsToken(d, "reg-2", plain.PrimaryKey)
		a = provision(p, "PUT", strings.Replace(path, "reg-1", "reg-2", 1)+"2025-07-01-preview", request("reg-2"))
		require.Equal(t, "failed", a.Status)
		require.Equal(t, 400004, a.State.ErrorCode, "the enrollment issues none")
	})
}

package main

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/pem"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpsamqp"
	"github.com/hubline-iot/hubline/provisioning/dpshttp"
	"github.com/hubline-iot/hubline/provisioning/dpsmqtt"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// desk are the flags of a provisioning service with two hubs, as README.md has them.
var desk = []string{
	"-group", "thermometers", "-enroll", "sensor-1", "-enroll", "thermometers/sensor-2", "-link", "hub-b.example.test",
	"-dps-retry-after", "0s",
}

// registrar returns a client of the provisioning service for what the program has printed.
func (p *program) registrar(e readyEnrollment, over string, cert *tls.Certificate) *provisioning.Client {
	p.t.Helper()
	id := &provisioning.Identity{RegistrationID: e.ID}
	if cert == nil {
		var err error
		id.Sign, err = transport.SharedKey(e.Key)
		require.NoError(p.t, err)
	}
	return p.registrarOf(id, over, cert)
}

// registrarOf is registrar for an identity.
func (p *program) registrarOf(id *provisioning.Identity, over string, cert *tls.Certificate) *provisioning.Client {
	p.t.Helper()
	id.Endpoint, id.IDScope = p.ready.DPS.Host, p.ready.DPS.IDScope
	o := &netopt.Options{Addr: p.ready.DPS.Addresses[over], TLS: p.tls()}
	if cert != nil {
		o.Certificate = func(context.Context) (*tls.Certificate, error) { return cert, nil }
	}
	carrier := map[string]provisioning.Carrier{
		"mqtt": dpsmqtt.New(o), "amqp": dpsamqp.New(o), "https": dpshttp.New(o),
	}[over]
	c, err := provisioning.New(id, carrier, &provisioning.Options{
		MQTTv5: true, PollInterval: 10 * time.Millisecond,
		Policy: retrypolicy.Backoff{Base: 10 * time.Millisecond, Max: time.Second},
	})
	require.NoError(p.t, err)
	return c
}

// register registers an enrolled device over MQTT. It returns the assignment.
func (p *program) register(id string) *provisioning.Assignment {
	p.t.Helper()
	i := slices.IndexFunc(p.ready.DPS.Enrolled, func(e readyEnrollment) bool { return e.ID == id })
	require.GreaterOrEqual(p.t, i, 0, id)
	a, err := p.registrar(p.ready.DPS.Enrolled[i], "mqtt", nil).Register(soon(p.t))
	require.NoError(p.t, err)
	return a
}

// hubAt returns the addresses of a hub.
func (p *program) hubAt(name string) readyHub {
	p.t.Helper()
	if name == p.ready.Host {
		return readyHub{Host: name, Addresses: p.ready.Addresses, Ports: p.ready.Ports}
	}
	i := slices.IndexFunc(p.ready.Hubs, func(h readyHub) bool { return h.Host == name })
	require.GreaterOrEqual(p.t, i, 0, name)
	return p.ready.Hubs[i]
}

// A device registers, sends, is moved, registers again and sends to the other hub. The program
// tells all of it.
func TestADeviceIsMovedToAnotherHub(t *testing.T) {
	p := start(t, desk...)
	require.Len(t, p.ready.DPS.Enrolled, 3)
	send := func(a *provisioning.Assignment, key, id string) {
		t.Helper()
		sign, err := transport.SharedKey(key)
		require.NoError(t, err)
		creds := &transport.Credentials{Host: a.Hub, DeviceID: a.DeviceID, Sign: sign}
		c, err := device.New(creds, mqtt.New(&mqtt.Options{
			Network: netopt.Options{Addr: p.hubAt(a.Hub).Addresses["mqtt"], TLS: p.tls()},
		}), nil)
		require.NoError(t, err)
		require.NoError(t, c.Open(soon(t)))
		require.NoError(t, c.Send(soon(t), &transport.Message{ID: id}))
		require.NoError(t, c.Close())
	}
	for _, e := range p.ready.DPS.Enrolled {
		if e.Group {
			continue
		}
		a := p.register(e.ID)
		send(a, e.Key, "first")
		p.printed(func(l line) bool {
			return l.Service == "dps" && l.Event == "registration" && l.Detail == "poll" && l.Status == 200 &&
				l.Device == e.ID && l.Hub == a.Hub
		})
	}
	other := "hub-b.example.test"
	require.Equal(t, p.ready.Host, p.good("GET", "/dps/registrations/sensor-2/wait", "")["hub"])
	moved := p.good("POST", "/dps/enrollments/thermometers/move", `{"hubs":["`+other+`"]}`)
	require.Equal(t, []any{other}, moved["hubs"])
	late := p.refused(504, "GET", "/dps/registrations/sensor-2/wait?within=50ms&hub="+other, "")
	require.Contains(t, late.Problem, "assigned")
	a := p.register("sensor-2")
	require.Equal(t, other, a.Hub)
	send(a, p.ready.DPS.Enrolled[2].Key, "second")
	require.EqualValues(t, 1, p.good("GET", "/dps/registrations/sensor-2/wait?hub="+other, "")["moves"])
	log := p.good("GET", "/hubs/"+other+"/messages?device=sensor-2", "")["messages"].([]any)
	require.Len(t, log, 1)
	require.Equal(t, "second", log[0].(map[string]any)["messageId"])
	p.printed(func(l line) bool { return l.Event == "message" && l.MessageID == "second" && l.Service == other })

	p.good("POST", "/dps/faults", `{"kind":"RefuseProvisioning","device":"sensor-1","retryAfter":"1s"}`)
	p.register("sensor-1")
	require.EqualValues(t, 1, p.good("GET", "/faults/1/wait", "")["fired"])
	p.printed(func(l line) bool { return l.Service == "dps" && l.Event == "registration" && l.Status == 429 })

	p.good("POST", "/dps/enrollments/sensor-1/disable", "")
	_, err := p.registrar(p.ready.DPS.Enrolled[1], "https", nil).Register(soon(t))
	require.ErrorIs(t, err, transport.Forbidden)
	p.printed(func(l line) bool { return l.Event == "registration" && l.Error == "disabled" })
	p.good("POST", "/reset", "")
	require.Empty(t, p.good("GET", "/dps/registrations", "")["registrations"])
	require.Empty(t, p.good("GET", "/hubs/hub-b.example.test/devices", "")["devices"])
	p.register("sensor-1")
}

func TestEnrollmentsWithCertificates(t *testing.T) {
	own := testbroker.NewClientCert("sensor-1", time.Time{}, time.Time{})
	root := testbroker.NewCertAuthority("root")
	signed := root.NewClientCert("sensor-2", time.Time{}, time.Time{})
	file := func(name string, der []byte) string {
		return write(t, name, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	}
	p := start(t, "-dps-retry-after", "0s", "-enroll", "sensor-1="+file("own.pem", own.Certificate[0]), "-group",
		"signed="+file("root.pem", root.Cert().Raw))
	for _, cert := range []*tls.Certificate{&own, &signed} {
		id := cert.Leaf.Subject.CommonName
		for _, over := range []string{"mqtt", "https"} {
			a, err := p.registrar(readyEnrollment{ID: id}, over, cert).Register(soon(t))
			require.NoError(t, err, id)
			require.Equal(t, id, a.DeviceID)
		}
	}
	require.Empty(t, p.ready.DPS.Enrolled[0].Key)
}

func TestAControlAPIWithoutAProvisioningService(t *testing.T) {
	p := start(t)
	for _, path := range []string{"/dps", "/dps/enrollments", "/dps/registrations", "/dps/registrations/x/wait"} {
		require.Contains(t, p.refused(404, "GET", path, "").Fix, "-dps")
	}
	require.Contains(t, p.refused(404, "POST", "/dps/enrollments/x/move", `{"hubs":["x"]}`).Fix, "-dps")
	require.Contains(t, p.refused(404, "POST", "/dps/faults", `{"kind":"DropConnect"}`).Fix, "-dps")
	p.refused(404, "GET", "/hubs/x/devices", "")
}

func TestInputAboutTheProvisioningService(t *testing.T) {
	p := start(t, desk...)
	require.Equal(t, "enrollment", p.refused(404, "POST", "/dps/enrollments/x/disable", "").Field)
	require.Equal(t, "enrollment", p.refused(404, "POST", "/dps/enrollments/x/move", `{"hubs":["localhost"]}`).Field)
	for body, field := range map[string]string{
		"": "hubs", `{"hubs":[]}`: "hubs", `{"hubs":["x"]}`: "hubs[0]", `{"hubs":[1]}`: "hubs[0]", `{"hub":1}`: "hub",
	} {
		bad := p.refused(400, "POST", "/dps/enrollments/sensor-1/move", body)
		require.Equal(t, field, bad.Field)
	}
	p.refused(400, "GET", "/dps?x=1", "")
}

// What is printed for people can be copied in front of a command, and has each key once.
func TestLinesAboutProvisioning(t *testing.T) {
	env := t.TempDir() + "/testhub.env"
	p := start(t, append([]string{"-env", env}, desk...)...)
	var b strings.Builder
	require.NoError(t, newPrinter(&b, false, nil).ready(&p.ready))
	for _, e := range p.ready.DPS.Enrolled {
		require.Equal(t, 1, strings.Count(b.String(), "="+e.Key+"\n"), e.ID)
	}
	for l := range strings.Lines(b.String()) {
		settings, ok := strings.CutPrefix(l, "enrolled ")
		if !ok {
			continue
		}
		out, err := exec.Command("sh", "-c", strings.TrimSpace(settings)+` env | grep ^PROVISIONING_ | sort`).Output()
		require.NoError(t, err)
		want := strings.Fields(settings)
		slices.Sort(want)
		require.Equal(t, strings.Join(want, "\n")+"\n", string(out))
	}
	require.Contains(t, b.String(), "group    thermometers: PROVISIONING_HOST=localhost PROVISIONING_IDSCOPE=0ne00ABCDEF "+
		"PROVISIONING_MASTER_SYMMETRIC_KEY=")
	require.Contains(t, b.String(), "linked   hub-b.example.test, mqtt 127.0.0.1:")
	trust, err := os.ReadFile(p.ready.CA)
	require.NoError(t, err)
	require.Equal(t, 3, strings.Count(string(trust), "BEGIN CERTIFICATE"), "of two hubs and the service")
	shell, err := os.ReadFile(env)
	require.NoError(t, err)
	require.Contains(t, string(shell), "export PROVISIONING_REGISTRATION_ID='sensor-1'")
}

// A device with a TPM registers over AMQP and HTTPS. Its key is not printed.
func TestAnEnrollmentWithATPM(t *testing.T) {
	tpm, err := testkit.NewTPM()
	require.NoError(t, err)
	p := start(t, "-dps-retry-after", "0s", "-tpm", "sensor-1="+base64.StdEncoding.EncodeToString(tpm.EndorsementKey()))
	require.Equal(t, []readyEnrollment{{ID: "sensor-1"}}, p.ready.DPS.Enrolled)
	for _, over := range []string{"amqp", "https"} {
		a, err := p.registrarOf(&provisioning.Identity{RegistrationID: "sensor-1", TPM: tpm}, over, nil).Register(soon(t))
		require.NoError(t, err, over)
		require.Equal(t, "sensor-1", a.DeviceID)
	}
}

package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/provisioning/dpscert"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/mqtt/nexthub"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// nextClient returns a client for the hub of the profile mqttV5, with a certificate.
func (p *program) nextClient(at readyHub, id string,
	cert func(context.Context) (*tls.Certificate, error)) *device.Client {
	network := netopt.Options{Addr: at.Addresses["mqtt"], TLS: p.tls(), Certificate: cert}
	c, err := device.New(&transport.Credentials{Host: at.Host, DeviceID: id},
		mqtt.New(&mqtt.Options{Network: network, Dialect: &nexthub.Hub{}}), nil)
	require.NoError(p.t, err)
	return c
}

// The first lines say what the hub is, and a device connects with what they have. The control API
// shows its session.
func TestAHubOfTheProfileMQTTv5(t *testing.T) {
	p := start(t, "-profile", "MQTTv5", "-device", "dev-1", "-topic", "site/{deviceId}/up")
	require.Equal(t, "mqttV5, a public preview that may change; everything is routed to the event hub, and the service "+
		"has no route at first", p.ready.Profile)
	require.True(t, strings.HasSuffix(p.ready.Devices[0].ConnectionString, ";x509=true"))
	file := p.ready.Devices[0].Certificate
	require.Equal(t, filepath.Join(filepath.Dir(p.ready.CA), "testhub-dev-1.pem"), file)
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.EqualValues(t, 0o600, info.Mode().Perm())
	devices := func() map[string]any {
		return p.good("GET", "/devices", "")["devices"].([]any)[0].(map[string]any)
	}
	require.NotContains(t, devices(), "session")

	at := readyHub{Host: p.ready.Host, Addresses: p.ready.Addresses}
	c := p.nextClient(at, "dev-1", netopt.CertificateFiles(file, file))
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	require.NoError(t, c.HandleMethod("reboot", func(context.Context, *device.MethodCall) (int, []byte) {
		return 200, []byte(`"soon"`)
	}))
	require.NoError(t, c.Open(soon(t)))
	session := devices()["session"].(map[string]any)
	require.Equal(t, []any{true, "1h0m0s", []any{"ih/dev-1/dev/#"}}, []any{session["born"], session["sessionExpiry"],
		session["topics"]})
	require.Len(t, session["nonce"], 32)
	require.NoError(t, c.Send(soon(t), &transport.Message{Body: []byte("21"), Topic: "site/{deviceId}/up"}))
	m := p.good("GET", "/messages", "")["messages"].([]any)[0].(map[string]any)
	require.Equal(t, []any{"site/dev-1/up", "21"}, []any{m["topic"], m["body"]})
	answer := p.good("POST", "/devices/dev-1/methods", `{"name":"reboot"}`)
	require.EqualValues(t, 200, answer["status"])
	_, err = c.PatchReported(soon(t), []byte(`{"n":1}`))
	require.NoError(t, err)
	p.good("POST", "/devices/dev-1/twin/wait", `{"reported":{"n":1}}`)
	require.NoError(t, c.Close())

	added := p.good("POST", "/devices", `{"id":"dev-2"}`)["certificate"].(string)
	pair, err := tls.X509KeyPair([]byte(added), []byte(added))
	require.NoError(t, err)
	second := p.nextClient(at, "dev-2", func(context.Context) (*tls.Certificate, error) { return &pair, nil })
	t.Cleanup(func() { require.NoError(t, second.Close()) })
	require.NoError(t, second.Open(soon(t)))
	require.NotContains(t, p.good("POST", "/devices", `{"id":"dev-3","thumbprints":["`+
		testbroker.Thumbprint(pair.Leaf)+`"]}`), "certificate")
	require.Equal(t, p.ready.Profile, p.good("GET", "/hub", "")["profile"])
}

// A person reads in the first lines that the profile is a preview, and where the certificate is.
func TestTheFirstLinesSayThatTheProfileIsAPreview(t *testing.T) {
	var b bytes.Buffer
	r := &readyObject{Host: "h", Profile: (&profileSettings{mqttv5: true}).about([]string{"ih/+/srv/telemetry"}),
		Devices: []readyDevice{{Device: "dev-1", ConnectionString: "c", Certificate: "/tmp/testhub-dev-1.pem"}},
		Hubs:    []readyHub{{Host: "b", Profile: "mqttV5"}}}
	require.NoError(t, newPrinter(&b, false, func() {}).ready(r))
	lines := strings.Split(b.String(), "\n")
	require.Equal(t, "profile  mqttV5, a public preview that may change; routed to the event hub: ih/+/srv/telemetry",
		lines[1])
	require.Contains(t, lines, "cert     /tmp/testhub-dev-1.pem")
	require.Contains(t, lines, "linked   b, profile mqttV5")
}

// One provisioning service has a hub of each kind. A device with a key gets a certificate for the
// new kind.
func TestAHubOfEachKindBehindOneProvisioningService(t *testing.T) {
	p := start(t, "-enroll", "sensor-1", "-link", "hub-b.example.test", "-profile", "hub-b.example.test=mqttV5",
		"-dps-retry-after", "0s")
	require.Empty(t, p.ready.Profile)
	require.Equal(t, "mqttV5", p.hubAt("hub-b.example.test").Profile)
	registrar := p.registrar(p.ready.DPS.Enrolled[0], "https", nil)
	a, err := registrar.Register(soon(t))
	require.NoError(t, err)
	require.Equal(t, "classic", a.ConnectionProfile)

	p.good("POST", "/dps/enrollments/sensor-1/move", `{"hubs":["hub-b.example.test"]}`)
	_, err = registrar.Register(soon(t))
	require.ErrorContains(t, err, "takes certificates only; register with a csr")
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	csr, err := dpscert.Request("sensor-1", key)
	require.NoError(t, err)
	registrar, err = registrar.WithCSR(csr)
	require.NoError(t, err)
	a, err = registrar.Register(soon(t))
	require.NoError(t, err)
	require.True(t, a.MQTTv5())
	c := p.nextClient(p.hubAt(a.Hub), a.DeviceID, dpscert.Certificate(a.Chain, key))
	require.NoError(t, c.Open(soon(t)))
	require.NoError(t, c.Send(soon(t), &transport.Message{ID: "one"}))
	require.NoError(t, c.Close())
	require.Len(t, p.good("GET", "/hubs/hub-b.example.test/messages", "")["messages"], 1)
}

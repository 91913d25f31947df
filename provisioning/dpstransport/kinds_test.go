package dpstransport_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpshttp"
	"github.com/hubline-iot/hubline/provisioning/dpstransport"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/mqtt/nexthub"
	"github.com/hubline-iot/hubline/transport/netopt"
)

const (
	classic = "hub1.example.test"
	next    = "hub2.example.test"
)

// newKinds returns a provisioning service with a hub of each connection profile. They are closed
// with the test.
func newKinds(t *testing.T) (*testbroker.DPS, map[string]*testbroker.Hub) {
	d, err := testbroker.NewDPS(nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	hubs := map[string]*testbroker.Hub{}
	for name, profile := range map[string]*testbroker.MQTTv5Options{classic: nil, next: {}} {
		hubs[name], err = testbroker.New(&testbroker.Options{HostName: name, MQTTv5: profile})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, hubs[name].Close()) })
		require.NoError(t, d.Link(hubs[name]))
	}
	return d, hubs
}

// newKindsTransport enrolls the device reg-0001 with a certificate at a hub, and returns its
// Transport, which speaks with both kinds.
func newKindsTransport(t *testing.T, d *testbroker.DPS, hubs map[string]*testbroker.Hub, hub string,
	o *dpstransport.Options) *dpstransport.Transport {
	cert := testbroker.NewClientCert("reg-0001", time.Time{}, time.Time{})
	_, err := d.Enroll(dpsdata.Enrollment{ID: "reg-0001", Certificates: []*x509.Certificate{cert.Leaf},
		Hubs: []string{hub}})
	require.NoError(t, err)
	certificate := func(context.Context) (*tls.Certificate, error) { return &cert, nil }
	registrar, err := provisioning.New(&provisioning.Identity{Endpoint: d.HostName(), IDScope: d.IDScope(),
		RegistrationID: "reg-0001"}, dpshttp.New(&netopt.Options{Dial: d.Dial(testbroker.PortHTTPS),
		TLS: d.ClientTLS(), Certificate: certificate}), &provisioning.Options{MQTTv5: true})
	require.NoError(t, err)
	tr, err := dpstransport.New(registrar, func(creds *transport.Credentials,
		a *provisioning.Assignment) transport.Transport {
		h := hubs[creds.Host]
		o := &mqtt.Options{Network: netopt.Options{Dial: h.Dial(testbroker.PortMQTTS), TLS: h.ClientTLS(),
			Certificate: certificate}}
		if a.MQTTv5() {
			o.Dialect = &nexthub.Hub{}
		}
		return mqtt.New(o)
	}, o)
	require.NoError(t, err)
	return tr
}

// A device goes from one kind of hub to the other and back. Messages, the twin and the methods work
// at each.
func TestADeviceMovesBetweenHubsOfBothKinds(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		d, hubs := newKinds(t)
		tr := newKindsTransport(t, d, hubs, classic, nil)
		c, err := device.New(tr.Credentials(), tr, nil)
		require.NoError(t, err)
		require.NoError(t, c.HandleMethod("where", func(context.Context, *device.MethodCall) (int, []byte) {
			return 200, []byte(`"here"`)
		}))
		require.NoError(t, c.Open(t.Context()))
		for i, to := range []string{classic, next, classic} {
			if i > 0 {
				from := tr.Assignment().Hub
				require.NoError(t, d.Move("reg-0001", to))
				require.NoError(t, hubs[from].RemoveDevice("reg-0001"))
			}
			before := hubs[to].Len()
			require.NoError(t, c.Enqueue(t.Context(), &transport.Message{ID: fmt.Sprint(i)}, nil))
			require.NoError(t, c.Flush(t.Context())) // after minutes, if the hub may lift its refusal
			require.Equal(t, before+1, hubs[to].Len())
			require.Equal(t, fmt.Sprint(i), hubs[to].Messages()[before].MessageID)
			require.Equal(t, to, tr.Assignment().Hub)
			require.Equal(t, hubs[to].ConnectionProfile(), tr.Assignment().ConnectionProfile)
			_, err = c.PatchReported(t.Context(), fmt.Appendf(nil, `{"n":%d}`, i))
			require.NoError(t, err)
			twin, err := hubs[to].Twin("reg-0001")
			require.NoError(t, err)
			require.Contains(t, string(twin.Reported), fmt.Sprintf(`"n":%d`, i))
			answer, err := hubs[to].CallMethod(t.Context(), "reg-0001", hubdata.MethodCall{Name: "where"})
			require.NoError(t, err)
			require.Equal(t, `"here"`, string(answer.Payload))
		}
		require.NoError(t, c.Close())
	})
}

// A program that does not say that it speaks with hubs of the new kind is not sent there to fail.
// It learns why, by name.
func TestAHubOfAnotherKindIsRefusedByName(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		s := &service{refusal: &provisioning.Answer{Status: 200, Body: []byte(`{"status":"assigned","registrationState":` +
			`{"assignedHub":"h","deviceId":"d","connectionProfile":"mqttV5"}}`)}}
		tr := setup(t, s, &hubs{}, 1, nil)
		err := dial(t, tr)
		require.ErrorIs(t, err, transport.Unsupported)
		require.ErrorContains(t, err, `the hub has the connection profile "mqttV5"; set Options.MQTTv5`)
	})
}

// A hub that accepts connections and answers no birth fails like one that nobody reaches. After a
// row of such failures the service is asked, which has moved the device.
func TestAHubThatAnswersNoBirthLeadsBackToTheService(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		d, hubs := newKinds(t)
		in := hubs[next].Inject(fault.Fault{Kind: fault.SwallowDispatch, Message: "birth-ack", Times: -1})
		tr := newKindsTransport(t, d, hubs, next, &dpstransport.Options{MaxFailures: 3})
		c, err := device.New(tr.Credentials(), tr, nil)
		require.NoError(t, err)
		require.NoError(t, c.Start())
		time.Sleep(90 * time.Second)
		require.NoError(t, d.Move("reg-0001", classic))
		require.NoError(t, c.Send(t.Context(), &transport.Message{ID: "one"}))
		require.Equal(t, 3, in.Fired())
		require.Equal(t, 1, hubs[classic].Len())
		require.NoError(t, c.Close())
	})
}

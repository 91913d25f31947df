package dpstransport_test

import (
	"fmt"
	"path/filepath"
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
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// newService returns a provisioning service with two hubs, by their names. They are closed with the
// test.
func newService(t *testing.T) (*testbroker.DPS, map[string]*testbroker.Hub) {
	d, err := testbroker.NewDPS(nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	hubs := map[string]*testbroker.Hub{}
	for _, name := range []string{"hub1.example.test", "hub2.example.test"} {
		h, err := testbroker.New(&testbroker.Options{HostName: name})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, h.Close()) })
		require.NoError(t, d.Link(h))
		hubs[name] = h
	}
	return d, hubs
}

// newTransport returns a Transport of the device reg-0001, which registers over HTTPS.
func newTransport(t *testing.T, d *testbroker.DPS, key string, o *dpstransport.Options,
	inner dpstransport.Inner) *dpstransport.Transport {
	sign, err := transport.SharedKey(key)
	require.NoError(t, err)
	registrar, err := provisioning.New(&provisioning.Identity{Endpoint: d.HostName(), IDScope: d.IDScope(),
		RegistrationID: "reg-0001", Sign: sign}, dpshttp.New(&netopt.Options{Dial: d.Dial(testbroker.PortHTTPS),
		TLS: d.ClientTLS()}), nil)
	require.NoError(t, err)
	tr, err := dpstransport.New(registrar, inner, o)
	require.NoError(t, err)
	return tr
}

// A device is moved to another hub and another device id while it sends. Every message arrives at
// one of the hubs, and a restart connects without asking.
func TestNothingIsLostOverAMove(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		d, hubs := newService(t)
		e, err := d.Enroll(dpsdata.Enrollment{ID: "reg-0001", DeviceID: "dev-1", Hubs: []string{"hub1.example.test"}})
		require.NoError(t, err)
		path := filepath.Join(t.TempDir(), "assignment")
		moved := 0
		start := func() *device.Client {
			o := &dpstransport.Options{Store: dpstransport.File(path), OnEvent: func(e dpstransport.Event) {
				if e.Moved {
					moved++
				}
			}}
			tr := newTransport(t, d, e.PrimaryKey, o, func(creds *transport.Credentials,
				_ *provisioning.Assignment) transport.Transport {
				h := hubs[creds.Host]
				return mqtt.New(&mqtt.Options{Network: netopt.Options{Dial: h.Dial(testbroker.PortMQTTS), TLS: h.ClientTLS()}})
			})
			c, err := device.New(tr.Credentials(), tr, nil)
			require.NoError(t, err)
			require.NoError(t, c.Open(t.Context()))
			return c
		}

		c := start()
		send := func(from, to int) {
			for i := from; i < to; i++ {
				require.NoError(t, c.Enqueue(t.Context(), &transport.Message{ID: fmt.Sprint(i), Body: fmt.Append(nil, i)}, nil))
				time.Sleep(100 * time.Millisecond)
			}
		}
		send(0, 20)
		require.NoError(t, d.Change("reg-0001", func(e *dpsdata.Enrollment) { e.DeviceID = "dev-2" }))
		require.NoError(t, d.Move("reg-0001", "hub2.example.test"))
		require.NoError(t, hubs["hub1.example.test"].RemoveDevice("dev-1"))
		send(20, 40)
		require.NoError(t, c.Flush(t.Context()))
		require.NoError(t, c.Close())
		require.Equal(t, 1, moved)

		seen := map[string]string{}
		for name, h := range hubs {
			for _, m := range h.Messages() {
				seen[string(m.Body)] = name
			}
		}
		require.Len(t, seen, 40)
		require.Equal(t, "hub1.example.test", seen["0"])
		require.Equal(t, "hub2.example.test", seen["39"])

		asked := len(d.Requests())
		c = start()
		send(40, 41)
		require.NoError(t, c.Flush(t.Context()))
		require.NoError(t, c.Close())
		require.Len(t, d.Requests(), asked)
	})
}

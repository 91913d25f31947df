package dpscert_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpscert"
	"github.com/hubline-iot/hubline/provisioning/dpshttp"
	"github.com/hubline-iot/hubline/provisioning/dpstransport"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// A device gets its hub and its first certificate from the service, renews it at the hub, is moved
// to another hub, and goes on there after a restart, with a certificate that is not in the stored
// assignment. Nothing is lost.
func TestARenewerInsideATransportThatFollowsTheDevice(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		d, err := testbroker.NewDPS(nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, d.Close()) }()
		hubs := map[string]*testbroker.Hub{}
		for _, name := range []string{"hub1.example.test", "hub2.example.test"} {
			h, err := testbroker.New(&testbroker.Options{HostName: name})
			require.NoError(t, err)
			defer func() { require.NoError(t, h.Close()) }()
			h.CAPEM()
			require.NoError(t, d.Link(h))
			hubs[name] = h
		}
		authority := testbroker.NewCertAuthority("root")
		e, err := d.Enroll(dpsdata.Enrollment{ID: "dev-1", Hubs: []string{"hub1.example.test"},
			Issue: authority.Issuer(30 * day)})
		require.NoError(t, err)
		sign, err := transport.SharedKey(e.PrimaryKey)
		require.NoError(t, err)
		key := newKey(t)
		csr, err := dpscert.Request("dev-1", key)
		require.NoError(t, err)
		registrar, err := provisioning.New(&provisioning.Identity{Endpoint: d.HostName(), IDScope: d.IDScope(),
			RegistrationID: "dev-1", Sign: sign}, dpshttp.New(&netopt.Options{Dial: d.Dial(testbroker.PortHTTPS),
			TLS: d.ClientTLS()}), &provisioning.Options{CSR: csr})
		require.NoError(t, err)
		folder := t.TempDir()
		var renewer *dpscert.Renewer
		start := func() *device.Client {
			renewer, err = dpscert.New(key, &dpscert.Options{Registrar: registrar,
				Store: dpscert.File(filepath.Join(folder, "certificate"))})
			require.NoError(t, err)
			tr, err := dpstransport.New(registrar, func(creds *transport.Credentials,
				a *provisioning.Assignment) transport.Transport {
				renewer.Offer(a.Chain)
				h := hubs[creds.Host]
				return renewer.Around(mqtt.New(&mqtt.Options{KeepAlive: 1170 * time.Second, Network: netopt.Options{
					Dial: h.Dial(testbroker.PortMQTTS), TLS: h.ClientTLS(), Certificate: renewer.Certificate}}))
			}, &dpstransport.Options{Store: dpstransport.File(filepath.Join(folder, "assignment"))})
			require.NoError(t, err)
			c, err := device.New(tr.Credentials(), tr, nil)
			require.NoError(t, err)
			require.NoError(t, c.Open(t.Context()))
			return c
		}
		sent := 0
		run := func(c *device.Client, days int) {
			for range days {
				require.NoError(t, c.Send(t.Context(), &transport.Message{ID: fmt.Sprint(sent), Body: fmt.Append(nil, sent)}))
				sent++
				time.Sleep(day)
			}
		}
		c := start()
		run(c, 25)
		require.Len(t, hubs["hub1.example.test"].CertificateRequests(), 1)
		require.NoError(t, c.Close())
		asked := len(d.Requests())
		c = start()
		run(c, 10) // the first certificate ends meanwhile
		require.Len(t, d.Requests(), asked, "the stored certificate is used")

		require.NoError(t, d.Move("dev-1", "hub2.example.test"))
		require.NoError(t, hubs["hub1.example.test"].RemoveDevice("dev-1"))
		run(c, 25)
		require.Len(t, hubs["hub2.example.test"].CertificateRequests(), 1)
		require.NoError(t, c.Close())
		seen := map[string]bool{}
		for _, h := range hubs {
			for _, m := range h.Messages() {
				seen[string(m.Body)] = true
			}
		}
		require.Len(t, seen, sent)
		require.NoError(t, renewer.Status().Err)
	})
}

// A device that was made anew by a registration of the renewer has another twin, at the same hub.
// The handler of desired properties gets all of it.
func TestARenewerThatRegistersNoticesAnotherTwin(t *testing.T) {
	for _, around := range []bool{false, true} {
		t.Run(fmt.Sprint("inside a transport that follows the device ", around), func(t *testing.T) {
			inWorld(t, nil, func(t *testing.T, w *world) {
				w.enroll()
				require.NoError(t, w.dps.Change("reg-1", func(e *dpsdata.Enrollment) { e.Desired = `{"of":"the second"}` }))
				r := w.renewer(dpscert.Options{})
				outer := transport.Transport(r.Around(w.transport("mqtt", r)))
				if around {
					store := &assignments{&dpstransport.Record{Registration: w.registrar.Registration(),
						Assignment: provisioning.Assignment{Hub: w.hub.HostName(), DeviceID: "dev-1"}}}
					var err error
					outer, err = dpstransport.New(w.registrar, func(*transport.Credentials,
						*provisioning.Assignment) transport.Transport {
						return r.Around(w.transport("mqtt", r))
					}, &dpstransport.Options{Store: store})
					require.NoError(t, err)
				}
				c, err := device.New(w.creds, outer, nil)
				require.NoError(t, err)
				defer func() { require.NoError(t, c.Close()) }()
				var mu sync.Mutex
				var got []string
				c.HandleDesired(func(_ context.Context, d device.Desired) {
					mu.Lock()
					defer mu.Unlock()
					got = append(got, string(d.JSON))
				})
				_, err = w.hub.PatchDesired("dev-1", `{"of":"the first"}`)
				require.NoError(t, err)
				require.NoError(t, c.Open(t.Context()))
				time.Sleep(time.Second)
				require.NoError(t, w.hub.RemoveDevice("dev-1"))
				time.Sleep(time.Hour)
				require.Equal(t, device.StateConnected, c.Status().State)
				mu.Lock()
				defer mu.Unlock()
				require.Equal(t, `{"$version":2,"of":"the second"}`, got[len(got)-1], "%v", got)
			})
		})
	}
}

// assignments is a store of package dpstransport.
type assignments struct{ record *dpstransport.Record }

func (a *assignments) Load() (*dpstransport.Record, error) { return a.record, nil }
func (a *assignments) Save(r *dpstransport.Record) error {
	a.record = r
	return nil
}

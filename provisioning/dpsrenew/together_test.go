package dpsrenew_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpscert"
	"github.com/hubline-iot/hubline/provisioning/dpshttp"
	"github.com/hubline-iot/hubline/provisioning/dpsrenew"
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
	inBubble(t, func(t *testing.T) {
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
		var renewer *dpsrenew.Renewer
		start := func() *device.Client {
			renewer, err = dpsrenew.New(key, &dpsrenew.Options{Registrar: registrar,
				Store: dpsrenew.File(filepath.Join(folder, "certificate"))})
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

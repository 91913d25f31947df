package dps_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

const (
	classicHub = "hub-a.example.test"
	nextHub    = "hub-b.example.test"
)

// newBoth makes a provisioning service with a classic hub and one of the profile mqttV5.
func newBoth(t testing.TB) (*testbroker.DPS, map[string]*testbroker.Hub) {
	d, hubs := newDPS(t, &testbroker.DPSOptions{Polls: -1}, classicHub)
	h, err := testbroker.New(&testbroker.Options{HostName: nextHub, MQTTv5: &testbroker.MQTTv5Options{}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close()) })
	require.NoError(t, d.Link(h))
	hubs[nextHub] = h
	return d, hubs
}

// certified returns a client over HTTPS with a certificate.
func certified(t testing.TB, d *testbroker.DPS, cert tls.Certificate) *hubtest.Poster {
	config := d.ClientTLS()
	config.Certificates = []tls.Certificate{cert}
	p := hubtest.NewPoster(t, d.Dial(testbroker.PortHTTPS), config, "")
	p.Base = "https://" + d.HostName()
	return p
}

func registerAt(p *hubtest.Poster, id, version, body string) dpsAnswer {
	return provision(p, "PUT", "/"+testScope+"/registrations/"+id+"/register?api-version="+version, body)
}

// A device with a certificate goes from the hub of one kind to the other and back, and its twin
// goes along. Only the preview tells it the kind; both versions are served side by side.
func TestADeviceMovesBetweenHubsOfBothKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, hubs := newBoth(t)
		cert := testbroker.NewClientCert("reg-1", time.Time{}, time.Time{})
		enroll(t, d, dpsdata.Enrollment{ID: "reg-1", Certificates: []*x509.Certificate{cert.Leaf},
			Hubs: []string{classicHub}, Desired: `{"n":1}`})
		p := certified(t, d, cert)
		for i, want := range []struct{ hub, profile string }{
			{classicHub, "classic"}, {nextHub, "mqttV5"}, {classicHub, "classic"},
		} {
			require.NoError(t, d.Move("reg-1", want.hub))
			for version, profile := range map[string]string{"2026-11-02-preview": want.profile, "2026-11-01": "",
				"2019-03-31": ""} {
				a := registerAt(p, "reg-1", version, "")
				require.Equal(t, "assigned", a.Status, a.body)
				require.Equal(t, want.hub, a.State.AssignedHub)
				require.Equal(t, profile, a.State.ConnectionProfile, version)
			}
			for name, h := range hubs {
				_, err := h.Device("reg-1")
				require.Equal(t, name == want.hub, err == nil)
			}
			twin, err := hubs[want.hub].Twin("reg-1")
			require.NoError(t, err)
			require.Contains(t, string(twin.Desired), `"n":1`, i)
		}
		service := dpsBackEnd(t, d)
		for version, want := range map[string]bool{"2026-11-02-preview": true, "2026-11-01": false} {
			r := service.Do("GET", "/registrations/reg-1?api-version="+version, "")
			require.Equal(t, 200, r.StatusCode, r.Text)
			if want {
				require.Contains(t, r.Text, `"connectionProfile":"classic"`)
			} else {
				require.NotContains(t, r.Text, "connectionProfile")
			}
		}
	})
}

// A key proves who a device is to the service, and to no hub of the profile mqttV5: the device also
// needs a certificate that the service issues.
func TestAKeyNeedsAnIssuedCertificateForAHubOfTheProfileMQTTv5(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, hubs := newBoth(t)
		e := enroll(t, d, dpsdata.Enrollment{ID: "reg-1", Hubs: []string{nextHub},
			Issue: testbroker.NewCertAuthority("root").Issuer(time.Hour)})
		p := overDPSAs(t, d, e)
		a := registerAt(p, "reg-1", "2026-11-02-preview", "")
		require.Equal(t, "failed", a.Status)
		require.Equal(t, 400004, a.State.ErrorCode)
		require.Equal(t, "hub "+nextHub+" takes certificates only; register with a csr", a.State.ErrorMessage)
		_, err := hubs[nextHub].Device("reg-1")
		require.ErrorIs(t, err, testbroker.ErrNotFound)

		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		require.NoError(t, err)
		der, err := x509.CreateCertificateRequest(rand.Reader,
			&x509.CertificateRequest{Subject: pkix.Name{CommonName: "reg-1"}}, key)
		require.NoError(t, err)
		a = registerAt(p, "reg-1", "2026-11-02-preview", `{"csr":"`+base64.StdEncoding.EncodeToString(der)+`"}`)
		require.Equal(t, "assigned", a.Status, a.body)
		require.Equal(t, "mqttV5", a.State.ConnectionProfile)
		require.Len(t, a.State.IssuedCertificateChain, 1)
		known, err := hubs[nextHub].Device("reg-1")
		require.NoError(t, err)
		require.Empty(t, known.PrimaryKey)

		require.NoError(t, d.Move("reg-1", classicHub))
		a = registerAt(p, "reg-1", "2026-11-02-preview", "")
		require.Equal(t, "assigned", a.Status, "a classic hub takes the key")
		known, err = hubs[classicHub].Device("reg-1")
		require.NoError(t, err)
		require.Equal(t, e.PrimaryKey, known.PrimaryKey)
	})
}

package dpshttp_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/bounded"
	"github.com/hubline-iot/hubline/internal/faketime"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpshttp"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/lean"
	"github.com/hubline-iot/hubline/transport/mqtt/lean/leannet"
	"github.com/hubline-iot/hubline/transport/netopt"
)

const (
	groupKey  = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+Pw=="
	secondKey = "MDAwMTAyMDMwNDA1MDYwNzA4MDkwYTBiMGMwZDBlMGY="
)

// withService runs f in fake time with a provisioning service and one hub.
func withService(t *testing.T, f func(t *testing.T, d *testbroker.DPS, h *testbroker.Hub, o *netopt.Options)) {
	bounded.Test(t, func(t *testing.T) {
		faketime.Start()
		d, err := testbroker.NewDPS(nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, d.Close()) }()
		h, err := testbroker.New(&testbroker.Options{HostName: "hub1.example.test"})
		require.NoError(t, err)
		defer func() { require.NoError(t, h.Close()) }()
		require.NoError(t, d.Link(h))
		f(t, d, h, &netopt.Options{Dial: d.Dial(testbroker.PortHTTPS), TLS: d.ClientTLS()})
	})
}

func enrolled(d *testbroker.DPS, id string) *provisioning.Identity {
	return &provisioning.Identity{Endpoint: d.HostName(), IDScope: d.IDScope(), RegistrationID: id}
}

// A device of a group registers, and sends with what it got.
func TestARegisteredDeviceSends(t *testing.T) {
	withService(t, func(t *testing.T, d *testbroker.DPS, h *testbroker.Hub, o *netopt.Options) {
		_, err := d.Enroll(dpsdata.Enrollment{ID: "grp-1", Group: true, PrimaryKey: groupKey, SecondaryKey: secondKey})
		require.NoError(t, err)
		id := enrolled(d, "reg-0001")
		id.Sign, err = provisioning.GroupKey(groupKey, "reg-0001")
		require.NoError(t, err)
		c, err := provisioning.New(id, dpshttp.New(o), nil)
		require.NoError(t, err)
		a, err := c.Register(t.Context())
		require.NoError(t, err)
		require.Equal(t, "hub1.example.test", a.Hub)
		require.Equal(t, "initialAssignment", a.Substatus)

		creds := c.Credentials(a)
		client, err := device.New(creds, lean.New(leannet.Dialer(creds, &netopt.Options{Dial: h.Dial(testbroker.PortMQTTS),
			TLS: h.ClientTLS()}), nil), nil)
		require.NoError(t, err)
		require.NoError(t, client.Open(t.Context()))
		require.NoError(t, client.Send(t.Context(), &transport.Message{Body: []byte("first")}))
		require.NoError(t, client.Close())
		require.Len(t, h.Messages(), 1)
	})
}

func TestRefusalsOfTheService(t *testing.T) {
	withService(t, func(t *testing.T, d *testbroker.DPS, _ *testbroker.Hub, o *netopt.Options) {
		_, err := d.Enroll(dpsdata.Enrollment{ID: "reg-0001", PrimaryKey: groupKey, SecondaryKey: secondKey})
		require.NoError(t, err)
		right, err := transport.SharedKey(secondKey)
		require.NoError(t, err)
		wrong, err := transport.SharedKey("d3Jvbmd3cm9uZ3dyb25nd3Jvbmc=")
		require.NoError(t, err)
		register := func(change func(id *provisioning.Identity)) (*provisioning.Assignment, error) {
			id := enrolled(d, "reg-0001")
			id.Sign = right
			change(id)
			c, err := provisioning.New(id, dpshttp.New(o), nil)
			require.NoError(t, err)
			return c.Register(t.Context())
		}
		a, err := register(func(*provisioning.Identity) {})
		require.NoError(t, err)
		require.False(t, a.SecondKey)
		a, err = register(func(id *provisioning.Identity) { id.Sign, id.SecondSign = wrong, right })
		require.NoError(t, err)
		require.True(t, a.SecondKey)
		_, err = register(func(id *provisioning.Identity) { id.Sign = wrong })
		require.ErrorIs(t, err, transport.Unauthorized)
		_, err = register(func(id *provisioning.Identity) { id.RegistrationID = "stranger" })
		require.Contains(t, []transport.Kind{transport.Unauthorized, transport.NotFound}, transport.KindOf(err), "%v", err)
		_, err = register(func(id *provisioning.Identity) { id.IDScope = "0ne00000000" })
		require.Contains(t, []transport.Kind{transport.Unauthorized, transport.NotFound}, transport.KindOf(err), "%v", err)
		require.NoError(t, d.SetEnabled("reg-0001", false))
		_, err = register(func(*provisioning.Identity) {})
		require.ErrorIs(t, err, transport.Forbidden, "%v", err)
	})
}

// The whole chain is sent: the service knows only the root.
func TestACertificateOfAGroupIsSentWithItsChain(t *testing.T) {
	withService(t, func(t *testing.T, d *testbroker.DPS, _ *testbroker.Hub, o *netopt.Options) {
		root := testbroker.NewCertAuthority("root")
		sub := root.NewAuthority("sub")
		_, err := d.Enroll(dpsdata.Enrollment{ID: "grp-ca", Group: true, Certificates: []*x509.Certificate{root.Cert()}})
		require.NoError(t, err)
		cert := sub.NewClientCert("reg-x509", time.Time{}, time.Time{})
		o.Certificate = func(context.Context) (*tls.Certificate, error) { return &cert, nil }
		c, err := provisioning.New(enrolled(d, "reg-x509"), dpshttp.New(o), nil)
		require.NoError(t, err)
		a, err := c.Register(t.Context())
		require.NoError(t, err)
		require.Nil(t, c.Credentials(a).Sign)

		alone := cert
		alone.Certificate = alone.Certificate[:1]
		o.Certificate = func(context.Context) (*tls.Certificate, error) { return &alone, nil }
		c, err = provisioning.New(enrolled(d, "reg-x509"), dpshttp.New(o), nil)
		require.NoError(t, err)
		_, err = c.Register(t.Context())
		require.ErrorIs(t, err, transport.Unauthorized, "%v", err)
	})
}

// The payload of the allocation function comes back byte for byte.
func TestCustomAllocationBothWays(t *testing.T) {
	withService(t, func(t *testing.T, d *testbroker.DPS, h *testbroker.Hub, o *netopt.Options) {
		var got string
		_, err := d.Enroll(dpsdata.Enrollment{ID: "reg-0001", PrimaryKey: groupKey, SecondaryKey: secondKey,
			Allocation: dpsdata.Custom,
			Allocate: func(r dpsdata.AllocationRequest) (dpsdata.AllocationResult, error) {
				got = string(r.Payload)
				return dpsdata.AllocationResult{Hub: h.HostName(), Payload: []byte(`{"for":"Ünïcode"}`)}, nil
			}})
		require.NoError(t, err)
		id := enrolled(d, "reg-0001")
		id.Sign, err = transport.SharedKey(groupKey)
		require.NoError(t, err)
		c, err := provisioning.New(id, dpshttp.New(o), &provisioning.Options{Payload: []byte(`{"model":"a"}`)})
		require.NoError(t, err)
		a, err := c.Register(t.Context())
		require.NoError(t, err)
		require.JSONEq(t, `{"model":"a"}`, got)
		require.JSONEq(t, `{"for":"Ünïcode"}`, string(a.Payload))
	})
}

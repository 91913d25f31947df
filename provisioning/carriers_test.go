package provisioning_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpsamqp"
	"github.com/hubline-iot/hubline/provisioning/dpshttp"
	"github.com/hubline-iot/hubline/provisioning/dpsmqtt"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"

	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
	"github.com/hubline-iot/hubline/transport/websocket"
)

// carriers are all carriers. Each of them passes the tests of this file and of those beside it.
var carriers = []struct {
	name     string
	port     testbroker.Port
	protocol hubdata.Protocol
	tunnel   netopt.Tunnel
	open     func(o *netopt.Options) provisioning.Carrier
}{
	{"http", testbroker.PortHTTPS, hubdata.HTTP, nil, overHTTP},
	{"mqtt", testbroker.PortMQTTS, hubdata.MQTT, nil, overMQTT},
	{"mqtt-ws", testbroker.PortHTTPS, hubdata.MQTT, websocket.MQTT(nil), overMQTT},
	{"amqp", testbroker.PortAMQPS, hubdata.AMQP, nil, overAMQP},
	{"amqp-ws", testbroker.PortHTTPS, hubdata.AMQP, websocket.AMQP(nil), overAMQP},
}

func overHTTP(o *netopt.Options) provisioning.Carrier { return dpshttp.New(o) }
func overMQTT(o *netopt.Options) provisioning.Carrier { return dpsmqtt.New(o) }
func overAMQP(o *netopt.Options) provisioning.Carrier { return dpsamqp.New(o) }

const (
	regKey    = "MDAwMTAyMDMwNDA1MDYwNzA4MDkwYTBiMGMwZDBlMGY="
	strangeIt = "d3Jvbmd3cm9uZ3dyb25nd3Jvbmc="
)

// service is a provisioning service with one hub, and a carrier to it.
type service struct {
	*testbroker.DPS
	hub      *testbroker.Hub
	name     string
	protocol hubdata.Protocol
	network  netopt.Options
	open     func(o *netopt.Options) provisioning.Carrier
}

// onEachCarrier runs f in fake time for each carrier, with an enrollment "reg-0001" that has
// groupKey and regKey.
func onEachCarrier(t *testing.T, o *testbroker.DPSOptions, f func(t *testing.T, s *service)) {
	for _, c := range carriers {
		t.Run(c.name, func(t *testing.T) {
			testkit.In2030(t, func(t *testing.T) {
				d, err := testbroker.NewDPS(o)
				require.NoError(t, err)
				defer func() { require.NoError(t, d.Close()) }()
				h, err := testbroker.New(&testbroker.Options{HostName: "hub1.example.test"})
				require.NoError(t, err)
				defer func() { require.NoError(t, h.Close()) }()
				require.NoError(t, d.Link(h))
				_, err = d.Enroll(dpsdata.Enrollment{ID: "reg-0001", PrimaryKey: groupKey, SecondaryKey: regKey})
				require.NoError(t, err)
				f(t, &service{d, h, c.name, c.protocol,
					netopt.Options{Dial: d.Dial(c.port), TLS: d.ClientTLS(), Tunnel: c.tunnel}, c.open})
			})
		})
	}
}

// identity returns the identity of a device with a key; an empty key: with a certificate.
func (s *service) identity(t *testing.T, id, key string) *provisioning.Identity {
	i := &provisioning.Identity{Endpoint: s.HostName(), IDScope: s.IDScope(), RegistrationID: id}
	if key != "" {
		var err error
		i.Sign, err = transport.SharedKey(key)
		require.NoError(t, err)
	}
	return i
}

// client returns a client for an identity.
func (s *service) client(t *testing.T, id *provisioning.Identity, o *provisioning.Options) *provisioning.Client {
	c, err := provisioning.New(id, s.open(&s.network), o)
	require.NoError(t, err)
	return c
}

// register registers "reg-0001".
func (s *service) register(t *testing.T, o *provisioning.Options) (*provisioning.Assignment, error) {
	return s.client(t, s.identity(t, "reg-0001", regKey), o).Register(t.Context())
}

// A device of a group registers, and sends with what it got.
func TestARegisteredDeviceSends(t *testing.T) {
	onEachCarrier(t, nil, func(t *testing.T, s *service) {
		_, err := s.Enroll(dpsdata.Enrollment{ID: "grp-1", Group: true, PrimaryKey: groupKey, SecondaryKey: regKey})
		require.NoError(t, err)
		id := s.identity(t, "reg-0002", "")
		id.Sign, err = provisioning.GroupKey(groupKey, "reg-0002")
		require.NoError(t, err)
		c := s.client(t, id, nil)
		began := time.Now()
		a, err := c.Register(t.Context())
		require.NoError(t, err)
		require.Equal(t, "hub1.example.test", a.Hub)
		require.Equal(t, "initialAssignment", a.Substatus)
		require.Equal(t, 3*time.Second, time.Since(began), "the delay that the service asks for")
		requests := s.Requests()
		require.Len(t, requests, 2)
		for _, r := range requests {
			require.Equal(t, s.protocol, r.Protocol)
			require.Equal(t, "2019-03-31", r.APIVersion)
			require.Equal(t, requests[0].Connection, r.Connection, "one connection")
		}

		creds := c.Credentials(a)
		client, err := device.New(creds, mqtt.New(&mqtt.Options{Network: netopt.Options{
			Dial: s.hub.Dial(testbroker.PortMQTTS), TLS: s.hub.ClientTLS()}}), nil)
		require.NoError(t, err)
		require.NoError(t, client.Open(t.Context()))
		require.NoError(t, client.Send(t.Context(), &transport.Message{Body: []byte("first")}))
		require.NoError(t, client.Close())
		require.Len(t, s.hub.Messages(), 1)
	})
}

func TestRefusalsOfTheService(t *testing.T) {
	onEachCarrier(t, nil, func(t *testing.T, s *service) {
		right, err := transport.SharedKey(regKey)
		require.NoError(t, err)
		wrong, err := transport.SharedKey(strangeIt)
		require.NoError(t, err)
		register := func(change func(id *provisioning.Identity)) (*provisioning.Assignment, error) {
			id := s.identity(t, "reg-0001", regKey)
			change(id)
			return s.client(t, id, nil).Register(t.Context())
		}
		a, err := register(func(*provisioning.Identity) {})
		require.NoError(t, err)
		require.False(t, a.SecondKey)
		a, err = register(func(id *provisioning.Identity) { id.Sign, id.SecondSign = wrong, right })
		require.NoError(t, err)
		require.True(t, a.SecondKey)
		_, err = register(func(id *provisioning.Identity) { id.Sign = wrong })
		require.ErrorIs(t, err, transport.Unauthorized)
		require.NotContains(t, err.Error(), "sig=")
		_, err = register(func(id *provisioning.Identity) { id.RegistrationID = "stranger" })
		require.Contains(t, []transport.Kind{transport.Unauthorized, transport.NotFound}, transport.KindOf(err), "%v", err)
		_, err = register(func(id *provisioning.Identity) { id.IDScope = "0ne00000000" })
		require.Contains(t, []transport.Kind{transport.Unauthorized, transport.NotFound}, transport.KindOf(err), "%v", err)
		require.NoError(t, s.SetEnabled("reg-0001", false))
		_, err = register(func(*provisioning.Identity) {})
		require.ErrorIs(t, err, transport.Forbidden, "%v", err)
	})
}

// The whole chain is sent: the service knows only the root.
func TestACertificateOfAGroupIsSentWithItsChain(t *testing.T) {
	onEachCarrier(t, nil, func(t *testing.T, s *service) {
		root := testbroker.NewCertAuthority("root")
		sub := root.NewAuthority("sub")
		_, err := s.Enroll(dpsdata.Enrollment{ID: "grp-ca", Group: true, Certificates: []*x509.Certificate{root.Cert()}})
		require.NoError(t, err)
		cert := sub.NewClientCert("reg-x509", time.Time{}, time.Time{})
		s.network.Certificate = func(context.Context) (*tls.Certificate, error) { return &cert, nil }
		c := s.client(t, s.identity(t, "reg-x509", ""), nil)
		a, err := c.Register(t.Context())
		require.NoError(t, err)
		require.Nil(t, c.Credentials(a).Sign)

		alone := cert
		alone.Certificate = alone.Certificate[:1]
		s.network.Certificate = func(context.Context) (*tls.Certificate, error) { return &alone, nil }
		_, err = s.client(t, s.identity(t, "reg-x509", ""), nil).Register(t.Context())
		require.ErrorIs(t, err, transport.Unauthorized, "%v", err)
	})
}

// Nothing is sent with a certificate that cannot work, or with nothing that proves the identity.
func TestAWrongCertificateIsRefusedBeforeAnythingIsSent(t *testing.T) {
	onEachCarrier(t, nil, func(t *testing.T, s *service) {
		cert, other := testbroker.NewClientCert("reg-0001", time.Time{}, time.Time{}),
			testbroker.NewClientCert("other", time.Time{}, time.Time{})
		wrong, keyless, empty := cert, cert, tls.Certificate{PrivateKey: cert.PrivateKey}
		wrong.PrivateKey, keyless.PrivateKey = other.PrivateKey, nil
		s.network.Dial = func(context.Context, string, string) (net.Conn, error) { panic("dialed") }
		for text, get := range map[string]func(context.Context) (*tls.Certificate, error){
			"proves the identity":            nil,
			"belongs to another certificate": func(context.Context) (*tls.Certificate, error) { return &wrong, nil },
			"no private key":                 func(context.Context) (*tls.Certificate, error) { return &keyless, nil },
			"there is none":                  func(context.Context) (*tls.Certificate, error) { return &empty, nil },
		} {
			s.network.Certificate = get
			_, err := s.client(t, s.identity(t, "reg-0001", ""), nil).Register(t.Context())
			require.ErrorIs(t, err, transport.Invalid)
			require.ErrorContains(t, err, text)
		}
	})
}

func TestWrongNetworkOptionsAreInvalid(t *testing.T) {
	onEachCarrier(t, nil, func(t *testing.T, s *service) {
		for field, o := range map[string]netopt.Options{"Addr": {Addr: "x"}, "WriteTimeout": {WriteTimeout: -1}} {
			s.network = o
			_, err := s.register(t, nil)
			require.ErrorIs(t, err, transport.Invalid, field)
			require.ErrorContains(t, err, field)
		}
	})
}

// The payload of the allocation function comes back byte for byte.
func TestCustomAllocationBothWays(t *testing.T) {
	onEachCarrier(t, nil, func(t *testing.T, s *service) {
		var got string
		require.NoError(t, s.Change("reg-0001", func(e *dpsdata.Enrollment) {
			e.Allocation = dpsdata.AllocationCustom
			e.Allocate = func(r dpsdata.AllocationRequest) (dpsdata.AllocationResult, error) {
				got = string(r.Payload)
				return dpsdata.AllocationResult{Hub: s.hub.HostName(), Payload: []byte(`{"for":"Ünïcode"}`)}, nil
			}
		}))
		a, err := s.register(t, &provisioning.Options{Payload: []byte(`{"model":"a"}`)})
		require.NoError(t, err)
		require.JSONEq(t, `{"model":"a"}`, got)
		require.JSONEq(t, `{"for":"Ünïcode"}`, string(a.Payload))
	})
}

// A device that starts before its enrollment goes on, if it was told to.
func TestADeviceAwaitsItsEnrollment(t *testing.T) {
	for _, attestation := range []string{"key", "certificate"} {
		t.Run(attestation, func(t *testing.T) {
			onEachCarrier(t, nil, func(t *testing.T, s *service) {
				key := regKey
				enrollment := dpsdata.Enrollment{ID: "late", PrimaryKey: groupKey, SecondaryKey: regKey}
				if attestation == "certificate" {
					root := testbroker.NewCertAuthority("root")
					cert := root.NewClientCert("late", time.Time{}, time.Time{})
					s.network.Certificate = func(context.Context) (*tls.Certificate, error) { return &cert, nil }
					key, enrollment = "", dpsdata.Enrollment{ID: "grp-late", Group: true,
						Certificates: []*x509.Certificate{root.Cert()}}
				}
				id := s.identity(t, "late", key)
				_, err := s.client(t, id, nil).Register(t.Context())
				require.ErrorIs(t, err, transport.NotFound, "%v", err)
				enrolled := make(chan error, 1)
				time.AfterFunc(time.Minute, func() {
					_, err := s.Enroll(enrollment)
					enrolled <- err
				})
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				_, err = s.client(t, id, &provisioning.Options{AwaitEnrollment: true}).Register(ctx)
				require.NoError(t, <-enrolled)
				require.NoError(t, err)
				require.GreaterOrEqual(t, time.Since(began), time.Minute)
			})
		})
	}
}

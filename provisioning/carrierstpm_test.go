package provisioning_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// onEachTPMCarrier runs f for each carrier that attests a TPM, with an enrolled device.
func onEachTPMCarrier(t *testing.T, f func(t *testing.T, s *service, id *provisioning.Identity, tpm *testkit.TPM)) {
	onEachCarrier(t, nil, func(t *testing.T, s *service) {
		if _, ok := s.open(&s.network).(provisioning.TPMCarrier); !ok {
			require.Equal(t, hubdata.MQTT, s.protocol)
			return
		}
		tpm, err := testkit.NewTPM()
		require.NoError(t, err)
		id := s.identity(t, provisioning.TPMRegistrationID(tpm.EndorsementKey()), "")
		id.TPM = tpm
		_, err = s.Enroll(dpsdata.Enrollment{ID: id.RegistrationID, EndorsementKey: tpm.EndorsementKey()})
		require.NoError(t, err)
		f(t, s, id, tpm)
	})
}

// A device with a TPM registers, and sends with the key that the service gave it.
func TestADeviceWithATPMSends(t *testing.T) {
	onEachTPMCarrier(t, func(t *testing.T, s *service, id *provisioning.Identity, tpm *testkit.TPM) {
		c := s.client(t, id, &provisioning.Options{Payload: []byte(`{"model":"a"}`)})
		began := time.Now()
		a, err := c.Register(t.Context())
		require.NoError(t, err)
		require.Equal(t, 3*time.Second, time.Since(began), "the delay that the service asks for")
		last := s.Requests()[len(s.Requests())-2]
		require.Equal(t, 202, last.Status)
		require.JSONEq(t, `{"model":"a"}`, string(last.Payload))
		require.Equal(t, 2, tpm.Activations(), "for the service and for the hub")

		creds := c.Credentials(a)
		client, err := device.New(creds, mqtt.New(&mqtt.Options{Network: netopt.Options{
			Dial: s.hub.Dial(testbroker.PortMQTTS), TLS: s.hub.ClientTLS()}}), nil)
		require.NoError(t, err)
		require.NoError(t, client.Open(t.Context()))
		require.NoError(t, client.Send(t.Context(), &transport.Message{Body: []byte("first")}))
		require.NoError(t, client.Close())
		require.Len(t, s.hub.Messages(), 1)

		_, err = c.Register(t.Context())
		require.NoError(t, err, "again")
	})
}

func TestFailuresOfATPMOnEachCarrier(t *testing.T) {
	onEachTPMCarrier(t, func(t *testing.T, s *service, id *provisioning.Identity, tpm *testkit.TPM) {
		for _, key := range [][]byte{nil, []byte("short")} {
			s.Inject(fault.Fault{Kind: fault.WrongChallenge, Bytes: key})
			_, err := s.client(t, id, nil).Register(t.Context())
			require.ErrorIs(t, err, transport.Unauthorized)
			require.ErrorContains(t, err, "the TPM has not activated the service's key")
		}
		require.Zero(t, tpm.Activations())
		s.Inject(fault.Fault{Kind: fault.WrongAuthenticationKey})
		_, err := s.client(t, id, nil).Register(t.Context())
		require.ErrorIs(t, err, transport.Unauthorized)

		for _, route := range []fault.RouteKind{fault.RouteRegister, fault.RouteOperation} {
			s.Inject(fault.Fault{Kind: fault.DropBeforeProvisioning, Route: route})
			s.Inject(fault.Fault{Kind: fault.RefuseProvisioning, Route: route, RetryAfter: 7 * time.Second})
			began := time.Now()
			_, err = s.client(t, id, nil).Register(t.Context())
			require.NoError(t, err)
			require.GreaterOrEqual(t, time.Since(began), 7*time.Second)
		}

		id.TPM, err = testkit.NewTPM()
		require.NoError(t, err)
		_, err = s.client(t, id, nil).Register(t.Context())
		require.ErrorIs(t, err, transport.Unauthorized)
	})
}

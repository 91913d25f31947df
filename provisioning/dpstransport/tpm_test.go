package dpstransport_test

import (
	"context"
	"errors"
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

// A device with a TPM gets another key with another hub. After a restart it connects with the key
// in its TPM, without asking.
func TestADeviceWithATPMMoves(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		d, hubs := newService(t)
		tpm, err := testkit.NewTPM()
		require.NoError(t, err)
		_, err = d.Enroll(dpsdata.Enrollment{ID: "reg-0001", EndorsementKey: tpm.EndorsementKey(),
			Hubs: []string{"hub1.example.test"}})
		require.NoError(t, err)
		path := filepath.Join(t.TempDir(), "assignment")
		start := func() *device.Client {
			registrar, err := provisioning.New(&provisioning.Identity{Endpoint: d.HostName(), IDScope: d.IDScope(),
				RegistrationID: "reg-0001", TPM: tpm}, dpshttp.New(&netopt.Options{Dial: d.Dial(testbroker.PortHTTPS),
				TLS: d.ClientTLS()}), nil)
			require.NoError(t, err)
			inner := func(creds *transport.Credentials, _ *provisioning.Assignment) transport.Transport {
				h := hubs[creds.Host]
				return mqtt.New(&mqtt.Options{Network: netopt.Options{Dial: h.Dial(testbroker.PortMQTTS), TLS: h.ClientTLS()}})
			}
			tr, err := dpstransport.New(registrar, inner, &dpstransport.Options{Store: dpstransport.File(path)})
			require.NoError(t, err)
			c, err := device.New(tr.Credentials(), tr, nil)
			require.NoError(t, err)
			require.NoError(t, c.Open(t.Context()))
			return c
		}
		send := func(c *device.Client) {
			require.NoError(t, c.Send(t.Context(), &transport.Message{Body: []byte("21.5")}))
		}
		c := start()
		defer func() { _ = c.Close() }()
		send(c)
		require.NoError(t, d.Change("reg-0001", func(e *dpsdata.Enrollment) {
			e.PrimaryKey, e.DeviceID = e.SecondaryKey, "dev-2"
		}))
		require.NoError(t, d.Move("reg-0001", "hub2.example.test"))
		require.NoError(t, hubs["hub1.example.test"].RemoveDevice("reg-0001"))
		send(c)
		require.NoError(t, c.Close())
		require.Len(t, hubs["hub1.example.test"].Messages(), 1)
		moved := hubs["hub2.example.test"].Messages()
		require.Len(t, moved, 1)
		require.Equal(t, "dev-2", moved[0].DeviceID)

		asked := len(d.Requests())
		time.Sleep(time.Hour)
		c = start()
		send(c)
		require.Len(t, d.Requests(), asked)
		require.Equal(t, 4, tpm.Activations(), "two registrations")
	})
}

// forgetful is a TPM that lost its identity key, as after a power failure while it was replaced.
type forgetful struct {
	*testkit.TPM
	activated int
}

func (f *forgetful) Activate(ctx context.Context, key []byte) error {
	f.activated++
	return f.TPM.Activate(ctx, key)
}

func (f *forgetful) Sign(ctx context.Context, text []byte) ([]byte, error) {
	if f.activated == 0 {
		return nil, errors.New("no identity key")
	}
	return f.TPM.Sign(ctx, text)
}

// The stored assignment is of no use to a TPM without its key. The service gives it another one.
func TestATPMThatLostItsKeyGetsAnotherOne(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		d, hubs := newService(t)
		tpm, err := testkit.NewTPM()
		require.NoError(t, err)
		_, err = d.Enroll(dpsdata.Enrollment{ID: "reg-0001", EndorsementKey: tpm.EndorsementKey(),
			Hubs: []string{"hub1.example.test"}})
		require.NoError(t, err)
		store := &memory{record: &dpstransport.Record{Registration: d.IDScope() + "/registrations/reg-0001",
			Assignment: provisioning.Assignment{Hub: "hub1.example.test", DeviceID: "reg-0001"}}}
		registrar, err := provisioning.New(&provisioning.Identity{Endpoint: d.HostName(), IDScope: d.IDScope(),
			RegistrationID: "reg-0001", TPM: &forgetful{TPM: tpm}}, dpshttp.New(&netopt.Options{
			Dial: d.Dial(testbroker.PortHTTPS), TLS: d.ClientTLS()}), nil)
		require.NoError(t, err)
		var steps []dpstransport.Step
		tr, err := dpstransport.New(registrar, func(creds *transport.Credentials,
			_ *provisioning.Assignment) transport.Transport {
			h := hubs[creds.Host]
			return mqtt.New(&mqtt.Options{Network: netopt.Options{Dial: h.Dial(testbroker.PortMQTTS), TLS: h.ClientTLS()}})
		}, &dpstransport.Options{Store: store,
			OnEvent: func(e dpstransport.Event) { steps = append(steps, e.Step) }})
		require.NoError(t, err)
		c, err := device.New(tr.Credentials(), tr, nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close()) }()
		require.NoError(t, c.Open(t.Context()))
		require.NoError(t, c.Send(t.Context(), &transport.Message{Body: []byte("21.5")}))
		require.Equal(t, []dpstransport.Step{dpstransport.StepLoaded, dpstransport.StepRegistering,
			dpstransport.StepAssigned}, steps)
	})
}

package dpshttp_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpshttp"
	"github.com/hubline-iot/hubline/provisioning/dpsmqtt"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// withTPM runs f with an enrolled device that has a TPM.
func withTPM(t *testing.T, f func(t *testing.T, d *testbroker.DPS, h *testbroker.Hub, id *provisioning.Identity,
	tpm *testkit.TPM, o *netopt.Options)) {
	withService(t, func(t *testing.T, d *testbroker.DPS, h *testbroker.Hub, o *netopt.Options) {
		tpm, err := testkit.NewTPM()
		require.NoError(t, err)
		id := enrolled(d, provisioning.TPMRegistrationID(tpm.EndorsementKey()))
		id.TPM = tpm
		_, err = d.Enroll(dpsdata.Enrollment{ID: id.RegistrationID, EndorsementKey: tpm.EndorsementKey()})
		require.NoError(t, err)
		f(t, d, h, id, tpm, o)
	})
}

// The service has no attestation of a TPM over MQTT.
func TestMQTTRefusesATPMBeforeAnythingIsSent(t *testing.T) {
	withTPM(t, func(t *testing.T, d *testbroker.DPS, _ *testbroker.Hub, id *provisioning.Identity, _ *testkit.TPM,
		_ *netopt.Options) {
		_, err := provisioning.New(id, dpsmqtt.New(&netopt.Options{Dial: d.Dial(testbroker.PortMQTTS)}), nil)
		require.ErrorIs(t, err, transport.Invalid)
		require.ErrorContains(t, err, "TPM is set")
		require.ErrorContains(t, err, "MQTT")
		require.ErrorContains(t, err, "use dpshttp")
		require.Empty(t, d.Requests())
	})
}

// The failures of all carriers are tested in package provisioning.
func TestFailuresOfTheChallenge(t *testing.T) {
	withTPM(t, func(t *testing.T, d *testbroker.DPS, _ *testbroker.Hub, id *provisioning.Identity, tpm *testkit.TPM,
		o *netopt.Options) {
		register := func() error {
			c, err := provisioning.New(id, dpshttp.New(o), nil)
			require.NoError(t, err)
			_, err = c.Register(t.Context())
			return err
		}
		d.Inject(fault.Fault{Kind: fault.RepeatChallenge})
		err := register()
		require.ErrorIs(t, err, transport.Unauthorized, "%v", err)
		require.Equal(t, 1, tpm.Activations(), "one challenge is met, not one after the other")

		d.Inject(fault.Fault{Kind: fault.RefuseProvisioning, RetryAfter: 7 * time.Second})
		d.Inject(fault.Fault{Kind: fault.DropBeforeProvisioning, After: 3, Route: fault.RouteRegister})
		began := time.Now()
		require.NoError(t, register(), "throttled, and cut off after the challenge")
		require.GreaterOrEqual(t, time.Since(began), 7*time.Second)

		// a poll over a new connection has a token without another challenge
		before := tpm.Activations()
		d.Inject(fault.Fault{Kind: fault.DropBeforeProvisioning, Route: fault.RouteOperation})
		require.NoError(t, register())
		require.Equal(t, before+2, tpm.Activations())
	})
}

// The keys are in each register, and nowhere else. A 401 without a challenge is a refusal.
func TestTheKeysOfATPMOnTheWire(t *testing.T) {
	tpm, err := testkit.NewTPM()
	require.NoError(t, err)
	n := 0
	served(t, func(w http.ResponseWriter, r *http.Request) {
		n++
		body, _ := io.ReadAll(r.Body)
		var got struct {
			RegistrationID string
			Payload        []int
			TPM            struct{ EndorsementKey, StorageRootKey []byte }
		}
		require.NoError(t, json.Unmarshal(body, &got), string(body))
		require.Equal(t, "reg:0001", got.RegistrationID)
		require.Equal(t, []int{1}, got.Payload)
		endorsement, storageRoot, _ := tpm.PublicKeys(t.Context())
		require.Equal(t, endorsement, got.TPM.EndorsementKey)
		require.Equal(t, storageRoot, got.TPM.StorageRootKey)
		require.Empty(t, r.Header.Values("Authorization"))
		if n == 1 {
			w.WriteHeader(503)
			return
		}
		w.WriteHeader(401)
		_, _ = io.WriteString(w, `{"errorCode":401002,"message":"unknown endorsement key"}`)
	}, func(t *testing.T, o *netopt.Options) {
		id := identity(t)
		id.Sign, id.TPM = nil, tpm
		c, err := provisioning.New(id, dpshttp.New(o), &provisioning.Options{Payload: []byte("[1]")})
		require.NoError(t, err)
		_, err = c.Register(t.Context())
		require.ErrorIs(t, err, transport.Unauthorized)
		require.ErrorContains(t, err, "unknown endorsement key")
		require.Equal(t, 2, n)
	})
}

// A register that is repeated on an open connection may be challenged again.
func TestALaterChallengeIsMet(t *testing.T) {
	withTPM(t, func(t *testing.T, d *testbroker.DPS, _ *testbroker.Hub, id *provisioning.Identity, tpm *testkit.TPM,
		o *netopt.Options) {
		d.Inject(fault.Fault{Kind: fault.RefuseProvisioning, Status: 503, After: 1})
		d.Inject(fault.Fault{Kind: fault.RepeatChallenge})
		c, err := provisioning.New(id, dpshttp.New(o), nil)
		require.NoError(t, err)
		_, err = c.Register(t.Context())
		require.NoError(t, err)
		require.Equal(t, 3, tpm.Activations(), "two challenges, and the key for the hub")
	})
}

// A register of another attempt has the same body.
func TestARegisterOfATPMLeavesItsBodyAlone(t *testing.T) {
	tpm, err := testkit.NewTPM()
	require.NoError(t, err)
	served(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }, func(t *testing.T, o *netopt.Options) {
		l := &provisioning.Login{Endpoint: "dps.example.test", IDScope: "0ne00ABCDEF", RegistrationID: "reg-1",
			Timeout: time.Minute, Now: time.Now}
		s, err := dpshttp.New(o).OpenTPM(t.Context(), l, &provisioning.TPMLogin{EndorsementKey: tpm.EndorsementKey()})
		require.NoError(t, err)
		defer s.Close()
		body := append(make([]byte, 0, 4096), `{"registrationId":"reg-1"}`...)
		_, err = s.Exchange(t.Context(), &provisioning.Request{Body: body})
		require.NoError(t, err)
		require.Equal(t, `{"registrationId":"reg-1"}`, string(body))
	})
}

// slowTPM never ends an activation by itself.
type slowTPM struct{ *testkit.TPM }

func (slowTPM) Activate(ctx context.Context, _ []byte) error {
	<-ctx.Done()
	return errors.New("the TPM was interrupted")
}

func TestASlowTPMTimesOut(t *testing.T) {
	withTPM(t, func(t *testing.T, _ *testbroker.DPS, _ *testbroker.Hub, id *provisioning.Identity, tpm *testkit.TPM,
		o *netopt.Options) {
		id.TPM = slowTPM{tpm}
		var failures []error
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c, err := provisioning.New(id, dpshttp.New(o), &provisioning.Options{OnEvent: func(e provisioning.Event) {
			if e.Step == provisioning.StepRetrying {
				failures = append(failures, e.Err)
				cancel()
			}
		}})
		require.NoError(t, err)
		began := time.Now()
		_, err = c.Register(ctx)
		require.ErrorIs(t, err, transport.Cancelled)
		require.Len(t, failures, 1)
		require.ErrorIs(t, failures[0], transport.Timeout)
		require.Equal(t, time.Minute, time.Since(began))
	})
}

package dpsamqp_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpsamqp"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// Defects of the official clients over AMQP.

func TestDefectTheTimeOutIsAlwaysAMinute(t *testing.T) {
	for _, limit := range []time.Duration{3 * time.Second, 50 * time.Second} {
		with(t, &peer{replies: []func(*line){func(*line) {}}}, func(t *testing.T, o *netopt.Options) {
			began := time.Now()
			_, err := register(t, o, &provisioning.Options{RequestTimeout: limit, Policy: retrypolicy.NoRetry{}})
			require.ErrorIs(t, err, transport.RetryExpired)
			require.ErrorIs(t, err, transport.Timeout)
			require.Equal(t, limit, time.Since(began))
		})
	}
}

func TestDefectRetryAfterIsReadInOneSpelling(t *testing.T) {
	for _, name := range []string{"Retry-After", "retry-after", "RETRY-AFTER"} {
		p := &peer{replies: []func(*line){reject("x", `{"errorCode":503001}`, info(name, int32(20))), done}}
		with(t, p, func(t *testing.T, o *netopt.Options) {
			began := time.Now()
			_, err := register(t, o, nil)
			require.NoError(t, err)
			require.Equal(t, 20*time.Second, time.Since(began), name)
		})
	}
}

func TestDefectATPMIsAwaitedInNaps(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		testkit.StartClock()
		d, err := testbroker.NewDPS(&testbroker.DPSOptions{Polls: -1})
		require.NoError(t, err)
		h, err := testbroker.New(nil)
		require.NoError(t, err)
		require.NoError(t, d.Link(h))
		tpm, err := testkit.NewTPM()
		require.NoError(t, err)
		id := &provisioning.Identity{Endpoint: d.HostName(), IDScope: d.IDScope(), TPM: tpm,
			RegistrationID: provisioning.TPMRegistrationID(tpm.EndorsementKey())}
		_, err = d.Enroll(dpsdata.Enrollment{ID: id.RegistrationID, EndorsementKey: tpm.EndorsementKey()})
		require.NoError(t, err)
		c, err := provisioning.New(id, dpsamqp.New(&netopt.Options{Dial: d.Dial(testbroker.PortAMQPS),
			TLS: d.ClientTLS()}), nil)
		require.NoError(t, err)
		began := time.Now()
		_, err = c.Register(t.Context())
		require.NoError(t, err)
		require.Zero(t, time.Since(began))
		require.NoError(t, d.Close())
		require.NoError(t, h.Close())
	})
}

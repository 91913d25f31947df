package dpscert_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/provisioning/dpscert"
	"github.com/hubline-iot/hubline/transport"
)

// A device runs for four months on certificates of 30 days that its hub renews. Each message
// arrives once, and no connection is lost.
func TestMonthsOnCertificatesOfTheHub(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		r := w.renewer(dpscert.Options{})
		c := w.open("mqtt", r)
		ends := map[time.Time]bool{}
		months := 2
		if testkit.Long() {
			months = 4
		}
		for i := range months * 30 {
			require.NoError(t, c.Send(t.Context(), &transport.Message{ID: fmt.Sprint(i), Body: fmt.Append(nil, i)}))
			leaf := w.leaf(r)
			ends[leaf.NotAfter] = true
			require.Less(t, time.Now(), leaf.NotBefore.Add(21*day), "renewed at two thirds of the life")
			time.Sleep(day)
		}
		ends[w.leaf(r).NotAfter] = true // the last day may have brought another one
		require.NoError(t, c.Close())
		requests := w.hub.CertificateRequests()
		require.Len(t, requests, len(ends)-1, "one request for each certificate")
		require.InDelta(t, float64(months)*30/19.25, float64(len(requests)), 1)
		for _, q := range requests {
			require.Equal(t, 202, q.Status)
		}
		log := w.hub.Messages()
		require.Len(t, log, months*30)
		for i, m := range log {
			require.Equal(t, fmt.Sprint(i), m.MessageID)
			require.False(t, m.Dup)
		}
		for _, s := range w.statuses() {
			require.Nil(t, s.Err, "%v", s)
		}
		for i, e := range w.told() {
			require.Equal(t, []dpscert.Step{dpscert.StepRequesting, dpscert.StepRenewed}[i%2], e.Step)
			require.True(t, e.AtHub)
		}
		require.Equal(t, len(requests), w.store.saved())
		require.Len(t, w.store.record.Certificates, 2)
	})
}

// The provisioning service renews where the hub has no topics for it.
func TestMonthsOnCertificatesOfTheService(t *testing.T) {
	engines := []string{"mqtt", "amqp", "http"}
	if !testkit.Long() {
		engines = engines[:1] // TestTheCertificateGoesBeforeTheKey has a renewal over each
	}
	for _, name := range engines {
		t.Run(name, func(t *testing.T) {
			inWorld(t, nil, func(t *testing.T, w *world) {
				w.enroll()
				w.store.record = nil
				r := w.renewer(dpscert.Options{ServiceOnly: name == "mqtt"})
				c := w.open(name, r)
				require.Equal(t, []dpscert.Step{dpscert.StepRequesting, dpscert.StepRenewed}, w.steps(),
					"the first one before the first connect")
				const days = 45
				for i := range days {
					require.NoError(t, c.Send(t.Context(), &transport.Message{ID: fmt.Sprint(i), Body: fmt.Append(nil, i)}))
					require.Equal(t, "reg-1", w.leaf(r).Subject.CommonName)
					time.Sleep(day)
				}
				require.NoError(t, c.Close())
				registers := 0
				for _, q := range w.dps.Requests() {
					if q.Operation.String() == "register" {
						registers++
					}
				}
				require.Equal(t, 3, registers)
				require.Empty(t, w.hub.CertificateRequests())
				require.Len(t, w.hub.Messages(), days)
				for _, s := range w.statuses() {
					require.Nil(t, s.Err, "%v", s)
				}
				renewals := 0
				for _, s := range w.statuses() {
					if s.Reason == device.ReasonTokenRenewal {
						renewals++
					}
				}
				require.True(t, renewals == 1 || renewals == 2, "%d; the time has jitter", renewals)
			})
		})
	}
}

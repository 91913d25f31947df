package testbroker_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

// A client repeats each patch until it has the answer. Under any faults, the log has all executed
// patches, the versions have no gaps, and the twin has the result of the last patch.
func TestTwinsUnderFaults(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, d := hubtest.NewHub(t, &testbroker.Options{Seed: seed + 1})
				draw := rand.New(rand.NewPCG(seed, 1))
				kinds := []fault.Kind{
					fault.DropBeforeTwin, fault.RefuseTwin, fault.DropAfterTwin, fault.SwallowTwin,
					fault.SlowTwin, fault.MisnameTwin,
					fault.DuplicateTwin, fault.SwallowDesired, fault.DuplicateDesired, fault.SlowDesired,
					fault.DropAfterDesired,
				}
				for _, k := range kinds {
					h.Inject(fault.Fault{Kind: k, Times: -1, Probability: 0.08,
						Delay: time.Duration(1+draw.IntN(9)) * time.Second})
				}
				const patches = 60
				var w *hubtest.Wire
				rid := 0
				try := func(n int) bool { // reports whether the patch was answered
					if w == nil {
						w = hubtest.Login(t, h, d)
						w.Subscribe(0, twinResults, desiredTopics)
					}
					rid++
					want := fmt.Sprintf("$iothub/twin/res/204/?$rid=%d&", rid)
					w.Send(hubtest.PublishBytes(0, 0, fmt.Sprint(twinPatch, rid), fmt.Sprintf(`{"n":%d}`, n)))
					w.Conn.SetReadDeadline(time.Now().Add(5 * time.Second))
					for {
						_, body, err := w.Read()
						if err != nil { // also when the answer timed out: then it reconnects
							w.Conn.Close()
							w = nil
							return false
						}
						if strings.Contains(string(body), want) {
							return true
						}
					}
				}
				for n := range patches {
					_, err := h.PatchDesired("dev-1", fmt.Sprintf(`{"n":%d}`, n))
					require.NoError(t, err)
					for !try(n) {
					}
				}
				done := int64(1)
				last := ""
				for _, r := range h.TwinLog("dev-1") {
					if r.Status == 204 {
						done++
						require.Equal(t, done, r.Version)
						last = string(r.Body)
					}
				}
				twin, err := h.Twin("dev-1")
				require.NoError(t, err)
				require.Equal(t, done, twin.ReportedVersion)
				require.Equal(t, last, string(twin.Reported))
				require.Equal(t, fmt.Sprintf(`{"n":%d}`, patches-1), last)
				require.Greater(t, len(h.TwinLog("dev-1")), patches, "some were repeated")
				require.EqualValues(t, patches+1, twin.DesiredVersion)
			})
		})
	}
}

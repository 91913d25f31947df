package sim_test

import (
	"os"
	"testing"
	"testing/cryptotest"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/testkit"
)

// replayed reports whether the test runs under internal/cmd/replay.
var replayed = os.Getenv("HUBLINE_REPLAY") != ""

// Under internal/cmd/replay the same seed gives the same run, event by event.
func TestTheSameSeedIsTheSameRun(t *testing.T) {
	if !replayed {
		t.Skip("runs with: go run ./internal/cmd/replay ./internal/sim -run " + t.Name())
	}
	withEachEngine(t, func(t *testing.T, e engine) {
		for seed := uint64(1); seed <= 10; seed++ {
			p := drawPlan(seed, e)
			var first []string
			for i := range 4 {
				cryptotest.SetGlobalRandom(t, seed)
				testkit.Bubble(t, func(t *testing.T) {
					w := play(t, p)
					if i == 0 { // initializes packages, which draws
						return
					}
					if first == nil {
						first = w.events
					}
					require.Equal(t, first, w.events, "seed %d", seed)
				})
			}
		}
	})
}

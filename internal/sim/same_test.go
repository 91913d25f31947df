package sim_test

import (
	"os"
	"testing"

	"github.com/hubline-iot/hubline/internal/bounded"
	"github.com/stretchr/testify/require"
)

// Under internal/cmd/replay the same seed is the same run, event by event. Plans with TLS are left
// out: their records have random sizes.
func TestTheSameSeedIsTheSameRun(t *testing.T) {
	if os.Getenv("HUBLINE_REPLAY") == "" {
		t.Skip("runs with: go run ./internal/cmd/replay ./internal/sim -run " + t.Name())
	}
	withEachEngine(t, func(t *testing.T, e engine) {
		for seed := uint64(1); seed <= 10; seed++ {
			p := drawPlan(seed, e)
			if p.tls {
				continue
			}
			var first []string
			for range 3 {
				bounded.Test(t, func(t *testing.T) {
					w := play(t, p)
					if first == nil {
						first = w.events
					}
					require.Equal(t, first, w.events, "seed %d", seed)
				})
			}
		}
	})
}

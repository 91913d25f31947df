package fleet_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/fleet"
)

// After a restart the recommended spread brings 99 % of the fleet back as soon as 10 s do, or some
// per cent later, with a smaller peak and less waste. The spread of the next size takes longer.
func TestTheRecommendedSpreadFitsTheSize(t *testing.T) {
	figures(t)
	for _, c := range []struct {
		devices int
		spread  time.Duration
		next    time.Duration
	}{
		{3000, 10 * time.Second, 30 * time.Second}, {5000, 30 * time.Second, time.Minute},
		{9000, 30 * time.Second, time.Minute}, {10_000, time.Minute, 3 * time.Minute},
	} {
		s := fleet.HubRestart(c.devices)
		rules := fleet.Recommended(c.devices)
		require.Equal(t, c.spread, rules.ReconnectSpread)
		recommended := run(t, s, rules, nil)
		rules.ReconnectSpread = 10 * time.Second
		short := run(t, s, rules, nil)
		rules.ReconnectSpread = c.next
		next := run(t, s, rules, nil)
		t.Logf("%d devices: 99 %% after %v, with 10 s %v, with %v %v; wasted %d, %d, %d", c.devices, recommended.Back99,
			short.Back99, c.next, next.Back99, recommended.Wasted, short.Wasted, next.Wasted)
		require.Less(t, recommended.Back99, short.Back99*11/10)
		require.Less(t, recommended.Back99, next.Back99*9/10)
		if c.spread > 10*time.Second {
			require.Less(t, recommended.Wasted, short.Wasted/2)
			require.Less(t, recommended.Peak, short.Peak/2)
		}
	}
}

package fleet_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/fleet"
)

// Devices send at random moments, whatever the rate of the hour: a day without a fault has no
// refused messages, even if the hub takes only a little more than its busiest hour needs.
func TestADayWithoutAFaultIsQuiet(t *testing.T) {
	for _, devices := range []int{5000, 100_000} {
		s := fleet.Day(devices)
		s.Faults = nil
		peak := float64(devices) * 2.2 / s.Telemetry.Every.Seconds()
		limit := float64(s.Hub.Units) * 12
		require.GreaterOrEqual(t, max(limit, 100), 2*peak, "the declared hub takes twice the busiest hour")
		if devices > 5000 {
			continue
		}
		s.Hub.Messages, s.Hub.RTT = 1.3*peak, time.Second // fewer steps
		r := run(t, s, fleet.Rules{}, nil)
		require.Zero(t, r.Attempts.Begun)
		require.Less(t, r.Messages.MostQueued, int64(200), "no burst")
	}
}

package times_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/times"
)

func TestTheDelayOfAReleaseGrowsWithEachDelivery(t *testing.T) {
	now := time.Now()
	for earlier, seconds := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
		require.Equal(t, now.Add(seconds*time.Second), times.ReleaseAt(now, now, earlier), earlier)
	}
	require.Equal(t, now.Add(time.Second), times.ReleaseAt(now, now, math.MinInt))
	require.Equal(t, now.Add(30*time.Second), times.ReleaseAt(now, now, math.MaxInt))
}

func TestAReleaseDoesNotWaitForTheEndOfTheLock(t *testing.T) {
	now := time.Now()
	for held, seconds := range map[time.Duration]time.Duration{0: 30, 20: 30, 30: 20, 49: 1, 50: 0, 70: -20} {
		since := now.Add(-held * time.Second)
		require.Equal(t, now.Add(seconds*time.Second), times.ReleaseAt(now, since, 9), held)
	}
}

package device

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/testkit"
)

// Callers use the longest duration for no limit; sums with it must not overflow.
func TestDurationsAreBounded(t *testing.T) {
	var o Options
	require.NotEmpty(t, testkit.FillDurations(&o))
	s, err := newSettings(&o)
	require.NoError(t, err)
	unbounded, durations := testkit.UncappedDurations(&s.Options)
	require.Empty(t, unbounded, "use times.Cap")
	require.NotZero(t, durations)
}

package device

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/timespan/spantest"
)

// Callers use the longest duration for no limit; sums with it must not overflow.
func TestDurationsAreBounded(t *testing.T) {
	var o Options
	require.NotEmpty(t, spantest.Fill(&o))
	s, err := newSettings(&o)
	require.NoError(t, err)
	unbounded, durations := spantest.Unbounded(&s.Options)
	require.Empty(t, unbounded, "use timespan.Cap")
	require.NotZero(t, durations)
}

package mqtt

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/timespan/spantest"
)

// Callers give the longest duration there is for no limit; a sum with it would be negative.
func TestDurationsAreBounded(t *testing.T) {
	var o Options
	require.NotEmpty(t, spantest.Fill(&o, "KeepAlive"))
	r, err := o.resolve()
	require.NoError(t, err)
	unbounded, durations := spantest.Unbounded(&r)
	require.Empty(t, unbounded, "use timespan.Cap")
	require.NotZero(t, durations)
}

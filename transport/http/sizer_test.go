package http

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestOneSlowBatchDoesNotKeepMessagesApart(t *testing.T) {
	const size, trip = 8 << 10, 100 * time.Millisecond
	var z sizer
	z.observe(size, trip, true)
	z.observe(initialBatch, 5*trip, true) // the hub hesitated
	require.True(t, z.alone(size))
	for n := 0; z.alone(size); n++ {
		require.Less(t, n, 2*measureAgain)
		z.observe(size, trip, true) // as the slow batch lets expect
	}
	z.observe(initialBatch, trip, true)
	require.False(t, z.alone(size))
}

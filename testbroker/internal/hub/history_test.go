package hub_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker/internal/hub"
)

func TestHistoriesMoveSeldom(t *testing.T) {
	for _, keep := range []int{1, 2, 3, 100, 4096} {
		const n = 100_000
		moves, room := hub.HistoryMoves(keep, n)
		require.Less(t, moves*keep, 2*n)
		require.LessOrEqual(t, room, 2*keep+keep/4+200)
	}
}

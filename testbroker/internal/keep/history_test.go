package keep_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker/internal/keep"
)

func TestHistoriesMoveSeldom(t *testing.T) {
	for _, most := range []int{1, 2, 3, 100, 4096} {
		const n = 100_000
		l := keep.History[int]{Keep: most}
		moves, room := 0, 0
		for i := range n {
			before := cap(l.Entries)
			l.Add(i)
			if cap(l.Entries) > before {
				moves++
				room = max(room, cap(l.Entries)+1)
			}
		}
		require.Less(t, moves*most, 2*n)
		require.LessOrEqual(t, room, 2*most+most/4+200)
	}
}

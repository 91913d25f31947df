package messageid_test

import (
	"strings"
	"testing"

	"github.com/hubline-iot/hubline/internal/messageid"
	"github.com/stretchr/testify/require"
)

func TestIDsCountAndAreUnique(t *testing.T) {
	s := messageid.NewSource("p")
	seen := map[string]bool{}
	var all []string
	for range 50_000 {
		id := s.Next()
		require.False(t, seen[id], id)
		seen[id] = true
		all = append(all, id)
	}
	require.Equal(t, []string{"p-1", "p-2", "p-3"}, all[:3])
	require.Equal(t, []string{"p-z", "p-10", "p-11"}, all[34:37])
	require.Equal(t, []string{"p-zzz", "p-1000"}, all[36*36*36-2:36*36*36])
}

func TestASourceWithoutPrefixMakesNoIDs(t *testing.T) {
	var s messageid.Source
	require.False(t, s.On())
	require.Empty(t, s.Next())
}

func TestManyIDsShareAnAllocation(t *testing.T) {
	s := messageid.NewSource(messageid.Random())
	for range 1000 {
		s.Next()
	}
	require.Less(t, testing.AllocsPerRun(6400, func() { s.Next() }), 0.1)
}

func TestRandomPrefixesDifferAndAreValid(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		p := messageid.Random()
		require.Len(t, p, 8)
		require.True(t, messageid.Valid(p), p)
		require.False(t, seen[p], p)
		seen[p] = true
	}
	for p, ok := range map[string]bool{"": true, "a-Z.0_~": true, "a b": false, "a/b": false, "ä": false, "$": false,
		strings.Repeat("x", 64): true, strings.Repeat("x", 65): false} {
		require.Equal(t, ok, messageid.Valid(p), p)
	}
}

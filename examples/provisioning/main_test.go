package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/testkit"
)

func TestNoMessageIsLost(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		require.NoError(t, run(t.Context()))
	})
}

// The ledger finds lost messages and second copies.
func TestTheLedgerComparesIDs(t *testing.T) {
	l := count("x", []string{"1", "2", "3"}, []string{"1", "other"}, []string{"1", "2", "2"})
	require.Equal(t, ledger{name: "x", sent: 3, atA: 1, atB: 3, lost: 1, twice: 2}, l)
	require.ErrorContains(t, l.print(), "1 messages were lost")
	require.NoError(t, count("x", []string{"1"}, []string{"1"}, nil).print())
}

package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The ledger finds missing or changed readings, and nothing else.
func TestLedgerComparesNumberAndBody(t *testing.T) {
	r := newReadings(3)
	r.accepted = 3
	r.results = make([]error, 3)
	all := []entry{{"1", r.messages[0].Body}, {"2", r.messages[1].Body}, {"3", r.messages[2].Body}}
	require.NoError(t, r.check(all))
	require.NoError(t, r.check(append(all, all[1])), "a duplicate is no loss")
	require.ErrorContains(t, r.check(all[:2]), "1 readings were lost")
	require.ErrorContains(t, r.check(append(all, entry{"2", []byte("other")})), "corrupted")
	require.ErrorContains(t, r.check(append(all, entry{"4", nil})), "corrupted")
}

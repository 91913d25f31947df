package main

import (
	"testing"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/stretchr/testify/require"
)

// A run that ends before the schedule does is no failure, unless it was to be sabotaged.
func TestFaultsOfAShortRunAreNotMissing(t *testing.T) {
	hub, err := testbroker.New(nil)
	require.NoError(t, err)
	defer hub.Close()
	f := &faults{steps: schedule[:2], injected: make([]*testbroker.Injected, 2)}
	f.injected[0] = hub.Inject(f.steps[0].fault)
	require.NoError(t, f.missing())
	f.injected[1] = hub.Inject(f.steps[1].fault)
	require.ErrorContains(t, f.missing(), f.steps[0].what+"; "+f.steps[1].what)
	f.steps, f.injected = append(f.steps[:2:2], sabotage), append(f.injected, nil)
	require.EqualError(t, f.missing(), "scheduled faults that did not happen: "+sabotage.what)
}

// The ledger finds missing or changed readings, and nothing else.
func TestLedgerComparesNumberAndBody(t *testing.T) {
	r := newReadings(3)
	r.accepted = 3
	r.results = make([]error, 3)
	all := []hubdata.Message{{MessageID: "1", Body: r.messages[0].Body}, {MessageID: "2", Body: r.messages[1].Body},
		{MessageID: "3", Body: r.messages[2].Body}}
	require.NoError(t, r.check(all))
	require.NoError(t, r.check(append(all, all[1])), "a duplicate is no loss")
	require.ErrorContains(t, r.check(all[:2]), "1 readings were lost")
	require.ErrorContains(t, r.check(append(all, hubdata.Message{MessageID: "2", Body: []byte("other")})), "corrupted")
	require.ErrorContains(t, r.check(append(all, hubdata.Message{MessageID: "4"})), "corrupted")
}

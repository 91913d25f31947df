package keep_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/keep"
)

// batches are a Store that keeps each write.
type batches struct{ all [][]hubdata.Record }

func (b *batches) Load(func(hubdata.Record) error) error { return nil }

func (b *batches) Save(changes []hubdata.Record) error {
	b.all = append(b.all, slices.Clone(changes))
	return nil
}

// A record whose end becomes visible during a write leaves the store with the record that comes in
// its place, so a kill loses neither.
func TestAReplacedRecordLeavesWithItsSuccessor(t *testing.T) {
	store := &batches{}
	var s keep.Saver
	s.Init(store, func(err error) { panic(err) })
	var outcome []byte
	s.Add("message", func(string) []byte {
		if outcome == nil {
			outcome = []byte("completed")
			s.Touch("outcome", "1")
			s.Touch("message", "1")
		}
		return nil
	}, nil)
	s.Add("outcome", func(string) []byte { return outcome }, nil)
	s.Start()
	s.Touch("message", "1")
	s.End()
	require.Equal(t, []hubdata.Record{{Table: "message", Key: "1"},
		{Table: "outcome", Key: "1", Value: []byte("completed")}}, store.all[0])
}

package hub

import (
	"cmp"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

type recordName struct{ table, key string }

// records are a Store in memory.
type records map[recordName][]byte

func (s records) Load(each func(hubdata.Record) error) error {
	for _, name := range slices.SortedFunc(maps.Keys(s), func(a, b recordName) int {
		return cmp.Or(cmp.Compare(a.table, b.table), cmp.Compare(a.key, b.key))
	}) {
		if err := each(hubdata.Record{Table: name.table, Key: name.key, Value: s[name]}); err != nil {
			return err
		}
	}
	return nil
}

func (s records) Save(changes []hubdata.Record) error {
	for _, r := range changes {
		s[recordName{r.Table, r.Key}] = r.Value
		maps.DeleteFunc(s, func(name recordName, _ []byte) bool {
			return r.Value == nil && name.table == r.Table && (r.Key == "" || r.Key == name.key)
		})
	}
	return nil
}

// Events have the same numbers after a restart, and the next one has the next number, also in a
// partition whose events are all forgotten.
func TestEventsKeepTheirNumbersOverARestart(t *testing.T) {
	s := records{}
	open := func() *Hub {
		h, err := New(&Options{Store: s, Keep: 3})
		require.NoError(t, err)
		require.NoError(t, h.Restore())
		return h
	}
	send := func(h *Hub, device string, n int) (partition int) {
		for range n {
			h.Store(hubdata.Message{DeviceID: device, Body: []byte("x")})
		}
		return h.Telemetry.PartitionOf(device)
	}
	h := open()
	quiet := send(h, "dev-1", 2)
	busy := quiet
	for i := 0; busy == quiet; i++ {
		busy = send(h, string(rune('a'+i)), 5)
	}
	wantQuiet, wantBusy := h.Telemetry.State(quiet), h.Telemetry.State(busy)
	require.EqualValues(t, 4, wantBusy.Last)
	require.True(t, wantQuiet.Empty)
	require.NoError(t, h.Close())

	h = open()
	require.Equal(t, wantBusy.Begin, h.Telemetry.State(busy).Begin)
	require.Equal(t, wantBusy.Last, h.Telemetry.State(busy).Last)
	send(h, "dev-1", 1)
	require.Equal(t, wantQuiet.Last+1, h.Telemetry.State(quiet).Last)
	require.NoError(t, h.Close())
}

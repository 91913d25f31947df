package agent

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// full is a state with a value in each field.
func full() state {
	result := Result{Outcome: Failed, Origin: DeviceFailure, Code: -7, Extended: []uint32{1, 1<<32 - 1}, Details: "d"}
	return state{
		memo: Memo{"a", "b", "c"}, installed: UpdateID{"p", "n", "1"}, ended: []string{"w1", "w2"}, latest: result,
		reports: []Report{{WorkflowID: "w2", Installed: UpdateID{"p", "n", "1"}, Result: result,
			Steps: []Result{result}}},
		work: &workflow{
			offer: Offer{WorkflowID: "w3", Manifest: []byte("{}"), Signature: "s", RootKeysURL: "k",
				URLs: map[string]string{"f": "u", "g": "v"}},
			before: UpdateID{"p", "n", "0"}, phase: PhaseApply, step: 3, restart: true,
			starts: 2, have: 1 << 40,
			results: []Result{result, {}}, final: result,
		},
	}
}

func TestTheStateIsStoredWhole(t *testing.T) {
	want := full()
	text := want.encode()
	var got state
	require.True(t, got.decode(text))
	require.Equal(t, want, got)
	for i := range text {
		changed := append([]byte(nil), text...)
		changed[i] ^= 4
		require.False(t, new(state).decode(changed), "byte %d", i)
		require.False(t, new(state).decode(text[:i]), "%d bytes", i)
	}
	empty := new(state).encode()
	require.True(t, got.decode(empty))
}

// Damage that has the right check does no harm.
func FuzzState(f *testing.F) {
	s := full()
	text := s.encode()
	f.Add(text[len(stateMagic) : len(text)-checkBytes])
	f.Fuzz(func(t *testing.T, fields []byte) {
		var s state
		d := append([]byte(stateMagic), fields...)
		if !s.decode(sealed(d)) {
			return
		}
		s.load()
		var again state
		if !again.decode(s.encode()) {
			t.Errorf("not decoded again: %+v", s)
		}
	})
}

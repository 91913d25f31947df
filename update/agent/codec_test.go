package agent

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// full is a state with a value in each field.
func full() state {
	result := Result{Outcome: OutcomeFailed, Origin: OriginDevice, Code: -7, Extended: []uint32{1, 1<<32 - 1},
		Details: "d"}
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

// A program without the count of starts reads and writes this: it is replaced by an update, and may
// come back if the update fails its trial.
func TestAStateWithoutStartsIsReadAndWritten(t *testing.T) {
	const older = "HUBAGT01\x02a\x02b\x02c\x02p\x02n\x021\x04\x04w1\x04w2\x04\f\r\x04\x02\xfe\xff\xff\xff\x1f\x02d" +
		"\x02\x04w2\x02p\x02n\x021\x04\f\r\x04\x02\xfe\xff\xff\xff\x1f\x02d\x02\x04\f\r\x04\x02\xfe\xff\xff\xff\x1f\x02d" +
		"\x02\x04w3\x04{}\x02s\x02k\x02\x02f\x02u\x02p\x02n\x020\n\x06\x02\x04\x04\f\r\x04\x02\xfe\xff\xff\xff\x1f\x02d" +
		"\x00\x00\x00\x00\x00\x04\f\r\x04\x02\xfe\xff\xff\xff\x1f\x02dd\x1a=ds\x9c\xb4\x94"
	want := full()
	delete(want.work.offer.URLs, "g")
	want.work.starts, want.work.have = 0, 0
	var got state
	require.True(t, got.decode([]byte(older)))
	require.Equal(t, want, got)
	require.Equal(t, older, string(got.encode()))
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

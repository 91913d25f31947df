package update

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/flashsim"
	"github.com/hubline-iot/hubline/transport"
)

var storeArea = Slot{First: 1, Blocks: 4}

func openStore(t *testing.T, f Flash) *Store {
	t.Helper()
	s, err := NewStore(f, storeArea)
	require.NoError(t, err)
	return s
}

func TestAStoreHasTheLatestText(t *testing.T) {
	for _, write := range []int64{1, 8, 64} {
		f := flashsim.New(5*eraseBlock, write, eraseBlock)
		text, err := openStore(t, f).Load()
		require.NoError(t, err)
		require.Nil(t, text)
		for n := range 9 {
			want := content(uint64(n), n*53)
			require.NoError(t, openStore(t, f).Save(want), "write blocks of %d", write)
			text, err := openStore(t, f).Load()
			require.NoError(t, err)
			require.Equal(t, want, text)
		}
	}
}

func TestAStoreRefusesWhatDoesNotFit(t *testing.T) {
	f := flashsim.New(5*eraseBlock, 8, eraseBlock)
	s := openStore(t, f)
	require.NoError(t, s.Save([]byte("old")))
	require.NoError(t, s.Save(make([]byte, 2*eraseBlock-storeHead)))
	require.ErrorIs(t, s.Save(make([]byte, 2*eraseBlock-storeHead+1)), transport.TooLarge)
	for _, area := range []Slot{{First: 1, Blocks: 3}, {First: 2, Blocks: 4}, {First: -1, Blocks: 2}, {}} {
		_, err := NewStore(f, area)
		require.ErrorIs(t, err, transport.Invalid)
	}
	_, err := NewStore(nil, storeArea)
	require.ErrorIs(t, err, transport.Invalid)
}

// Whatever write or erase a power cut ends, the store has the old or the new text, and takes the
// next one.
func TestAStoreSurvivesAPowerCutInEveryWrite(t *testing.T) {
	const saves = 3
	for _, tear := range flashsim.Tears {
		for n := 1; ; n++ {
			f := flashsim.New(5*eraseBlock, 8, eraseBlock)
			require.NoError(t, openStore(t, f).Save([]byte("text 0")))
			f.CutAt(n, tear, uint64(n))
			s, saved := openStore(t, f), 0
			for saved < saves && s.Save(fmt.Appendf(nil, "text %d", saved+1)) == nil {
				saved++
			}
			if saved == saves {
				require.Greater(t, n, 3*saves)
				break
			}
			f.Restore()
			text, err := openStore(t, f).Load()
			require.NoError(t, err)
			require.Contains(t, []string{fmt.Sprintf("text %d", saved), fmt.Sprintf("text %d", saved+1)}, string(text),
				"%s in operation %d", tear, n)
			require.NoError(t, openStore(t, f).Save([]byte("next")))
			text, err = openStore(t, f).Load()
			require.NoError(t, err)
			require.Equal(t, "next", string(text))
		}
	}
}

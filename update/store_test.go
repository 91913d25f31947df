package update

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/flashsim"
	"github.com/hubline-iot/hubline/transport"
)

// storeFrame is what a value takes besides its bytes.
const storeFrame = valueHeader + checkBytes

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
	require.NoError(t, s.Save(make([]byte, 2*eraseBlock-storeFrame)))
	require.ErrorIs(t, s.Save(make([]byte, 2*eraseBlock-storeFrame+1)), transport.TooLarge)
	for _, area := range []Slot{{First: 1, Blocks: 3}, {First: 2, Blocks: 4}, {First: -1, Blocks: 2}, {},
		{First: 0, Blocks: 1 << 62}} {
		_, err := NewStore(f, area)
		require.ErrorIs(t, err, transport.Invalid)
	}
	_, err := NewStore(nil, storeArea)
	require.ErrorIs(t, err, transport.Invalid)
	f.CutAt(1, flashsim.Nothing, 1)
	require.Error(t, s.Save(nil))
	_, err = NewStore(f, storeArea)
	require.Error(t, err, "the flash cannot be read")
}

// Whatever write or erase a power cut ends, the store has the old or the new text, and takes the
// next one.
func TestAStoreSurvivesAPowerCutInEveryWrite(t *testing.T) {
	const saves = 40 // each half fills up
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

// Values follow one another in a half, so that an erase does not come with each of them.
func TestAStoreIsGentleToTheFlash(t *testing.T) {
	f := flashsim.New(5*eraseBlock, 8, eraseBlock)
	s := openStore(t, f)
	for n := range 100 {
		require.NoError(t, s.Save(fmt.Appendf(nil, "text %d", n)))
	}
	least, most := f.Wear()
	require.Zero(t, least, "the first block is not the store's")
	require.LessOrEqual(t, most, 6)
}

// Whatever is in the blocks, the store opens and takes a value.
func FuzzNewStore(f *testing.F) {
	flash := flashsim.New(2048, 16, 1024)
	area := Slot{First: 0, Blocks: 2}
	s, err := NewStore(flash, area)
	require.NoError(f, err)
	require.NoError(f, s.Save([]byte("value")))
	seed := make([]byte, 1024)
	_, err = flash.ReadAt(seed, 1024)
	require.NoError(f, err)
	f.Add(seed)
	f.Fuzz(func(t *testing.T, content []byte) {
		flash := flashsim.New(2048, 16, 1024)
		content = append(content, make([]byte, 1024)...)[:1024]
		_, err := flash.WriteAt(content, 0)
		require.NoError(t, err)
		s, err := NewStore(flash, area)
		require.NoError(t, err)
		_, err = s.Load()
		require.NoError(t, err)
		require.NoError(t, s.Save([]byte("next")))
		got, err := s.Load()
		require.NoError(t, err)
		require.Equal(t, "next", string(got))
	})
}

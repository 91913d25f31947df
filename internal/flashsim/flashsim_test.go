package flashsim

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func read(t *testing.T, f *Flash, off int64, n int) []byte {
	t.Helper()
	p := make([]byte, n)
	got, err := f.ReadAt(p, off)
	require.NoError(t, err)
	require.Equal(t, n, got)
	return p
}

func TestAWriteNeedsAnErase(t *testing.T) {
	f := New(64, 4, 16)
	require.Equal(t, []byte{0xff, 0xff}, read(t, f, 17, 2))
	n, err := f.WriteAt([]byte("abcdefgh"), 16)
	require.NoError(t, err)
	require.Equal(t, 8, n)
	require.Equal(t, "cdef", string(read(t, f, 18, 4)))

	n, err = f.WriteAt([]byte("12345678"), 12)
	require.ErrorIs(t, err, ErrMisuse)
	require.Equal(t, 4, n, "the first block was free")
	require.NoError(t, f.EraseBlocks(1, 1))
	_, err = f.WriteAt([]byte("5678"), 16)
	require.NoError(t, err)
	require.Equal(t, "12345678\xff", string(read(t, f, 12, 9)))
	_, most := f.Wear()
	require.Equal(t, 1, most)
	require.Equal(t, 5, f.Operations())
}

func TestWhatNoChipDoesIsRefused(t *testing.T) {
	f := New(64, 4, 16)
	for _, at := range []struct{ off, n int64 }{{-4, 4}, {2, 4}, {0, 3}, {64, 4}, {60, 8}} {
		_, err := f.WriteAt(make([]byte, at.n), at.off)
		require.ErrorIs(t, err, ErrMisuse, "%v", at)
	}
	for _, at := range []struct{ start, n int64 }{{-1, 1}, {4, 1}, {0, 5}, {0, -1}} {
		require.ErrorIs(t, f.EraseBlocks(at.start, at.n), ErrMisuse, "%v", at)
	}
	_, err := f.ReadAt(make([]byte, 2), 63)
	require.ErrorIs(t, err, ErrMisuse)
	require.Zero(t, f.Operations())
}

func TestACutLeavesPartOfTheOperation(t *testing.T) {
	for _, size := range []struct{ write, erase int64 }{{4, 16}, {16, 16}} {
		for _, tear := range Tears {
			seen := map[string]bool{}
			for seed := range uint64(50) {
				f := New(64, size.write, size.erase)
				f.CutAt(2, tear, seed)
				_, err := f.WriteAt(bytes.Repeat([]byte{0}, int(2*size.write)), 16)
				require.ErrorIs(t, err, ErrPower)
				require.True(t, f.Off())
				_, err = f.ReadAt(make([]byte, 1), 0)
				require.ErrorIs(t, err, ErrPower)
				require.ErrorIs(t, f.EraseBlocks(0, 1), ErrPower)
				f.Restore()
				require.Equal(t, make([]byte, size.write), read(t, f, 16, int(size.write)), "the first write was complete")
				seen[string(read(t, f, 16+size.write, int(size.write)))] = true
				_, err = f.WriteAt(make([]byte, size.write), 16+size.write)
				if tear == Nothing {
					require.NoError(t, err, "the block is erased")
				} else {
					require.ErrorIs(t, err, ErrMisuse, "the block must be erased")
				}
			}
			empty := string(bytes.Repeat([]byte{0xff}, int(size.write)))
			switch tear {
			case Nothing:
				require.Equal(t, map[string]bool{empty: true}, seen)
			case Whole:
				require.Equal(t, map[string]bool{string(make([]byte, size.write)): true}, seen)
			case Prefix, Bits:
				require.Greater(t, len(seen), 3)
			}
		}
	}
}

func TestATornEraseMustBeRepeated(t *testing.T) {
	f := New(32, 4, 16)
	_, err := f.WriteAt([]byte("abcd"), 0)
	require.NoError(t, err)
	f.CutAt(1, Prefix, 1)
	require.ErrorIs(t, f.EraseBlocks(0, 1), ErrPower)
	f.Restore()
	_, err = f.WriteAt([]byte("efgh"), 8)
	require.ErrorIs(t, err, ErrMisuse)
	require.NoError(t, f.EraseBlocks(0, 1))
	_, err = f.WriteAt([]byte("efgh"), 8)
	require.NoError(t, err)
}

func TestACloneHasItsOwnContent(t *testing.T) {
	f := New(32, 4, 16)
	f.CutAt(2, Whole, 1)
	_, err := f.WriteAt([]byte("abcd"), 0)
	require.NoError(t, err)
	c := f.Clone()
	_, err = c.WriteAt([]byte("efgh"), 4)
	require.NoError(t, err, "the cut is not cloned")
	c.Damage(0, 1)
	require.Equal(t, "abcd\xff", string(read(t, f, 0, 5)))
	require.Equal(t, "`bcdefgh", string(read(t, c, 0, 8)))
}

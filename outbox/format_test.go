package outbox_test

import (
	"encoding/binary"
	"hash/crc32"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/outbox"
	"github.com/hubline-iot/hubline/transport"
)

// rewrite sets a byte of message n's encoding, with valid checksums, as a later program might have
// written it. It returns the file as it was.
func rewrite(t *testing.T, d *disk, n, at int, value byte) (path string, before []byte) {
	path = d.segments(folder)[0]
	_, salt, ok := outbox.ParseName(filepath.Base(path))
	require.True(t, ok)
	_, starts := segmentOf(t, n+1)
	d.edit(path, func(b []byte) []byte {
		before = slices.Clone(b)
		record := b[starts[n]:]
		message := record[outbox.RecordHead:][:binary.BigEndian.Uint32(record[4:])]
		message[at] = value
		binary.BigEndian.PutUint32(record[16:], crc32.Checksum(message, crc32.MakeTable(crc32.Castagnoli)))
		outbox.SealRecord(record, salt, int64(starts[n]), binary.BigEndian.Uint64(record[8:]))
		return b
	})
	return path, before
}

// A message of a later program is intact. It is not damaged, and must not be skipped.
func TestOpenRefusesAFormatThatItDoesNotKnow(t *testing.T) {
	for name, c := range map[string]struct {
		at    int
		value byte
	}{"version": {0, 3}, "an earlier version": {0, 1}, "flag": {1, 8}} {
		testkit.Run(t, name, func(t *testing.T) {
			d := newDisk()
			q := openOn(t, d, nil)
			put(t, q, 0, 6)
			require.NoError(t, q.Close())
			path, before := rewrite(t, d, 3, c.at, c.value)
			for range 2 {
				_, err := outbox.OpenOn(d, folder, nil)
				require.ErrorIs(t, err, transport.Unsupported)
				require.False(t, errfilter.Retryable(err))
				require.ErrorContains(t, err, path)
				require.ErrorContains(t, err, "format")
			}
			d.edit(path, func([]byte) []byte { return before }) // stands for the program that knows the format
			q = openOn(t, d, nil)
			require.Equal(t, ids(0, 6), take(t, q))
			require.Zero(t, q.Stats().Damaged)
			require.NoError(t, q.Close())
		})
	}
}

// A message that is done holds nothing up, whatever its format is.
func TestAnUnknownFormatOfAMessageThatIsDone(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		d := newDisk()
		q := openOn(t, d, nil)
		put(t, q, 0, 6)
		require.ErrorIs(t, ended(t, q, &taker{most: 4}), errEnough)
		require.NoError(t, q.Close())
		rewrite(t, d, 3, 0, 3)
		q = openOn(t, d, nil)
		require.Equal(t, ids(4, 6), take(t, q))
		require.Zero(t, q.Stats().Damaged)
		require.NoError(t, q.Close())
	})
}

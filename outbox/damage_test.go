package outbox_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/outbox"
	"github.com/hubline-iot/hubline/transport"
)

// A flipped bit loses its message and no other. The loss is counted once, whether Open or Run
// detects it, and the record never becomes another message.
func TestDamageIsNoticed(t *testing.T) {
	const n = 20
	for _, met := range []string{"Open", "Run"} {
		testkit.Run(t, met, func(t *testing.T) {
			whole, starts := segmentOf(t, n)
			for at := range whole {
				lost := 0
				for lost+1 < n && starts[lost+1] <= at {
					lost++
				}
				flip := func(b []byte) []byte { b[at] ^= 1 << (at % 8); return b }
				got, s := afterDamage(t, n, met == "Run", flip)
				require.Equal(t, slices.Delete(append(ids(0, n), "100"), lost, lost+1), got, "byte %d", at)
				require.EqualValues(t, 1, s.Damaged, "byte %d", at)
				require.Zero(t, s.Waiting)
			}
		})
	}
}

// segmentOf returns the segment of n messages, and the offset of each.
func segmentOf(t testing.TB, n int) (whole []byte, starts []int) {
	d := newDisk()
	q := openOn(t, d, nil)
	put(t, q, 0, n)
	require.NoError(t, q.Close())
	d.edit(d.segments(folder)[0], func(b []byte) []byte { whole = b; return b })
	for at := 0; at < len(whole); {
		starts = append(starts, at)
		at += outbox.RecordHead + int(binary.BigEndian.Uint32(whole[at+4:]))
	}
	require.Len(t, starts, n)
	return slices.Clone(whole), starts
}

// afterDamage damages a segment of n messages, before Open or, if late, before Run, puts message
// 100 behind them, and returns the messages from Run. Damage that Open detects is counted by Open.
func afterDamage(t testing.TB, n int, late bool, change func([]byte) []byte) ([]string, outbox.Stats) {
	d := newDisk()
	q := openOn(t, d, &outbox.Options{SyncEvery: -1})
	put(t, q, 0, n)
	path := d.segments(folder)[0]
	if late {
		d.edit(path, change)
	} else {
		require.NoError(t, q.Close())
		d.edit(path, change)
		q = openOn(t, d, &outbox.Options{SyncEvery: -1})
		require.NotZero(t, q.Stats().Damaged, "Open does not count it")
	}
	put(t, q, 100, 101)
	early := q.Stats()
	got := take(t, q)
	require.EqualValues(t, len(got)+int(q.Stats().Damaged-early.Damaged), early.Waiting, "what waits is counted truly")
	if !late {
		require.Equal(t, early.Damaged, q.Stats().Damaged, "counted twice")
	}
	s := q.Stats()
	require.NoError(t, q.Close())
	return got, s
}

// Damage of a larger part loses the messages in it.
func TestDamageOfAPartCostsItsMessages(t *testing.T) {
	const n = 200
	_, starts := segmentOf(t, n)
	for _, late := range []bool{false, true} {
		for name, fill := range map[string]byte{"zeros": 0, "ones": 0xff} {
			testkit.Run(t, fmt.Sprint(name, ", met by Run: ", late), func(t *testing.T) {
				got, s := afterDamage(t, n, late, func(b []byte) []byte {
					copy(b[starts[50]+3:], bytes.Repeat([]byte{fill}, starts[70]-starts[50]))
					return b
				})
				require.Equal(t, slices.Concat(ids(0, 50), ids(71, n), []string{"100"}), got)
				require.EqualValues(t, 21, s.Damaged)
			})
		}
	}
}

// A damaged record that is done does not lose the waiting records behind it.
func TestADamagedRecordThatIsDone(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		d := newDisk()
		q := openOn(t, d, nil)
		put(t, q, 0, 1000)
		require.ErrorIs(t, ended(t, q, &taker{most: 500}), errEnough)
		require.NoError(t, q.Close())
		d.edit(d.segments(folder)[0], func(b []byte) []byte { b[5] ^= 1; return b })
		q = openOn(t, d, nil)
		require.EqualValues(t, 500, q.Stats().Waiting)
		require.Zero(t, q.Stats().Damaged, "nothing that waits is damaged")
		require.Equal(t, ids(500, 1000), take(t, q))
		require.Zero(t, q.Stats().Damaged)
		require.NoError(t, q.Close())
	})
}

// Damage behind the last readable record of the active file blocks neither Flush nor new messages.
func TestDamageAtTheEndIsPassed(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		d := newDisk()
		q := openOn(t, d, nil)
		put(t, q, 0, 10)
		_, starts := segmentOf(t, 10)
		d.edit(d.segments(folder)[0], func(b []byte) []byte { clear(b[starts[7]:]); return b })
		require.Equal(t, ids(0, 7), take(t, q))
		require.EqualValues(t, 3, q.Stats().Damaged)
		put(t, q, 10, 12)
		require.Equal(t, ids(10, 12), take(t, q))
		require.EqualValues(t, 3, q.Stats().Damaged)
		require.NoError(t, q.Close())
	})
}

// Two swapped records are invalid: each is bound to its offset.
func TestARecordBelongsToItsPlace(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		_, starts := segmentOf(t, 9)
		got, s := afterDamage(t, 9, false, func(b []byte) []byte {
			size := starts[4] - starts[3]
			third, fourth := slices.Clone(b[starts[3]:][:size]), slices.Clone(b[starts[4]:][:size])
			copy(b[starts[3]:], fourth)
			copy(b[starts[4]:], third)
			return b
		})
		require.Equal(t, append(append(ids(0, 3), ids(5, 9)...), "100"), got)
		require.EqualValues(t, 2, s.Damaged)
	})
}

// Bytes of a message that look like a record are not read as one when the record around them is
// damaged.
func TestAMessageThatHoldsRecords(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		d := newDisk()
		q := openOn(t, d, nil)
		put(t, q, 0, 3)
		var whole []byte
		d.edit(d.segments(folder)[0], func(b []byte) []byte { whole = slices.Clone(b); return b })
		require.NoError(t, q.Put(t.Context(), &transport.Message{ID: "3", Body: whole}))
		put(t, q, 4, 6)
		require.NoError(t, q.Close())
		path := d.segments(folder)[0]
		_, salt, ok := outbox.ParseName(filepath.Base(path))
		require.True(t, ok)
		d.edit(path, func(b []byte) []byte {
			// The worst case: the records in the body have the right offset and salt for another file.
			inner := bytes.Index(b[len(whole):], whole) + len(whole)
			outbox.SealRecord(b[inner:], salt+1, int64(inner), 4)
			b[len(whole)+5] ^= 1
			return b
		})
		q = openOn(t, d, nil)
		require.Equal(t, append(ids(0, 3), ids(4, 6)...), take(t, q))
		require.EqualValues(t, 1, q.Stats().Damaged)
		require.NoError(t, q.Close())
	})
}

// A gap in the numbers that does not fit into the bytes before it means a wrong record, not a gap.
func TestAnImpossibleNumberIsDamage(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		d := newDisk()
		q := openOn(t, d, nil)
		put(t, q, 0, 5)
		require.NoError(t, q.Close())
		_, starts := segmentOf(t, 5)
		path := d.segments(folder)[0]
		_, salt, _ := outbox.ParseName(filepath.Base(path))
		d.edit(path, func(b []byte) []byte {
			outbox.SealRecord(b[starts[2]:], salt, int64(starts[2]), 1<<40)
			return b
		})
		q = openOn(t, d, nil)
		require.EqualValues(t, 1, q.Stats().Damaged)
		require.Equal(t, append(ids(0, 2), ids(3, 5)...), take(t, q))
		require.NoError(t, q.Close())
	})
}

// A number damaged behind a damaged record, where a gap is expected, hides no later message.
func TestANumberIsInTheChecksum(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		_, starts := segmentOf(t, 9)
		got, s := afterDamage(t, 9, false, func(b []byte) []byte {
			b[starts[3]] ^= 1
			b[starts[4]+15] ^= 1 // 4 becomes 5
			return b
		})
		require.Equal(t, append(append(ids(0, 3), ids(5, 9)...), "100"), got)
		require.EqualValues(t, 2, s.Damaged)
	})
}

// An unreadable sector loses the messages in it, and Open and Run continue.
func TestUnreadableSectors(t *testing.T) {
	const n = 500
	whole, starts := segmentOf(t, n)
	for _, late := range []bool{false, true} {
		for sector := range len(whole)/page + 1 {
			testkit.Run(t, fmt.Sprint("sector ", sector, ", met by Run: ", late), func(t *testing.T) {
				d := newDisk()
				q := openOn(t, d, nil)
				put(t, q, 0, n)
				if !late {
					require.NoError(t, q.Close())
				}
				d.spoil(d.segments(folder)[0], int64(sector*page), int64(sector*page+1))
				if !late {
					q = openOn(t, d, nil)
				}
				want, lost := []string(nil), 0
				for i := range n {
					end := len(whole)
					if i+1 < n {
						end = starts[i+1]
					}
					if starts[i] < (sector+1)*page && end > sector*page {
						lost++
						continue
					}
					want = append(want, strconv.Itoa(i))
				}
				require.Equal(t, want, take(t, q))
				require.EqualValues(t, lost, q.Stats().Damaged)
				require.NoError(t, q.Close())
			})
		}
	}
}

// Run waits for a disk that cannot be read for a while, and loses nothing. When that lasts, it
// skips the messages.
func TestADiskThatCannotBeReadForAWhile(t *testing.T) {
	const n = 12 // three files
	for name, row := range map[string]struct {
		span time.Duration
		lost int
	}{"for a second": {time.Second, 0}, "for 14 seconds": {14 * time.Second, 0}, "for an hour": {time.Hour, n}} {
		testkit.Run(t, name, func(t *testing.T) {
			d := newDisk()
			q := openOn(t, d, &outbox.Options{MaxBytes: 1 << 20})
			for i := range n {
				require.NoError(t, q.Put(t.Context(), quarter(i)))
			}
			require.NoError(t, q.Close())
			require.Len(t, d.segments(folder), 3)
			q = openOn(t, d, nil)
			begun := time.Now()
			d.on(func(o op) error {
				if o.name == "read" && strings.HasSuffix(o.path, ".messages") && time.Since(begun) < row.span {
					return errUnreadable
				}
				return nil
			})
			half, cancel := context.WithTimeout(t.Context(), time.Second/2)
			defer cancel()
			require.Equal(t, time.Second/2, took(func() {
				require.ErrorIs(t, q.Run(half, &taker{}), context.DeadlineExceeded)
			}))
			require.EqualValues(t, n, q.Stats().Waiting)
			require.Equal(t, ids(row.lost, n), take(t, q))
			require.EqualValues(t, row.lost, q.Stats().Damaged)
			require.LessOrEqual(t, time.Since(begun), time.Minute)
			require.NoError(t, q.Close())
		})
	}
}

// slowTaker takes a message every 19 s.
type slowTaker struct{ taker }

func (k *slowTaker) Enqueue(ctx context.Context, m *transport.Message, r *device.Receipt) error {
	time.Sleep(19 * time.Second)
	return k.taker.Enqueue(ctx, m, r)
}

// Each of several short failures within a file has time.
func TestADiskThatFailsAgainAndAgain(t *testing.T) {
	testkit.Run(t, "", func(t *testing.T) {
		const n = 12
		d := newDisk()
		q := openOn(t, d, &outbox.Options{MaxBytes: 1 << 20})
		for i := range n {
			require.NoError(t, q.Put(t.Context(), quarter(i)))
		}
		require.NoError(t, q.Close())
		q = openOn(t, d, nil)
		begun := time.Now()
		d.on(func(o op) error {
			if o.name == "read" && strings.HasSuffix(o.path, ".messages") && time.Since(begun)%(20*time.Second) < 2*time.Second {
				return errUnreadable
			}
			return nil
		})
		k := new(slowTaker)
		stop := start(q, k)
		require.ErrorIs(t, q.Flush(t.Context()), transport.Expired, "as the taker answers")
		require.ErrorIs(t, stop(), context.Canceled)
		require.Equal(t, ids(0, n), k.ids())
		require.Zero(t, q.Stats().Damaged)
		require.NoError(t, q.Close())
	})
}

// Segments that the disk cannot read, or with more unreadable bytes than one message, are kept for
// inspection; a torn message is deleted. The queue continues, and counts a gap correctly.
func TestUnreadableSegmentsAreKept(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		d := newDisk()
		var paths []string
		for life := range 4 {
			q := openOn(t, d, &outbox.Options{SyncEvery: -1})
			put(t, q, life*10, (life+1)*10)
			require.NoError(t, q.Close())
			paths = d.segments(folder)
			require.Len(t, paths, life+1)
		}
		d.spoil(paths[0], 0, 1<<20)
		d.edit(paths[1], func(b []byte) []byte { return make([]byte, 2<<20) })
		d.edit(paths[2], func(b []byte) []byte { clear(b); return b })
		q := openOn(t, d, nil)
		require.EqualValues(t, 30, q.Stats().Damaged)
		require.EqualValues(t, 10, q.Stats().Waiting)
		require.True(t, d.Exists(paths[0]+".damaged"))
		require.True(t, d.Exists(paths[1]+".damaged"))
		require.False(t, d.Exists(paths[2]) || d.Exists(paths[2]+".damaged"))
		require.Equal(t, ids(30, 40), take(t, q))
		require.EqualValues(t, 30, q.Stats().Damaged)
		require.NoError(t, q.Close())
		q = openOn(t, d, nil)
		require.Zero(t, q.Stats().Damaged, "counted in the next process as well")
		require.NoError(t, q.Close())
	})
}

// The same for the last segment. Its messages count as damaged until those before it are done, and
// no later message is skipped because of that.
func TestAnUnreadableLastSegment(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		d := newDisk()
		for life := range 2 {
			q := openOn(t, d, nil)
			put(t, q, life*10, (life+1)*10)
			require.NoError(t, q.Close())
		}
		d.spoil(d.segments(folder)[1], 0, 1<<20)
		q := openOn(t, d, nil)
		require.EqualValues(t, 10, q.Stats().Damaged)
		put(t, q, 20, 25)
		require.NoError(t, q.Close())
		q = openOn(t, d, nil)
		require.EqualValues(t, 10, q.Stats().Damaged)
		require.Equal(t, append(ids(0, 10), ids(20, 25)...), take(t, q))
		require.NoError(t, q.Close())
	})
}

// One damaged slot of the mark has no effect: the other one is as new as the mark's last fsync. If
// both are damaged, all messages in the files are sent again, and none is deleted.
func TestADamagedMark(t *testing.T) {
	const n = 100
	damages := map[string]func(d *disk, slot int64){
		"bits": func(d *disk, slot int64) {
			d.edit(markFile, func(b []byte) []byte { b[slot*page+2] ^= 0x10; return b })
		},
		"ones": func(d *disk, slot int64) {
			d.edit(markFile, func(b []byte) []byte {
				copy(b[slot*page:], bytes.Repeat([]byte{0xff}, 512))
				return b
			})
		},
		"unreadable": func(d *disk, slot int64) { d.spoil(markFile, slot*page, slot*page+1) },
	}
	for name, damage := range damages {
		for _, slots := range [][]int64{{0}, {1}, {0, 1}} {
			testkit.Run(t, fmt.Sprint(name, slots), func(t *testing.T) {
				d := newDisk()
				q := openOn(t, d, nil)
				put(t, q, 0, n)
				require.ErrorIs(t, ended(t, q, &taker{most: 40}), errEnough)
				require.NoError(t, q.Close())
				q = openOn(t, d, nil) // both slots were written and synced
				require.ErrorIs(t, ended(t, q, &taker{most: 20}), errEnough)
				require.NoError(t, q.Close())
				for _, slot := range slots {
					damage(d, slot)
				}
				q = openOn(t, d, nil)
				got := take(t, q)
				require.NotEmpty(t, got, "the messages that wait were deleted")
				switch first, err := strconv.Atoi(got[0]); {
				case err != nil:
					require.NoError(t, err)
				case len(slots) == 2:
					require.Zero(t, first)
				default:
					require.Contains(t, []int{40, 60}, first, "the other slot is not looked at")
				}
				require.Equal(t, ids(n-len(got), n), got)
				require.NoError(t, q.Close())
			})
		}
	}
}

// A sector of the mark that was unreadable for a while does not come back with an outdated number
// that is too high.
func TestAMarkThatComesBack(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		d := newDisk()
		q := openOn(t, d, nil)
		put(t, q, 0, 100)
		require.Len(t, take(t, q), 100)
		require.NoError(t, q.Close())
		d.spoil(markFile, 0, 2*page)
		q = openOn(t, d, nil) // its numbers start at 0 again
		put(t, q, 0, 50)
		require.NoError(t, q.Close())
		d.names[markFile].bad = nil
		q = openOn(t, d, nil)
		require.Equal(t, ids(0, 50), take(t, q))
		require.NoError(t, q.Close())
	})
}

// The mark alternates between its slots, and never overwrites the only durable one.
func TestTheMarkAlternates(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		d := newDisk()
		var writes []int64 // slots; -1 is an fsync
		d.on(func(o op) error {
			if o.path == markFile && o.name == "write" {
				writes = append(writes, o.at/page)
			}
			if o.path == markFile && o.name == "sync" {
				writes = append(writes, -1)
			}
			return nil
		})
		q := openOn(t, d, &outbox.Options{MaxBytes: 1 << 20})
		writes = nil // the writes of Open
		for n := range 60 {
			require.NoError(t, q.Put(t.Context(), quarter(n)))
			require.Len(t, take(t, q), 1)
		}
		require.NoError(t, q.Close())
		used := map[int64]int{}
		last := int64(-1)
		for _, w := range writes {
			switch {
			case w < 0:
				last = -1
				continue
			case last >= 0:
				require.Equal(t, last, w, "both slots at risk: %v", writes)
			}
			last = w
			used[w]++
		}
		require.Greater(t, used[0], 5)
		require.Greater(t, used[1], 5)
	})
}

// Failed Puts sync the mark without a change of it. The newest durable slot is not overwritten
// then.
func TestFailedPutsKeepTheDurableMark(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		for failures := range 4 {
			d := newDisk()
			q := openOn(t, d, &outbox.Options{MaxBytes: 1 << 20})
			durable, written := int64(-1), int64(-1)
			broken := false
			d.on(func(o op) error {
				switch {
				case o.path == markFile && o.name == "write":
					if written = o.at / page; written == durable {
						t.Errorf("the durable slot is overwritten after %d failures", failures)
					}
				case o.path == markFile && o.name == "sync":
					durable = written
				case broken && (o.name == "write" || o.name == "truncate"):
					return syscall.EIO
				}
				return nil
			})
			for n := range 5 {
				require.NoError(t, q.Put(t.Context(), quarter(n)))
			}
			require.Len(t, take(t, q), 5)
			q.Idle()
			broken = true
			for range failures {
				require.ErrorIs(t, q.Put(t.Context(), numbered(0)), syscall.EIO)
			}
			q.Idle()
			broken = false
			put(t, q, 5, 6)
			require.Len(t, take(t, q), 1)
			require.NoError(t, q.Close())
		}
	})
}

// A deleted folder makes Put fail: the data would be lost with the last open file.
func TestADeletedFolder(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("skipped: Windows does not delete files that are open")
	}
	for name, o := range map[string]*outbox.Options{"fsync": nil, "SyncEvery -1": {SyncEvery: -1},
		"SyncEvery 1h": {SyncEvery: 1 << 41}} {
		t.Run(name, func(t *testing.T) {
			folder := filepath.Join(t.TempDir(), "outbox")
			q := open(t, folder, o)
			put(t, q, 0, 3)
			require.NoError(t, os.RemoveAll(folder))
			<-time.After(outbox.LookEvery)
			for range 3 {
				require.Error(t, q.Put(t.Context(), numbered(3)))
			}
			// A folder that was made again is not locked by this Queue.
			require.NoError(t, os.Mkdir(folder, 0o700))
			require.ErrorContains(t, q.Put(t.Context(), numbered(3)), "open it anew")
			require.EqualValues(t, 3, q.Stats().Put)
			_ = q.Close()
			q = open(t, folder, o)
			put(t, q, 0, 3)
			require.Equal(t, ids(0, 3), take(t, q))
			require.NoError(t, q.Close())
		})
	}
}

// A folder that was renamed is not the one that the next process opens. From then on no message is
// taken, also if another process has a new folder of that name.
func TestARenamedFolder(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("skipped: Windows does not rename a folder with open files")
	}
	for _, every := range []time.Duration{0, -1, time.Hour} {
		o := &outbox.Options{SyncEvery: every}
		folder := filepath.Join(t.TempDir(), "outbox")
		q := open(t, folder, o)
		put(t, q, 0, 3)
		require.NoError(t, os.Rename(folder, folder+".old"))
		<-time.After(outbox.LookEvery)
		require.ErrorContains(t, q.Put(t.Context(), numbered(3)), "open it anew")
		other := open(t, folder, o)
		require.ErrorContains(t, q.Put(t.Context(), numbered(3)), "open it anew")
		require.Empty(t, take(t, other))
		require.NoError(t, other.Close())
		_ = q.Close()
		back := open(t, folder+".old", o)
		require.Subset(t, take(t, back), ids(0, 3))
		require.NoError(t, back.Close())
	}
}

// A relative name is that of the folder at Open, whatever the program's folder is later.
func TestARelativeFolderAfterAChangeOfDirectory(t *testing.T) {
	t.Chdir(t.TempDir())
	at, err := filepath.Abs("outbox")
	require.NoError(t, err)
	q := open(t, "outbox", &outbox.Options{MaxBytes: 1 << 20})
	t.Chdir(t.TempDir())
	big := numbered(0)
	big.Body = make([]byte, 100<<10)
	for range 3 { // a segment each
		require.NoError(t, q.Put(t.Context(), big))
	}
	require.NoError(t, q.Close())
	q = open(t, at, nil)
	require.EqualValues(t, 3, q.Stats().Waiting)
	require.NoError(t, q.Close())
}

// A sector that was unreadable for one process and is readable for the next shows messages whose
// numbers went to newer ones. These are sent, the others are counted, and the queue runs empty.
func TestASectorThatRecovers(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		const n = 200
		o := &outbox.Options{SyncEvery: -1}
		d := newDisk()
		q := openOn(t, d, o)
		put(t, q, 0, n)
		bad := d.kill()
		require.NoError(t, q.Close())
		segment := bad.segments(folder)[0]
		bad.spoil(segment, bad.size(segment)-1, bad.size(segment))
		q = openOn(t, bad, o)
		put(t, q, n, n+3)
		good := bad.kill()
		require.NoError(t, q.Close())
		q = openOn(t, good, o)
		got := take(t, q)
		require.Subset(t, got, ids(n, n+3))
		require.EqualValues(t, n+3-len(got), q.Stats().Damaged)
		require.NoError(t, q.Close())
	})
}

// A segment of another folder may have numbers of this one. Messages that this hides are counted.
func TestASegmentOfAnotherFolder(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		o := &outbox.Options{SyncEvery: -1}
		mine, theirs := t.TempDir(), t.TempDir()
		for folder, n := range map[string]int{mine: 3, theirs: 5} {
			q := open(t, folder, o)
			put(t, q, 0, n)
			require.NoError(t, q.Close())
		}
		files, err := filepath.Glob(filepath.Join(theirs, "*.messages"))
		require.NoError(t, err)
		require.NoError(t, os.Rename(files[0], filepath.Join(mine, filepath.Base(files[0]))))
		q := open(t, mine, o)
		got := take(t, q)
		require.EqualValues(t, 8-len(got), q.Stats().Damaged, "%v", got)
		require.NoError(t, q.Close())
	})
}

// A deleted lock file lets another process open the folder. From then on no message is taken that
// the other one may not know.
func TestADeletedLock(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("skipped: Windows does not delete files that are open")
	}
	for _, every := range []time.Duration{0, -1, time.Hour} {
		o := &outbox.Options{SyncEvery: every}
		folder := t.TempDir()
		q := open(t, folder, o)
		put(t, q, 0, 3)
		require.NoError(t, os.Remove(filepath.Join(folder, "lock")))
		<-time.After(outbox.LookEvery)
		other := open(t, folder, o)
		require.ErrorContains(t, q.Put(t.Context(), numbered(3)), "open it anew")
		require.Equal(t, ids(0, 3), take(t, other))
		require.NoError(t, other.Close())
		_ = q.Close()
	}
}

// Without an fsync, Puts look once a millisecond whether the files are still there.
func TestPutsShareALookAtTheFolder(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		d, looks := newDisk(), 0
		q := openOn(t, d, &outbox.Options{SyncEvery: -1})
		put(t, q, 0, 1)
		q.Idle()
		d.on(func(o op) error {
			if o.name == "linked" {
				looks++
			}
			return nil
		})
		put(t, q, 1, 100)
		require.Zero(t, looks)
		time.Sleep(outbox.LookEvery)
		put(t, q, 100, 200)
		q.Idle()
		require.Equal(t, 2, looks, "at the lock and at the segment")
		require.NoError(t, q.Close())
	})
}

// A system without locks is refused, because two processes could use the folder at the same time.
func TestASystemWithoutLocksIsRefused(t *testing.T) {
	_, err := outbox.OpenOn(unlocked{newDisk()}, folder, nil)
	require.ErrorIs(t, err, transport.Unsupported)
	require.ErrorContains(t, err, "no file locks")
}

type unlocked struct{ *disk }

func (unlocked) Lock(outbox.File) error { return outbox.ErrNoLock }

// A failed write may leave whole records that cannot be truncated. They never hide later messages.
func TestNumbersInASpoiledFileAreNotUsedAgain(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		d := newDisk()
		q := openOn(t, d, nil)
		put(t, q, 0, 3)
		spoiled := d.segments(folder)[0]
		_, salt, _ := outbox.ParseName(filepath.Base(spoiled))
		d.on(func(o op) error {
			switch {
			case o.path != spoiled:
				return nil
			case o.name == "write": // the data arrives, and the disk reports a failure
				d.edit(spoiled, func(b []byte) []byte {
					record := outbox.AppendRecord(nil, numbered(3))
					outbox.SealRecord(record, salt, int64(len(b)), 3)
					return append(b, record...)
				})
				return syscall.EIO
			case o.name == "truncate":
				return syscall.EIO
			}
			return nil
		})
		require.ErrorIs(t, q.Put(t.Context(), numbered(3)), syscall.EIO)
		put(t, q, 4, 8)
		require.EqualValues(t, 7, q.Stats().Waiting)
		left := openOn(t, d.kill(), nil)
		require.Equal(t, ids(0, 8), take(t, left), "message 3 may be sent, the others must")
		require.NoError(t, left.Close())
		require.Equal(t, append(ids(0, 3), ids(4, 8)...), take(t, q))
		require.Zero(t, q.Stats().Damaged)
		require.NoError(t, q.Close())
	})
}

// While more results follow, the mark is written once for 64 messages.
func TestTheMarkIsWrittenForManyMessages(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		d := newDisk()
		settled := func(*transport.Message, error) { synctest.Wait() } // Run has handed all others over; the disk is idle
		q := openOn(t, d, &outbox.Options{OnFailed: settled})
		put(t, q, 0, 512)
		writes := 0
		d.on(func(o op) error {
			if o.path == markFile && o.name == "write" {
				writes++
			}
			return nil
		})
		require.Len(t, take(t, q), 512)
		require.InDelta(t, 512/64, writes, 2)
		require.NoError(t, q.Close())
	})
}

// A slot of the mark does not change while it is synced, or neither slot would be known to be
// valid.
func TestTheMarkIsNotWrittenWhileItIsSynced(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		d := newDisk()
		q := openOn(t, d, &outbox.Options{MaxBytes: 1 << 20})
		syncing := false
		d.on(func(o op) error {
			switch {
			case o.path != markFile:
			case o.name == "sync":
				syncing = true
				time.Sleep(time.Second)
				syncing = false
			case o.name == "write" && syncing:
				t.Error("the mark is written while it is synced")
			}
			return nil
		})
		for n := range 20 {
			require.NoError(t, q.Put(t.Context(), quarter(n)))
			require.Len(t, take(t, q), 1)
			time.Sleep(300 * time.Millisecond)
		}
		require.NoError(t, q.Close())
	})
}

// A file with a number that would overflow is ignored; no Put loses its message because of it.
func TestNumbersAtTheEnd(t *testing.T) {
	record := func(n uint64) []byte {
		b := outbox.AppendRecord(nil, numbered(7))
		outbox.SealRecord(b, 7, 0, n)
		return b
	}
	mark := func(n uint64) []byte {
		b := binary.BigEndian.AppendUint64(nil, n)
		return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
	}
	for _, n := range []uint64{math.MaxUint64, 1 << 63, 1<<63 - 1, 1<<62 + 1, 1 << 62} {
		for name, contents := range map[string][]byte{
			outbox.SegmentName(n, 7): record(n), outbox.SegmentName(n, 8): []byte("junk"), "done": mark(n),
		} {
			testkit.Run(t, fmt.Sprintf("%s %x", name, n), func(t *testing.T) {
				folder := t.TempDir()
				require.NoError(t, os.WriteFile(filepath.Join(folder, name), contents, 0o600))
				var taken []string
				for life := range 3 {
					q := open(t, folder, nil)
					if q.Put(t.Context(), numbered(life)) == nil {
						taken = append(taken, strconv.Itoa(life))
					}
					require.NoError(t, q.Close())
				}
				q := open(t, folder, nil)
				got := take(t, q)
				require.Subset(t, got, taken)
				if n > 1<<62 && name != "done" || n >= 1<<63 {
					require.Equal(t, ids(0, 3), got, "the file is in the way")
				}
				require.NoError(t, q.Close())
			})
		}
	}
}

// A segment is a few megabytes. Open does not read a sparse file of terabytes to its end.
func TestASegmentThatIsFarTooLarge(t *testing.T) {
	folder := t.TempDir()
	q := open(t, folder, nil)
	put(t, q, 0, 3)
	require.NoError(t, q.Close())
	path := segments(t, folder)[0]
	require.NoError(t, os.Truncate(path, 1<<40))
	begun := time.Now()
	done := make(chan struct{})
	go func() {
		defer close(done)
		q := open(t, folder, nil)
		require.Equal(t, ids(0, 3), take(t, q))
		require.NoError(t, q.Close())
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		require.FailNow(t, "Open reads on", "after %v", time.Since(begun))
	}
}

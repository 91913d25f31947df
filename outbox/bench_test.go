package outbox_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/outbox"
	"github.com/hubline-iot/hubline/transport"
)

// sink is a client that finishes each message at once, as expired. No hub takes part.
type sink struct{ sending }

func (sink) Enqueue(context.Context, *transport.Message, *device.Receipt) error { return errExpired }

var errExpired = &transport.Error{Kind: transport.Expired, Op: transport.OpSend}

func benchmarkMessage() *transport.Message {
	m := numbered(1)
	m.Body = make([]byte, 300)
	return m
}

func BenchmarkPut(b *testing.B) {
	for name, every := range map[string]time.Duration{"fsync": 0, "SyncEvery=1s": time.Second, "SyncEvery=-1": -1} {
		for _, callers := range []int{1, 16} {
			b.Run(fmt.Sprintf("%s/callers=%d", name, callers), func(b *testing.B) {
				q := open(b, b.TempDir(), &outbox.Options{SyncEvery: every, Overflow: device.OverflowDropOldest})
				m := benchmarkMessage()
				b.ReportAllocs()
				b.ResetTimer()
				var wait sync.WaitGroup
				for c := range callers {
					wait.Go(func() {
						for i := c; i < b.N; i += callers {
							if err := q.Put(context.Background(), m); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wait.Wait()
				b.StopTimer()
				require.NoError(b, q.Close())
			})
		}
	}
}

// BenchmarkSharedFsync measures how many Puts share an fsync. "of-ideal" compares the Puts a second
// with one Put of each caller in the time of one fsync of this run. What is missing is the time in
// which the callers run, so a slow disk is nearer to the ideal.
func BenchmarkSharedFsync(b *testing.B) {
	for _, least := range []time.Duration{0, 2 * time.Millisecond} {
		for _, callers := range []int{1, 2, 4, 16, 64, 256} {
			b.Run(fmt.Sprintf("fsync>=%v/callers=%d", least, callers), func(b *testing.B) {
				m := benchmarkMessage()
				disk := &counting{FileSystem: outbox.OS, least: least}
				q, err := outbox.OpenOn(disk, b.TempDir(), &outbox.Options{Overflow: device.OverflowDropOldest})
				require.NoError(b, err)
				syncs := max(b.N/callers, 20)
				b.ResetTimer()
				took := putAll(b, q, m, callers, syncs)
				b.StopTimer()
				n := float64(disk.syncs.Load())
				b.ReportMetric(float64(syncs)*float64(disk.took.Load())/n/float64(took), "of-ideal")
				b.ReportMetric(float64(syncs*callers)/n, "puts/fsync")
				require.NoError(b, q.Close())
			})
		}
	}
}

// counting is a file system that counts and times fsyncs of messages.
type counting struct {
	outbox.FileSystem
	least       time.Duration // of an fsync
	syncs, took atomic.Int64
}

func (c *counting) Open(path string, flag int) (outbox.File, error) {
	f, err := c.FileSystem.Open(path, flag)
	if err != nil || !strings.HasSuffix(path, ".messages") {
		return f, err
	}
	return &countingFile{f, c}, nil
}

type countingFile struct {
	outbox.File
	of *counting
}

func (f *countingFile) Sync() error {
	begun := time.Now()
	err := f.File.Sync()
	time.Sleep(f.of.least - time.Since(begun))
	f.of.syncs.Add(1)
	f.of.took.Add(int64(time.Since(begun)))
	return err
}

// putAll makes each of the callers put each messages, one after the other.
func putAll(b *testing.B, q *outbox.Queue, m *transport.Message, callers, each int) time.Duration {
	begun := time.Now()
	var wait sync.WaitGroup
	for range callers {
		wait.Go(func() {
			for range each {
				if err := q.Put(context.Background(), m); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wait.Wait()
	return time.Since(begun)
}

// BenchmarkWithoutFsync measures Put against one write a record ("of-raw").
func BenchmarkWithoutFsync(b *testing.B) {
	for _, callers := range []int{1, 16} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			m := benchmarkMessage()
			each := max(b.N/callers, 1)
			raw := rawWrites(b, each*callers, outbox.AppendedSize(m))
			q := open(b, b.TempDir(), &outbox.Options{SyncEvery: -1, Overflow: device.OverflowDropOldest})
			b.ResetTimer()
			took := putAll(b, q, m, callers, each)
			b.StopTimer()
			b.ReportMetric(float64(raw)/float64(took), "of-raw")
			require.NoError(b, q.Close())
		})
	}
}

// rawWrites returns how long n writes of size bytes take, into files as large as segments.
func rawWrites(b *testing.B, n, size int) time.Duration {
	path := filepath.Join(b.TempDir(), "raw")
	record := make([]byte, size)
	begun := time.Now()
	for n > 0 {
		f, err := os.Create(path)
		require.NoError(b, err)
		at := int64(0)
		for ; n > 0 && at < 4<<20; n-- {
			_, err := f.WriteAt(record, at)
			require.NoError(b, err)
			at += int64(size)
		}
		require.NoError(b, f.Close())
		require.NoError(b, os.Remove(path))
	}
	return time.Since(begun)
}

// BenchmarkThrough measures Put and Run together, up to the last result.
func BenchmarkThrough(b *testing.B) {
	for name, every := range map[string]time.Duration{"fsync": 0, "SyncEvery=-1": -1} {
		b.Run(name, func(b *testing.B) {
			q := open(b, b.TempDir(), &outbox.Options{SyncEvery: every, OnFailed: ignore})
			stop := start(q, sink{})
			m := benchmarkMessage()
			const callers = 16
			b.ReportAllocs()
			b.ResetTimer()
			var wait sync.WaitGroup
			for c := range callers {
				wait.Go(func() {
					for i := c; i < b.N; i += callers {
						if err := q.Put(context.Background(), m); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wait.Wait()
			require.NoError(b, q.Flush(context.Background()))
			b.StopTimer()
			_ = stop()
			require.NoError(b, q.Close())
		})
	}
}

// BenchmarkDrain measures the way from the files to the client.
func BenchmarkDrain(b *testing.B) {
	q := open(b, b.TempDir(), &outbox.Options{SyncEvery: -1, Overflow: device.OverflowDropOldest, MaxBytes: 4 << 30,
		OnFailed: ignore})
	m := benchmarkMessage()
	for range b.N {
		require.NoError(b, q.Put(context.Background(), m))
	}
	b.ReportAllocs()
	b.ResetTimer()
	stop := start(q, sink{})
	require.NoError(b, q.Flush(context.Background()))
	b.StopTimer()
	_ = stop()
	require.NoError(b, q.Close())
}

func BenchmarkOpen(b *testing.B) {
	folder := b.TempDir()
	q := open(b, folder, &outbox.Options{SyncEvery: -1})
	for range 100_000 {
		require.NoError(b, q.Put(context.Background(), benchmarkMessage()))
	}
	require.NoError(b, q.Close())
	b.ResetTimer()
	for range b.N {
		q := open(b, folder, &outbox.Options{SyncEvery: -1})
		require.NoError(b, q.Close())
	}
}

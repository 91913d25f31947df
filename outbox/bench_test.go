package outbox_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
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
				q := open(b, b.TempDir(), &outbox.Options{SyncEvery: every, Overflow: device.DropOldest})
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

// BenchmarkSharedFsync measures how many Puts share an fsync. "of-ideal" is the share of callers times
// the fsyncs a second that the same disk makes alone, after one write each.
func BenchmarkSharedFsync(b *testing.B) {
	for _, callers := range []int{1, 2, 4, 16, 64, 256} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			m := benchmarkMessage()
			q := open(b, b.TempDir(), &outbox.Options{Overflow: device.DropOldest})
			syncs := max(b.N/callers, 20)
			raw := rawSyncs(b, syncs, callers*outbox.AppendedSize(m))
			b.ResetTimer()
			took := putAll(b, q, m, callers, syncs)
			b.StopTimer()
			b.ReportMetric(float64(raw)/float64(took), "of-ideal")
			b.ReportMetric(float64(took)/float64(syncs*callers), "ns/put")
			require.NoError(b, q.Close())
		})
	}
}

// rawSyncs returns how long n writes of size bytes take with an fsync after each.
func rawSyncs(b *testing.B, n, size int) time.Duration {
	f, err := os.Create(filepath.Join(b.TempDir(), "raw"))
	require.NoError(b, err)
	defer f.Close()
	record := make([]byte, size)
	begun := time.Now()
	for i := range n {
		_, err := f.WriteAt(record, int64(i*size))
		require.NoError(b, err)
		require.NoError(b, f.Sync())
	}
	return time.Since(begun)
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
			f, err := os.Create(filepath.Join(b.TempDir(), "raw"))
			require.NoError(b, err)
			defer f.Close()
			each := max(b.N/callers, 1)
			record := make([]byte, outbox.AppendedSize(m))
			begun := time.Now()
			for i := range each * callers {
				_, err := f.WriteAt(record, int64(i%8000*len(record)))
				require.NoError(b, err)
			}
			raw := time.Since(begun)
			q := open(b, b.TempDir(), &outbox.Options{SyncEvery: -1, Overflow: device.DropOldest})
			b.ResetTimer()
			took := putAll(b, q, m, callers, each)
			b.StopTimer()
			b.ReportMetric(float64(raw)/float64(took), "of-raw")
			require.NoError(b, q.Close())
		})
	}
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
	q := open(b, b.TempDir(), &outbox.Options{SyncEvery: -1, Overflow: device.DropOldest, MaxBytes: 4 << 30,
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

package outbox_test

import (
	"context"
	"fmt"
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

// BenchmarkSharedFsync measures how many Puts share an fsync. "of-ideal" compares the Puts a second
// with one Put of each caller in the time of one fsync of this run. What is missing is the time in
// which the callers run, so a slow disk is nearer to the ideal.
func BenchmarkSharedFsync(b *testing.B) {
	for _, least := range []time.Duration{0, 2 * time.Millisecond} {
		for _, callers := range []int{1, 2, 4, 16, 64, 256} {
			b.Run(fmt.Sprintf("fsync>=%v/callers=%d", least, callers), func(b *testing.B) {
				m := numbered(1)
				m.Body = make([]byte, 300)
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

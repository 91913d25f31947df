package mqtt

import (
	"bytes"
	"context"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/transport"
)

// counted counts the writes to a connection.
type counted struct {
	net.Conn
	writes *atomic.Int32
}

func (c counted) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

func countWrites(o *Options) *atomic.Int32 {
	writes := new(atomic.Int32)
	dial := o.Network.Dial
	o.Network.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		return counted{c, writes}, err
	}
	return writes
}

// A batch is one write, or a few if it is large, for any speed of library and network. A batch
// whose last message is too large to send does not get stuck.
func TestABatchIsWrittenTogether(t *testing.T) {
	for name, last := range map[string]string{"all": "", "the last is too large": strings.Repeat("x",
		transport.MaxMessageSize+1)} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				h := newHub(t)
				o := h.options()
				writes := countWrites(o)
				r, l := start(t, h, o)
				synctest.Wait()
				before := writes.Load()
				r.send(append(make([]string, 63), last)...)
				for range 63 {
					l.expect(typePublish)
				}
				synctest.Wait()
				require.EqualValues(t, 1, writes.Load()-before)

				before = writes.Load()
				r.send(strings.Repeat("x", 6<<10), strings.Repeat("x", 6<<10), strings.Repeat("x", 6<<10), "y")
				for range 4 {
					l.expect(typePublish)
				}
				synctest.Wait()
				require.LessOrEqual(t, writes.Load()-before, int32(2+1), "more than fullWrite does not wait")
			})
		})
	}
}

// A full buffer is one write, and over TLS one record, not a full record and a small one.
func TestAFullWriteIsOneWrite(t *testing.T) {
	for _, size := range []int{100, 256, 1024} {
		bubble(t, func(t *testing.T) {
			h := newHub(t)
			o := h.options()
			writes := countWrites(o)
			r, l := start(t, h, o)
			synctest.Wait()
			before := writes.Load()
			all := 0
			go r.send(slices.Repeat([]string{strings.Repeat("x", size)}, 1000)...)
			for range 1000 {
				all += len(l.expect(typePublish).body)
			}
			synctest.Wait()
			require.Less(t, int(writes.Load()-before), all/flushSize*3/2)
		})
	}
}

// A message that is alone in flight is written by the library's goroutine, without a flusher. Later
// writes follow it.
func TestALoneMessageIsWrittenThrough(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, l := start(t, h, h.options())
		synctest.Wait()
		h.net.Last().SetBuffer(10) // its buffer is full
		r.send(strings.Repeat("x", 100))
		synctest.Wait()
		require.True(t, inside("mqtt.(*conn).writeThrough("))
		r.Do(&transport.Request{Op: transport.OpSettle, Outcome: transport.Accept, Ref: []byte{1, 2}})
		synctest.Wait()
		require.False(t, inside("mqtt.(*conn).flush("))
		l.puback(l.expect(typePublish).id())
		require.Equal(t, []byte{1, 2}, l.expect(typePuback).body)
		synctest.Wait()
		require.False(t, inside("mqtt.(*conn).writeThrough("))
		require.Len(t, r.sink.tags(), 1)

		r.send(strings.Repeat("x", maxWriteThrough)) // may be too large for the network's buffers
		synctest.Wait()
		require.False(t, inside("mqtt.(*conn).writeThrough("))
		l.puback(l.expect(typePublish).id())
	})
}

// inside reports whether a goroutine is in the function.
func inside(function string) bool {
	stacks := make([]byte, 1<<20)
	return bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte(function))
}

// disconnect and Send end in time when a message that is written through is stuck.
func TestALoneMessageThatIsStuckDoesNotDelayDisconnect(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		s, k, ctx, cancel := dial(t, h.options(), func() { h.welcome() })
		r := run(t, s, k, ctx, cancel)
		synctest.Wait()
		h.net.Last().SetBuffer(10)
		r.send(strings.Repeat("x", 100))
		synctest.Wait()
		require.True(t, inside("mqtt.(*conn).writeThrough("))
		cancel()
		require.ErrorIs(t, <-r.ran, context.Canceled)
		synctest.Wait()
		require.Zero(t, goroutines())
	})
}

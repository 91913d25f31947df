package amqp

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/bounded"
	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/transport"
)

func TestFramesOfAnySizeAreTold(t *testing.T) {
	frame := func(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }
	good := append([]byte("AMQP\x00\x01\x00\x00"), frame(8)...)
	good = append(append(good, 2, 0, 0, 0), frame(maxFrame)...)
	good = append(good, make([]byte, maxFrame-4)...)
	good = append(good, frame(9)...)
	for _, step := range []int{1, 3, 7, 4096, len(good)} {
		var f frameSizes
		for rest := good; len(rest) > 0; {
			n := min(step, len(rest))
			require.NoError(t, f.scan(rest[:n]))
			rest = rest[n:]
		}
	}
	for _, bad := range []uint32{0, 7, maxFrame + 1, 1 << 31, binary.BigEndian.Uint32([]byte("HTTP"))} {
		var f frameSizes
		require.Error(t, f.scan(frame(bad)), "%d", bad)
	}
}

// pipe is a stream and its peer.
func pipe(t *testing.T) (*stream, *memconn.Conn) {
	near, far := memconn.Pair("near", "far")
	s := newStream(near, near, 10*time.Second)
	t.Cleanup(func() {
		s.fail(errClosed)
		<-s.flushed
		_ = far.Close()
	})
	return s, far
}

// Writes never block and go out together; who sends much can wait for room.
func TestWritesDoNotBlock(t *testing.T) {
	bounded.Test(t, func(t *testing.T) {
		near, far := memconn.Pair("near", "far")
		near.SetBuffer(1 << 10)
		defer far.Close()
		s := newStream(near, near, 10*time.Second)
		defer func() {
			s.fail(errClosed)
			<-s.flushed
		}()
		_, err := s.Write(make([]byte, 10_000))
		require.NoError(t, err)
		synctest.Wait() // the flusher has it, and is stuck
		for range 40 {
			n, err := s.Write(make([]byte, 32<<10))
			require.NoError(t, err)
			require.Equal(t, 32<<10, n)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		s.waitRoom(ctx)
		require.Equal(t, time.Second, time.Since(began))
	})
}

// A peer that takes nothing is found, whoever wrote.
func TestAPeerThatTakesNothingIsFound(t *testing.T) {
	bounded.Test(t, func(t *testing.T) {
		near, far := memconn.Pair("near", "far")
		near.SetBuffer(1 << 10)
		defer far.Close()
		s := newStream(near, near, 10*time.Second)
		_, err := s.Write(make([]byte, 100_000))
		require.NoError(t, err)
		began := time.Now()
		<-s.flushed
		require.Equal(t, 10*time.Second, time.Since(began))
		require.ErrorIs(t, s.failure(), os.ErrDeadlineExceeded)
		_, err = s.Write([]byte("x"))
		require.Error(t, err)
		require.Equal(t, transport.Timeout, lossOf(s.failure()).Kind)
	})
}

// What was written before Close arrives.
func TestCloseLetsTheLastWordsOut(t *testing.T) {
	bounded.Test(t, func(t *testing.T) {
		s, far := pipe(t)
		_, err := s.Write([]byte("goodbye"))
		require.NoError(t, err)
		require.NoError(t, s.Close())
		require.NoError(t, s.Close())
		all, err := io.ReadAll(far)
		require.NoError(t, err)
		require.Equal(t, "goodbye", string(all))
		_, err = s.Read(make([]byte, 1))
		require.ErrorIs(t, err, net.ErrClosed, "what the library takes for its own doing")
	})
}

func TestReadsTellWhy(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(far *memconn.Conn)
		want error
	}{
		"closed": {func(far *memconn.Conn) { _ = far.Close() }, errHubClosed},
		"junk":   {func(far *memconn.Conn) { _, _ = far.Write([]byte("HTTP/1.1 400 Bad Request\r\n")) }, errFrameSize},
		"garbled": {func(far *memconn.Conn) {
			_, _ = far.Write([]byte("AMQP\x00\x01\x00\x00\x00\x00\x00\x08\x02\x00\x00\x00\x00\x00\x00\x04\x02\x00\x00\x00"))
		}, errGarbled},
	} {
		t.Run(name, func(t *testing.T) {
			bounded.Test(t, func(t *testing.T) {
				s, far := pipe(t)
				c.end(far)
				_, err := s.Read(make([]byte, 100))
				require.ErrorIs(t, err, c.want)
				require.ErrorIs(t, s.failure(), c.want)
			})
		})
	}
}

package amqpscreen

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/internal/dialer"
	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/internal/testkit"
)

// pipe returns a stream and its peer.
func pipe(t *testing.T) (*Stream, *memconn.Conn) {
	near, far := memconn.Pair("near", "far")
	line := dialer.NewProgressConn(near, 10*time.Second)
	s := New(line, line)
	t.Cleanup(func() {
		s.Fail(ErrClosed)
		<-s.flushed
		_ = far.Close()
	})
	return s, far
}

// Writes never block and are sent together; a sender of much data waits for room.
func TestWritesDoNotBlock(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		near, far := memconn.Pair("near", "far")
		near.SetBuffer(1 << 10)
		defer far.Close()
		line := dialer.NewProgressConn(near, 10*time.Second)
		s := New(line, line)
		defer func() {
			s.Fail(ErrClosed)
			<-s.flushed
		}()
		_, err := s.Write(make([]byte, 10_000))
		require.NoError(t, err)
		synctest.Wait() // the flusher has taken the bytes, and is stuck
		for range 40 {
			n, err := s.Write(make([]byte, 32<<10))
			require.NoError(t, err)
			require.Equal(t, 32<<10, n)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		s.WaitRoom(ctx)
		require.Equal(t, time.Second, time.Since(began))
	})
}

// A peer that does not read ends the stream, after any kind of write.
func TestAPeerThatReadsNothingTimesOut(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		near, far := memconn.Pair("near", "far")
		near.SetBuffer(1 << 10)
		defer far.Close()
		line := dialer.NewProgressConn(near, 10*time.Second)
		s := New(line, line)
		_, err := s.Write(make([]byte, 100_000))
		require.NoError(t, err)
		began := time.Now()
		<-s.flushed
		require.Equal(t, time.Minute, time.Since(began), "its kernel answers")
		require.ErrorIs(t, s.Failure(), os.ErrDeadlineExceeded)
		_, err = s.Write([]byte("x"))
		require.Error(t, err)
	})
}

// Bytes written before Close are sent.
func TestCloseSendsWhatIsBuffered(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
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

func TestReadErrors(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(far *memconn.Conn)
		want error
	}{
		"closed": {func(far *memconn.Conn) { _ = far.Close() }, ErrHubClosed},
		"junk":   {func(far *memconn.Conn) { _, _ = far.Write([]byte("HTTP/1.1 400 Bad Request\r\n")) }, ErrNotAMQP},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				s, far := pipe(t)
				c.end(far)
				_, err := s.Read(make([]byte, 100))
				require.ErrorIs(t, err, c.want)
				require.ErrorIs(t, s.Failure(), c.want)
			})
		})
	}
}

// A frame that arrives slowly, and one that the library does not get, reset the idle time-out.
func TestPartsOfAFrameResetTheIdleTimeout(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s, far := pipe(t)
		empty := []byte{0, 0, 0, 8, 2, 0, 0, 0}
		last := []byte{0, 0, 0, 12, 2, 0, 0, 0, 0, 0x53, 0x18, 0x45}
		s.screen.phase = running
		go func() {
			for range 10 {
				time.Sleep(50 * time.Second)
				_, _ = far.Write(empty)
			}
			for i := range last {
				time.Sleep(50 * time.Second)
				_, _ = far.Write(last[i : i+1])
			}
		}()
		require.NoError(t, s.SetReadDeadline(time.Now().Add(time.Minute)))
		b := make([]byte, 100)
		n, err := s.Read(b)
		require.NoError(t, err)
		require.Equal(t, last, b[:n], "the library would keep empty frames")
		require.NoError(t, s.SetReadDeadline(time.Now().Add(time.Minute)))
		_, err = s.Read(b)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	})
}

// Reading stops while the peer does not read the answers to its frames, so that answers do not fill
// the memory.
func TestReadingStopsWhileTooMuchIsBuffered(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		near, far := memconn.Pair("near", "far")
		near.SetBuffer(1 << 10)
		defer far.Close()
		line := dialer.NewProgressConn(near, 10*time.Second)
		s := New(line, line)
		s.screen.phase = running
		_, err := s.Write(make([]byte, 2000))
		require.NoError(t, err)
		synctest.Wait() // the flusher has taken the bytes, and is stuck
		_, err = s.Write(make([]byte, maxUnread))
		require.NoError(t, err)
		_, err = far.Write([]byte{0, 0, 0, 12, 2, 0, 0, 0, 0, 0x53, 0x18, 0x45})
		require.NoError(t, err)
		began := time.Now()
		_, err = s.Read(make([]byte, 100))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, time.Minute, time.Since(began), "the time of a write")
		<-s.flushed
	})
}

// The library gets the same bytes for any split into pieces and any buffer. It does not get the
// frame that ends the connection, nor the frames behind it.
func TestFramesPassInAnyPieces(t *testing.T) {
	var in, want []byte
	header := []byte("AMQP\x00\x01\x00\x00")
	open := encode(t, 0, &wire.Open{ContainerID: "h", MaxFrameSize: 512, IdleTimeout: wire.Some(uint32(1))}, nil)
	empty := []byte{0, 0, 0, 12, 3, 0, 0, 0, 1, 2, 3, 4}
	last := encode(t, 0, &wire.Close{Error: wire.Errorf("x", "%s", make([]byte, 40_000))}, nil)
	in = append(append(append(append(append(in, header...), open...), empty...), empty...), last...)
	for _, bad := range []bool{false, true} {
		all := in
		if bad {
			all = append(append(append([]byte(nil), in[:len(in)-len(last)]...), 0, 0, 0, 9, 2, 0, 0, 0, 0x40), last...)
		}
		want = nil
		for _, step := range []int{1, 3, 7, 100, 4096, len(all)} {
			for _, size := range []int{1, 5, 512, 1 << 17} {
				testkit.Bubble(t, func(t *testing.T) {
					s, far := pipe(t)
					go func() {
						for rest := all; len(rest) > 0; {
							n := min(step, len(rest))
							_, _ = far.Write(rest[:n])
							rest = rest[n:]
							synctest.Wait()
						}
						_ = far.CloseWrite()
					}()
					var got []byte
					p := make([]byte, size)
					for {
						n, err := s.Read(p)
						got = append(got, p[:n]...)
						if err != nil {
							break
						}
					}
					if want == nil {
						want = got
					}
					require.Equal(t, want, got)
					if _, ok := errors.AsType[*Violation](s.Failure()); bad {
						require.True(t, ok, "%v", s.Failure())
					} else {
						require.ErrorIs(t, s.Failure(), ErrHubClosed)
						require.True(t, bytes.HasSuffix(got, last))
					}
				})
			}
		}
	}
}

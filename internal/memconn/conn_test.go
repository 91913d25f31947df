package memconn_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/nettest"

	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/internal/testkit"
)

// pair returns two connected ends that are closed when the test ends, inside its bubble, if any.
func pair(t *testing.T) (a, b *memconn.Conn) {
	a, b = memconn.Pair("a:1", "b:2")
	t.Cleanup(func() {
		a.Close()
		b.Close()
	})
	return a, b
}

func requireTimeout(t *testing.T, err error) {
	t.Helper()
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	var ne net.Error
	require.ErrorAs(t, err, &ne)
	require.True(t, ne.Timeout())
}

func TestConnObeysTheRulesOfNetConn(t *testing.T) {
	nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
		a, b := memconn.Pair("a:1", "b:2")
		return a, b, func() { a.Close(); b.Close() }, nil
	})
}

func TestBytesArriveInOrderAndWritesDoNotMix(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pair(t)
		a.SetBuffer(1000)
		const writers, size = 8, 50_000
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				n, err := a.Write(bytes.Repeat([]byte{byte('a' + w)}, size))
				require.NoError(t, err)
				require.Equal(t, size, n)
			})
		}
		synctest.Wait() // all writers are waiting
		got := make([]byte, writers*size)
		_, err := io.ReadFull(b, got)
		require.NoError(t, err)
		for w := range writers {
			part := got[w*size : (w+1)*size]
			require.Equal(t, size, bytes.Count(part, part[:1]), "bytes of one writer in a row")
		}
		wg.Wait()
	})
}

func TestWriteCopiesItsArgument(t *testing.T) {
	a, b := pair(t)
	p := []byte("hello")
	_, err := a.Write(p)
	require.NoError(t, err)
	copy(p, "XXXXX")
	got := make([]byte, 5)
	_, err = io.ReadFull(b, got)
	require.NoError(t, err)
	require.Equal(t, "hello", string(got))
}

func TestWriterWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pair(t)
		a.SetBuffer(4)
		require.NoError(t, a.SetWriteDeadline(time.Now().Add(time.Second)))
		start := time.Now()
		n, err := a.Write([]byte("123456"))
		require.Equal(t, 4, n)
		requireTimeout(t, err)
		require.Equal(t, time.Second, time.Since(start))

		require.NoError(t, a.SetWriteDeadline(time.Time{}))
		written := make(chan error, 1)
		go func() {
			_, err := a.Write([]byte("56"))
			written <- err
		}()
		synctest.Wait()
		require.Empty(t, written)
		got := make([]byte, 6)
		_, err = io.ReadFull(b, got)
		require.NoError(t, err)
		require.Equal(t, "123456", string(got))
		require.NoError(t, <-written)
	})
}

func TestUnlimitedBufferNeverBlocks(t *testing.T) {
	a, _ := pair(t)
	a.SetBuffer(0)
	n, err := a.Write(make([]byte, 10*memconn.DefaultBuffer))
	require.NoError(t, err)
	require.Equal(t, 10*memconn.DefaultBuffer, n)
}

func TestReadDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := pair(t)
		start := time.Now()
		require.NoError(t, a.SetReadDeadline(start.Add(3*time.Second)))
		_, err := a.Read(make([]byte, 1))
		requireTimeout(t, err)
		require.Equal(t, 3*time.Second, time.Since(start))

		var op *net.OpError
		require.ErrorAs(t, err, &op)
		require.Equal(t, "read", op.Op)
		require.Equal(t, "b:2", op.Addr.String())
	})
}

func TestDeadlinesThatMoveAreKept(t *testing.T) {
	cases := []struct {
		name  string
		moves []time.Duration // one per second; each duration counts from the first
		want  time.Duration
	}{
		{"later", []time.Duration{5 * time.Second, 20 * time.Second}, 20 * time.Second},
		{"earlier", []time.Duration{20 * time.Second, 5 * time.Second}, 5 * time.Second},
		{"into the past", []time.Duration{20 * time.Second, -time.Second}, time.Second},
		{"off and on", []time.Duration{5 * time.Second, 0, 9 * time.Second}, 9 * time.Second},
	}
	for _, c := range cases {
		testkit.Run(t, c.name, func(t *testing.T) {
			a, _ := pair(t)
			start := time.Now()
			done := make(chan error, 1)
			for i, d := range c.moves {
				at := time.Time{}
				if d != 0 {
					at = start.Add(d)
				}
				require.NoError(t, a.SetReadDeadline(at))
				if i == 0 {
					go func() {
						_, err := a.Read(make([]byte, 1))
						done <- err
					}()
				}
				if i < len(c.moves)-1 {
					time.Sleep(time.Second)
				}
			}
			requireTimeout(t, <-done)
			require.Equal(t, c.want, time.Since(start))
		})
	}
}

func TestReadableAgainAfterADeadline(t *testing.T) {
	a, b := pair(t)
	_, err := b.Write([]byte("x"))
	require.NoError(t, err)
	require.NoError(t, a.SetReadDeadline(time.Now().Add(-time.Second)))
	_, err = a.Read(make([]byte, 1))
	requireTimeout(t, err)
	require.NoError(t, a.SetReadDeadline(time.Time{}))
	n, err := a.Read(make([]byte, 1))
	require.NoError(t, err)
	require.Equal(t, 1, n)
}

func TestCloseDeliversWhatWasWritten(t *testing.T) {
	a, b := pair(t)
	_, err := a.Write([]byte("bye"))
	require.NoError(t, err)
	require.NoError(t, a.Close())
	require.NoError(t, a.Close(), "a second close is harmless")

	got, err := io.ReadAll(b)
	require.NoError(t, err)
	require.Equal(t, "bye", string(got))
	_, err = b.Write([]byte("x"))
	require.ErrorIs(t, err, syscall.EPIPE)

	_, err = a.Read(make([]byte, 1))
	require.ErrorIs(t, err, net.ErrClosed)
	_, err = a.Write([]byte("x"))
	require.ErrorIs(t, err, net.ErrClosed)
	require.ErrorIs(t, a.SetDeadline(time.Now()), net.ErrClosed)
}

func TestCloseWakesItsOwnReaderAndWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := pair(t)
		a.SetBuffer(1)
		errs := make(chan error, 2)
		go func() {
			_, err := a.Read(make([]byte, 1))
			errs <- err
		}()
		go func() {
			_, err := a.Write([]byte("12"))
			errs <- err
		}()
		synctest.Wait()
		a.Close()
		require.ErrorIs(t, <-errs, net.ErrClosed)
		require.ErrorIs(t, <-errs, net.ErrClosed)
	})
}

func TestCloseWriteLeavesTheOtherDirection(t *testing.T) {
	a, b := pair(t)
	require.NoError(t, a.CloseWrite())
	_, err := b.Read(make([]byte, 1))
	require.Equal(t, io.EOF, err)
	_, err = a.Write([]byte("x"))
	require.ErrorIs(t, err, syscall.EPIPE)

	_, err = b.Write([]byte("answer"))
	require.NoError(t, err)
	got := make([]byte, 6)
	_, err = io.ReadFull(a, got)
	require.NoError(t, err)
	require.Equal(t, "answer", string(got))
}

func TestResetBreaksBothEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pair(t)
		_, err := a.Write([]byte("lost"))
		require.NoError(t, err)
		waiting := make(chan error, 1)
		go func() {
			_, err := a.Read(make([]byte, 1))
			waiting <- err
		}()
		synctest.Wait()
		b.Reset()
		require.ErrorIs(t, <-waiting, syscall.ECONNRESET)
		for _, c := range []*memconn.Conn{a, b} {
			_, err = c.Read(make([]byte, 1))
			require.ErrorIs(t, err, syscall.ECONNRESET)
			_, err = c.Write([]byte("x"))
			require.ErrorIs(t, err, syscall.ECONNRESET)
			require.NoError(t, c.Close())
			_, err = c.Read(make([]byte, 1))
			require.ErrorIs(t, err, net.ErrClosed)
		}
	})
}

func TestHoldKeepsBytesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pair(t)
		a.Hold(true)
		_, err := a.Write([]byte("late"))
		require.NoError(t, err)
		require.NoError(t, b.SetReadDeadline(time.Now().Add(time.Hour)))
		_, err = b.Read(make([]byte, 4))
		requireTimeout(t, err)

		require.NoError(t, b.SetReadDeadline(time.Time{}))
		a.Hold(false)
		got := make([]byte, 4)
		_, err = io.ReadFull(b, got)
		require.NoError(t, err)
		require.Equal(t, "late", string(got))
	})
}

func TestHoldHidesTheClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pair(t)
		b.Hold(true)
		b.Close()
		_, err := a.Write([]byte("into the void"))
		require.NoError(t, err)
		require.NoError(t, a.SetReadDeadline(time.Now().Add(time.Hour)))
		_, err = a.Read(make([]byte, 1))
		requireTimeout(t, err)

		a.Hold(false)
		require.NoError(t, a.SetReadDeadline(time.Time{}))
		_, err = a.Read(make([]byte, 1))
		require.Equal(t, io.EOF, err)
		_, err = a.Write([]byte("x"))
		require.ErrorIs(t, err, syscall.EPIPE)
	})
}

func TestLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pair(t)
		delays := []time.Duration{300 * time.Millisecond, 100 * time.Millisecond}
		a.SetLatency(func() time.Duration {
			d := delays[0]
			delays = delays[1:]
			return d
		})
		start := time.Now()
		for _, s := range []string{"one", "two"} {
			_, err := a.Write([]byte(s))
			require.NoError(t, err)
		}
		a.Close()
		got := make([]byte, 10)
		n, err := b.Read(got)
		require.NoError(t, err)
		require.Equal(t, 300*time.Millisecond, time.Since(start))
		rest, err := io.ReadAll(b)
		require.NoError(t, err)
		require.Equal(t, "onetwo", string(got[:n])+string(rest),
			"the second write had the shorter way, yet does not overtake")
		require.Equal(t, 300*time.Millisecond, time.Since(start), "the end comes right behind")
	})
}

func TestLatencyAndDeadlineTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pair(t)
		a.SetLatency(func() time.Duration { return 2 * time.Second })
		_, err := a.Write([]byte("x"))
		require.NoError(t, err)
		require.NoError(t, b.SetReadDeadline(time.Now().Add(time.Second)))
		_, err = b.Read(make([]byte, 1))
		requireTimeout(t, err)
		require.NoError(t, b.SetReadDeadline(time.Now().Add(2*time.Second)))
		_, err = b.Read(make([]byte, 1))
		require.NoError(t, err)
	})
}

func TestAddresses(t *testing.T) {
	a, b := pair(t)
	require.Equal(t, "a:1", a.LocalAddr().String())
	require.Equal(t, "b:2", a.RemoteAddr().String())
	require.Equal(t, "b:2", b.LocalAddr().String())
	require.Equal(t, "mem", b.RemoteAddr().Network())
}

func TestSteadyTrafficDoesNotAllocate(t *testing.T) {
	a, b := pair(t)
	p := make([]byte, 100)
	far := time.Now().Add(time.Hour)
	run := func() {
		far = far.Add(time.Second)
		if err := a.SetDeadline(far); err != nil {
			t.Error(err)
		}
		if _, err := b.Write(p); err != nil {
			t.Error(err)
		}
		if _, err := io.ReadFull(a, p); err != nil {
			t.Error(err)
		}
	}
	run()
	require.Zero(t, testing.AllocsPerRun(1000, run))
}

func ExampleNetwork() {
	network := memconn.NewNetwork("hub:8883")
	defer network.Close()
	go func() {
		conn, err := network.Accept()
		if err != nil {
			return
		}
		io.WriteString(conn, "welcome")
		conn.Close()
	}()
	conn, err := network.DialContext(context.Background(), "tcp", "hub:8883")
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	io.Copy(os.Stdout, conn)
	network.Refuse(true)
	_, err = network.DialContext(context.Background(), "tcp", "hub:8883")
	os.Stdout.WriteString("\n" + err.Error())
	if !errors.Is(err, syscall.ECONNREFUSED) {
		panic(err)
	}
	// Output:
	// welcome
	// dial tcp hub:8883: connect: connection refused
}

// A link with a rate carries that many bytes per second. Its writer waits only when the send buffer
// is full.
func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pair(t)
		a.SetRate(10_000)
		a.SetSendBuffer(20_000)
		began := time.Now()
		written := make(chan time.Duration, 1)
		go func() {
			_, _ = a.Write(make([]byte, 50_000))
			written <- time.Since(began)
		}()
		for i, part := range []int{10_000, 40_000} {
			_, err := io.ReadFull(b, make([]byte, part))
			require.NoError(t, err)
			require.InDelta(t, []float64{1, 5}[i], time.Since(began).Seconds(), 0.15)
		}
		require.InDelta(t, 3, (<-written).Seconds(), 0.2)

		_, err := b.Write(make([]byte, 100))
		require.NoError(t, err)
		_, err = io.ReadFull(a, make([]byte, 100))
		require.NoError(t, err)
		require.InDelta(t, 5, time.Since(began).Seconds(), 0.15, "the other direction has a rate of its own")
	})
}

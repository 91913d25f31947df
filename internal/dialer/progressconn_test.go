package dialer

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker"
)

// slowPair returns a ProgressConn with a time-out of 10 s over a buffer of 1 KB, and its peer.
func slowPair(t *testing.T) (*ProgressConn, *memconn.Conn) {
	near, far := memconn.Pair("near", "far")
	near.SetSendBuffer(1 << 10)
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	return NewProgressConn(near, 10*time.Second), far
}

func TestAWriteWithoutProgressTimesOut(t *testing.T) {
	for name, row := range map[string]struct {
		peer func(far *memconn.Conn) // what the peer does meanwhile
		want time.Duration
	}{
		"the network is gone": {gone, 10 * time.Second},
		"the network is gone after a while": {func(far *memconn.Conn) {
			take(far, 5, 4*time.Second)
			gone(far)
		}, 29 * time.Second},
		"the network is gone behind a closed window": {func(far *memconn.Conn) {
			time.Sleep(20 * time.Second)
			gone(far)
		}, 50 * time.Second},
		"the peer's program hangs":         {func(*memconn.Conn) {}, 60 * time.Second},
		"the peer's program takes some":    {func(far *memconn.Conn) { take(far, 5, 4*time.Second) }, 78 * time.Second},
		"the peer takes nothing and talks": {talk, 60 * time.Second},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			l, far := slowPair(t)
			var wg sync.WaitGroup
			wg.Go(func() { _, _ = io.Copy(io.Discard, l) })
			wg.Go(func() { row.peer(far) })
			synctest.Wait()
			began := time.Now()
			_, err := l.Write(make([]byte, 50_000))
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			require.InDelta(t, row.want.Seconds(), time.Since(began).Seconds(), 2, "%v", time.Since(began))
			far.Reset()
			wg.Wait()
		})
	}
}

// gone loses all packets from now on.
func gone(far *memconn.Conn) { far.Hold(true) }

// talk writes every 3 s.
func talk(far *memconn.Conn) {
	for range 40 {
		time.Sleep(3 * time.Second)
		_, _ = far.Write([]byte("x"))
	}
}

// take reads 512 bytes, times times, with a pause before each read.
func take(c net.Conn, times int, pause time.Duration) {
	buf := make([]byte, 512)
	for range times {
		time.Sleep(pause)
		if _, err := io.ReadFull(c, buf); err != nil {
			return
		}
	}
}

// taking runs take on a goroutine that ends with the test.
func taking(t *testing.T, c net.Conn, times int, pause time.Duration) {
	var wg sync.WaitGroup
	wg.Go(func() { take(c, times, pause) })
	t.Cleanup(func() {
		_ = c.Close()
		wg.Wait()
	})
}

func TestAWriteWithProgressDoesNotTimeOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, far := slowPair(t)
		taking(t, far, 100, 5*time.Second) // 100 bytes per second
		began := time.Now()
		n, err := l.Write(make([]byte, 50_000))
		require.NoError(t, err)
		require.Equal(t, 50_000, n)
		require.GreaterOrEqual(t, time.Since(began), 8*time.Minute)
		at, _ := l.Progress()
		require.Equal(t, time.Now(), at)
	})
}

// A deadline passes in the middle of a TLS record, and the TLS connection survives it.
func TestTLSOverAProgressConn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, far := slowPair(t)
		cert := testbroker.NewClientCert("d", time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour))
		peer := tls.Server(slowReader{far}, &tls.Config{Certificates: []tls.Certificate{cert}})
		got := make(chan int64)
		go func() {
			_ = peer.Handshake()
			n, _ := io.Copy(io.Discard, peer)
			got <- n
		}()
		c := tls.Client(l, &tls.Config{InsecureSkipVerify: true}) // the certificate does not matter here
		_, err := c.Write(make([]byte, 40_000))
		require.NoError(t, err)
		_ = l.Close()
		require.EqualValues(t, 40_000, <-got)
	})
}

// slowReader waits 7 s before each Read, so that all looks but the first find no progress.
type slowReader struct{ net.Conn }

func (r slowReader) Read(p []byte) (int, error) {
	time.Sleep(7 * time.Second)
	return r.Conn.Read(p)
}

func TestSetWriteDeadlineEndsAWriteWithProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, far := slowPair(t)
		taking(t, far, 100, time.Second)
		began := time.Now()
		time.AfterFunc(20*time.Second, func() { _ = l.SetWriteDeadline(time.Now().Add(time.Second)) })
		_, err := l.Write(make([]byte, 50_000))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, 21*time.Second, time.Since(began))
		_, err = l.Write([]byte("x"))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded, "it is still over")
		require.Equal(t, 21*time.Second, time.Since(began))
		require.NoError(t, l.SetDeadline(time.Time{}))
		_, err = l.Write([]byte("x"))
		require.NoError(t, err)
		_ = far.Close()
	})
}

// Where the system does not tell what the peer's TCP does, a write gets more time.
func TestASocketOfWhichNothingIsKnownHasThreeTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, far := slowPair(t)
		l.queue = nil
		taking(t, far, 5, 25*time.Second)
		began := time.Now()
		_, err := l.Write(make([]byte, 50_000))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.InDelta(t, 153, time.Since(began).Seconds(), 2)
	})
}

// wrapped hides the connection below, as a caller's type may.
type wrapped struct{ net.Conn }

// layered exposes the connection below, as a *tls.Conn does.
type layered struct{ net.Conn }

func (l layered) NetConn() net.Conn { return l.Conn }

// It is unknown whether such a connection can continue after a time-out.
func TestAConnectionThatIsNoSocketHasOneTimeoutPerWrite(t *testing.T) {
	for _, wrap := range []func(net.Conn) net.Conn{
		func(c net.Conn) net.Conn { return wrapped{c} }, func(c net.Conn) net.Conn { return layered{c} },
	} {
		synctest.Test(t, func(t *testing.T) {
			near, far := memconn.Pair("near", "far")
			near.SetSendBuffer(1 << 10)
			taking(t, far, 100, time.Second)
			l := NewProgressConn(wrap(near), 10*time.Second)
			began := time.Now()
			_, err := l.Write(make([]byte, 50_000))
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			require.Equal(t, 10*time.Second, time.Since(began))
			_, _ = near.Close(), far.Close()
		})
	}
}

// A ProgressConn below another one does the work, with the time-out of the upper one.
func TestAProgressConnOverAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := memconn.Pair("near", "far")
		near.SetSendBuffer(1 << 10)
		l := NewProgressConn(layered{NewProgressConn(near, 0)}, 10*time.Second)
		taking(t, far, 20, 5*time.Second)
		began := time.Now()
		_, err := l.Write(make([]byte, 10_000))
		require.NoError(t, err)
		require.Greater(t, time.Since(began), 80*time.Second)
		at, waits := Progress(l)
		require.Equal(t, time.Now(), at)
		require.False(t, waits)
		require.NoError(t, l.SetWriteDeadline(time.Now().Add(time.Second)))
		began = time.Now()
		_, err = l.Write(make([]byte, 10_000))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, time.Second, time.Since(began))
		_, _ = near.Close(), far.Close()
	})
}

// kernel is a fake socket that takes all writes at once and reports its unsent bytes.
type kernel struct {
	net.Conn
	unsent int64
	sizes  []int // of the send buffer
}

func (k *kernel) Write(p []byte) (int, error) {
	k.unsent += int64(len(p))
	return len(p), nil
}
func (k *kernel) SetWriteBuffer(size int) error {
	k.sizes = append(k.sizes, size)
	return nil
}
func (k *kernel) SetWriteDeadline(time.Time) error { return nil }

// around is a connection around a socket, such as one with TLS.
type around struct{ net.Conn }

func (a around) NetConn() net.Conn { return a.Conn }

func lineOver(k *kernel) *ProgressConn { return lineOn(k, k) }

func lineOn(c net.Conn, k *kernel) *ProgressConn {
	l := NewProgressConn(c, 10*time.Second)
	l.queue = func() (int64, time.Time, bool) { return k.unsent, time.Time{}, true }
	return l
}

// The send buffer follows the rate of the link, so that it never holds what takes long to send.
func TestTheSendBufferGrowsOnAFastLink(t *testing.T) {
	for name, row := range map[string]struct {
		rate int // bytes per second
		want []int
	}{
		"600 KB/s":  {600_000, []int{64 << 10}},
		"1 MB/s":    {1_000_000, []int{64 << 10, 128 << 10}},
		"2 MB/s":    {2_000_000, []int{64 << 10, 128 << 10, 256 << 10}},
		"unlimited": {1 << 30, []int{64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20}},
		"unknown":   {1 << 30, []int{64 << 10}},
		"around":    {1 << 30, []int{64 << 10}},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			k := new(kernel)
			l := lineOver(k)
			switch name {
			case "unknown": // what is unsent
				l.queue = nil
			case "around": // nobody shrinks the buffer when a write waits
				k = new(kernel)
				l = lineOn(around{k}, k)
			}
			const chunk = 16 << 10
			for range 1000 {
				_, err := l.Write(make([]byte, chunk))
				require.NoError(t, err)
				time.Sleep(time.Second * chunk / time.Duration(row.rate))
			}
			require.Equal(t, row.want, k.sizes)
			require.Equal(t, len(row.want) > 1, fast(l))
		})
	}
}

func fast(socket net.Conn) bool { return Fast(socket, socket) }

// A link that becomes slow gets the small buffer again.
func TestTheSendBufferShrinksWhenAWriteWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := memconn.Pair("near", "far")
		sized := &sizedConn{Conn: near}
		l := NewProgressConn(sized, 10*time.Second)
		near.SetSendBuffer(1 << 20)
		_, err := l.Write(make([]byte, 1<<18))
		require.NoError(t, err)
		_, err = l.Write(make([]byte, 1<<18))
		require.NoError(t, err)
		require.Equal(t, []int{64 << 10, 128 << 10}, sized.sizes)
		require.True(t, fast(NewProgressConn(l, 10*time.Second)), "above it")
		_, err = l.Write(make([]byte, 1<<20)) // nobody reads
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, 64<<10, sized.sizes[len(sized.sizes)-1])
		require.False(t, fast(l))
		_, _ = near.Close(), far.Close()
	})
}

// sizedConn notes the sizes that its send buffer gets.
type sizedConn struct {
	*memconn.Conn
	sizes []int
}

func (c *sizedConn) SetWriteBuffer(size int) error {
	c.sizes = append(c.sizes, size)
	return nil
}

// Progress lasts while the kernel sends buffered data. A peer that accepts all data at once but
// does not answer makes none.
func TestProgressFollowsTheKernel(t *testing.T) {
	for name, row := range map[string]struct {
		rate int64         // bytes per second that the kernel sends
		want time.Duration // time of the last progress
	}{
		"nothing is sent":       {0, 0},
		"slowly":                {1000, 88 * time.Second},
		"at once":               {100_000, 0},
		"within the first look": {30_000, 0},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			k := new(kernel)
			l := lineOver(k)
			began := time.Now()
			_, err := l.Write(make([]byte, 100_000))
			require.NoError(t, err)
			at, _ := l.Progress()
			for range 120 {
				time.Sleep(time.Second)
				k.unsent = max(0, k.unsent-row.rate)
				if second := time.Since(began) / time.Second; second%4 == 0 {
					at, _ = l.Progress()
				}
			}
			if row.want == 0 {
				require.Zero(t, at)
			} else {
				require.InDelta(t, row.want.Seconds(), at.Sub(began).Seconds(), 8)
			}
		})
	}
}

// TCP acknowledgements keep a write alive that the socket does not accept yet, because Linux wants
// a third of the buffer free.
func TestAWriteWaitsWhileTheKernelSends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := memconn.Pair("near", "far")
		near.SetSendBuffer(1 << 10)
		l := NewProgressConn(near, 10*time.Second)
		began := time.Now()
		l.queue = func() (int64, time.Time, bool) { // 1,000 bytes per second are sent for 50 s
			return 100_000 - 1000*min(50, int64(time.Since(began)/time.Second)), time.Time{}, true
		}
		_, err := l.Write(make([]byte, 10_000))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.InDelta(t, 58, time.Since(began).Seconds(), 2)
		_, _ = near.Close(), far.Close()
	})
}

// A failure other than a time-out is returned to the caller at once.
func TestAFailedWriteIsNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, far := slowPair(t)
		time.AfterFunc(3*time.Second, far.Reset)
		began := time.Now()
		n, err := l.Write(make([]byte, 50_000))
		require.Error(t, err)
		require.False(t, errors.Is(err, os.ErrDeadlineExceeded))
		require.Equal(t, 1<<10, n)
		require.Equal(t, 3*time.Second, time.Since(began))
	})
}

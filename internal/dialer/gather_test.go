package dialer

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/testbroker"
)

// countedConn is a socket that counts its writes, and fails them if it is to.
type countedConn struct {
	*memconn.Conn
	writes atomic.Int32
	broken atomic.Bool
}

var errBroken = errors.New("broken")

func (c *countedConn) Write(p []byte) (int, error) {
	if c.broken.Load() {
		return len(p) / 2, errBroken
	}
	c.writes.Add(1)
	return c.Conn.Write(p)
}

// tlsPair returns a TLS connection, its peer, and the layers below it. The link is fast.
func tlsPair(t *testing.T, version uint16) (c, peer *tls.Conn, l *ProgressConn, socket *countedConn) {
	near, far := memconn.Pair("near", "far")
	socket = &countedConn{Conn: near}
	cert := testbroker.NewClientCert("d", time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour))
	peer = tls.Server(far, &tls.Config{Certificates: []tls.Certificate{cert}})
	shaken := make(chan error)
	go func() { shaken <- peer.Handshake() }()
	l = NewProgressConn(socket, 10*time.Second)
	c = tls.Client(l, &tls.Config{InsecureSkipVerify: true, MaxVersion: version}) // any certificate
	require.NoError(t, c.Handshake())
	require.NoError(t, <-shaken)
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	resize(l, 2*sendBuffer)
	return c, peer, l, socket
}

func resize(l *ProgressConn, size int) {
	l.mu.Lock()
	l.resizeLocked(size)
	l.mu.Unlock()
}

func TestTheRecordsOfALargeWriteGoTogetherOnAFastLink(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		synctest.Test(t, func(t *testing.T) { recordsGoTogether(t, version) })
	}
}

func recordsGoTogether(t *testing.T, version uint16) {
	c, peer, l, socket := tlsPair(t, version)
	var got bytes.Buffer
	ended := make(chan error)
	go func() {
		_, err := io.Copy(&got, peer)
		ended <- err
	}()
	var want []byte
	write := func(size int) int {
		p := bytes.Repeat([]byte{byte(len(want))}, size)
		before := socket.writes.Load()
		n, err := Write(c, l, p)
		require.NoError(t, err)
		require.Equal(t, size, n)
		require.Nil(t, l.gathered)
		want = append(want, p...)
		return int(socket.writes.Load() - before)
	}
	require.Equal(t, 1, write(FastWrite), "package tls begins with small records")
	for range 12 {
		write(record)
	}
	for _, row := range []struct{ size, writes int }{
		{1, 1}, {record, 1}, {record + 1000, 1}, {FastWrite, 1}, {FastWrite + record, 2}, {1 << 20, 13},
	} {
		require.Equal(t, row.writes, write(row.size), row.size)
	}
	resize(l, sendBuffer)
	require.Equal(t, 5, write(FastWrite), "progress is seen on a slow link")
	require.NoError(t, c.Close())
	require.NoError(t, <-ended)
	require.True(t, bytes.Equal(want, got.Bytes()))
}

// Records of other goroutines come before those that are held.
func TestRecordsDoNotOvertakeEachOther(t *testing.T) {
	c, peer, l, _ := tlsPair(t, tls.VersionTLS13)
	got := make(chan int64)
	go func() {
		n, err := io.Copy(io.Discard, peer)
		if err != nil {
			t.Error(err)
		}
		got <- n
	}()
	var wg sync.WaitGroup
	send := func(write func(p []byte) (int, error), times int, sizes ...int) {
		wg.Go(func() {
			for i := range times {
				if _, err := write(make([]byte, sizes[i%len(sizes)])); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	send(c.Write, 1000, 1, 1000)
	send(func(p []byte) (int, error) { return Write(c, l, p) }, 200, record+1, FastWrite, 300_000, 100)
	wg.Wait()
	require.NoError(t, c.Close())
	require.EqualValues(t, 500*1001+50*(record+1+FastWrite+300_000+100), <-got)
}

func TestRecordsThatWereNotWrittenEndTheConnection(t *testing.T) {
	for _, size := range []int{FastWrite, 1 << 20} {
		synctest.Test(t, func(t *testing.T) {
			c, _, l, socket := tlsPair(t, tls.VersionTLS13)
			socket.broken.Store(true)
			_, err := Write(c, l, make([]byte, size))
			require.ErrorIs(t, err, errBroken)
			socket.broken.Store(false)
			before := socket.writes.Load()
			for _, next := range []int{1, FastWrite} {
				_, err = Write(c, l, make([]byte, next))
				require.ErrorIs(t, err, errBroken, "nothing may stand behind a part of a record")
			}
			require.Equal(t, before, socket.writes.Load())
			require.Nil(t, l.gathered)
		})
	}
}

// As without gathering, Close does not wait for a write in progress.
func TestCloseEndsAWriteOfRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, l, socket := tlsPair(t, tls.VersionTLS13)
		socket.SetSendBuffer(1 << 10)
		wrote := make(chan error)
		go func() {
			_, err := Write(c, l, make([]byte, FastWrite)) // nobody reads
			wrote <- err
		}()
		synctest.Wait()
		began := time.Now()
		require.NoError(t, c.Close())
		require.ErrorIs(t, <-wrote, net.ErrClosed)
		require.Zero(t, time.Since(began))
	})
}

func TestAWriteOfRecordsWithoutProgressTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, l, socket := tlsPair(t, tls.VersionTLS13)
		socket.SetSendBuffer(1 << 10)
		began := time.Now()
		_, err := Write(c, l, make([]byte, FastWrite)) // nobody reads
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, 60*time.Second, time.Since(began), "the peer's kernel answers")
		require.False(t, Fast(c, l))
	})
}

// A handshake on an open connection, and an alert, are not held: somebody waits for them.
func TestOnlyDataIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := memconn.Pair("near", "far")
		l := NewProgressConn(near, 10*time.Second)
		g := l.gather(1000)
		const want = "\x17data\x17more\x16handshake\x17rest"
		for _, p := range []string{"\x17data", "\x17more", "\x16handshake", "\x17rest"} {
			_, err := l.Write([]byte(p))
			require.NoError(t, err)
		}
		l.scatter(g, true)
		got := make([]byte, len(want))
		_, err := io.ReadFull(far, got)
		require.NoError(t, err)
		require.Equal(t, want, string(got))
		_, _ = near.Close(), far.Close()
	})
}

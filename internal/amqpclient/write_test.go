package amqpclient

import (
	"crypto/tls"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/dialer"
	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/testbroker"
)

// countedConn counts its writes.
type countedConn struct {
	*memconn.Conn
	writes atomic.Int32
}

func (c *countedConn) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

func TestRecordsGoTogetherOnAFastLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := memconn.Pair("near", "far")
		counted := &countedConn{Conn: near}
		socket := dialer.NewProgressConn(counted, 10*time.Second)
		cert := testbroker.NewClientCert("d", time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour))
		peer := tls.Server(far, &tls.Config{Certificates: []tls.Certificate{cert}})
		go func() { _, _ = io.Copy(io.Discard, peer) }()
		c := &Conn{outer: tls.Client(socket, &tls.Config{InsecureSkipVerify: true}), socket: socket} // any certificate
		for range 100 {
			require.NoError(t, c.send(make([]byte, writeChunk)))
		}
		before := counted.writes.Load()
		require.NoError(t, c.send(make([]byte, 3*dialer.FastWrite)))
		require.EqualValues(t, 3, counted.writes.Load()-before)
		require.NoError(t, near.Close())
	})
}

package hubhttp

import (
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// net/http may report its own close of a connection that the hub has ended: the hub's end counts.
func TestTheHubsEndOfAConnectionCountsBeforeOurs(t *testing.T) {
	late := &net.OpError{Op: "write", Net: "tcp", Err: net.ErrClosed}
	for _, c := range []struct{ loss, err, want error }{
		{io.EOF, late, io.EOF},
		{io.EOF, io.ErrUnexpectedEOF, io.ErrUnexpectedEOF},
		{syscall.ECONNRESET, late, syscall.ECONNRESET},
		{nil, late, late},
	} {
		conn := &Conn{socket: &socket{err: c.loss}}
		require.Equal(t, c.want, conn.explain(t.Context(), c.err))
	}
}

package dialer

import (
	"errors"
	"io"
	"net"
)

// First marks the failure of the first exchange with a server, on an open connection. The port may
// speak another protocol.
type First struct {
	Err  error
	Want string // the protocol that the server should speak, such as "HTTP"
	// TLS is the scheme of URLs to use if the port expects TLS, such as "wss"; empty with TLS.
	TLS string
}

func (f First) Error() string { return f.Err.Error() }

// Unwrap returns the error inside.
func (f First) Unwrap() error { return f.Err }

// firstHint is the hint for a connection that the server ended instead of answering; empty for
// other failures.
func firstHint(err error) string {
	first, is := errors.AsType[First](err)
	if !is || InHandshake(err) {
		return ""
	}
	closed := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
	if read, is := errors.AsType[*net.OpError](err); is {
		closed = read.Op == "read" && !read.Timeout()
	}
	if !closed {
		return ""
	}
	hint := " in place of the first answer; this port may speak another protocol than " + first.Want
	if first.TLS != "" {
		hint += "; if it expects TLS, use " + first.TLS + ":// or leave netopt.Options.Plaintext unset"
	}
	return hint
}

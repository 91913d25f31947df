package retrypolicy

import "io"

// network recognizes errors of package net by their methods and system errors by their numbers. It
// does not import package net, which is too large for boards.
type network struct {
	inside bool // an enclosing error is of package net or net/url
}

// netError has the methods common to *net.OpError, *net.DNSError and *url.Error. Only a DNSError
// may wrap nothing.
type netError interface {
	Timeout() bool
	Temporary() bool
	Unwrap() error
}

// failure reports whether err is a network failure, and whether the operation is safe to repeat: a
// connection that was not established carried nothing. It is called from the outermost error
// inwards.
func (n *network) failure(err error) (Safe, bool) {
	switch made, ok := lostConnection(err); {
	case made:
		return SafeUnknown, true
	case ok:
		return SafeYes, true
	}
	//nolint:errorlint // of each error that Any walks to; the peer closed the connection
	if n.inside && (err == io.EOF || err == io.ErrUnexpectedEOF) {
		return SafeUnknown, true
	}
	if e, ok := err.(netError); ok {
		n.inside = true
		if e.Unwrap() == nil && !e.Timeout() { // a failed name look-up
			return SafeYes, true
		}
	}
	return SafeUnknown, false
}

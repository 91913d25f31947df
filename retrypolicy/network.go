package retrypolicy

import "io"

// network recognizes the errors of package net by their methods, and those of the system by their
// numbers. Package net is too large for boards.
type network struct {
	inside bool // an error of package net, or of net/url, is around what is seen now
}

// netError is what *net.OpError, *net.DNSError and *url.Error have in common. Of these only a
// DNSError may wrap nothing.
type netError interface {
	Timeout() bool
	Temporary() bool
	Unwrap() error
}

// failure reports whether err, seen from the outside in, is a failure of the network, and whether
// it is safe to repeat what it ended: a connection that was not made carried nothing.
func (n *network) failure(err error) (Safe, bool) {
	if made, ok := lostConnection(err); ok {
		if made {
			return SafeUnknown, true
		}
		return SafeYes, true
	}
	if n.inside && (err == io.EOF || err == io.ErrUnexpectedEOF) { // the peer hung up
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

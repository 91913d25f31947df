//go:build !linux

package http

import (
	"net"
	"time"
)

// boundSilence does nothing here. What the system thinks of a silent peer is up to it; the
// request's own time counts.
func boundSilence(net.Conn, time.Duration) {}

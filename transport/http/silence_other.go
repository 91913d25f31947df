//go:build !linux

package http

import (
	"net"
	"time"
)

// dialer makes connections. What the system thinks of a silent peer is up to it; the request's own time counts.
func dialer(time.Duration) *net.Dialer { return new(net.Dialer) }

//go:build !linux

package http

import (
	"net"
	"time"
)

// boundSilence does nothing on this system: the system's own TCP time-outs and the request's
// timeout apply.
func boundSilence(net.Conn, time.Duration) {}

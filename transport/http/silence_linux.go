package http

import (
	"net"
	"syscall"
	"time"
)

// userTimeout is TCP_USER_TIMEOUT of tcp(7), which package syscall has for some processors only.
const userTimeout = 0x12

// dialer makes connections that end when the peer's system acknowledges, or takes, nothing of what was sent for as long as silence. So a dead connection is told from a hub that answers late.
func dialer(silence time.Duration) *net.Dialer {
	return &net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, userTimeout, max(1, int(silence/time.Millisecond))) // without it the request's own time counts
		})
	}}
}

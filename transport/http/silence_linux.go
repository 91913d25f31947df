package http

import (
	"net"
	"syscall"
	"time"
)

// userTimeout is TCP_USER_TIMEOUT of tcp(7), which package syscall has for some processors only.
const userTimeout = 0x12

// boundSilence has c end when the peer's system acknowledges, or takes, nothing of what was sent
// for as long as silence. So a dead connection is told from a hub that answers late. c may be TLS
// with a proxy, or tell nothing of what lies below.
func boundSilence(c net.Conn, silence time.Duration) {
	for {
		over, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		c = over.NetConn()
	}
	s, ok := c.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		// without it the request's own time counts
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, userTimeout, max(1, int(silence/time.Millisecond)))
	})
}

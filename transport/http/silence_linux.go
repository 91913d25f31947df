package http

import (
	"net"
	"syscall"
	"time"
)

// userTimeout is TCP_USER_TIMEOUT of tcp(7), which package syscall defines only for some
// processors.
const userTimeout = 0x12

// boundSilence makes c fail when the peer's kernel does not acknowledge, or not accept, sent data
// for the duration of silence. That distinguishes a dead connection from a hub that answers late. c
// may be TLS to a proxy, or a type that hides the connection below.
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
		// on failure, the request's timeout applies alone
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, userTimeout, max(1, int(silence/time.Millisecond)))
	})
}

package dialer

import (
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// kernelQueue returns a function that asks the kernel about the socket c, nil if c is none.
func kernelQueue(c net.Conn) sendQueue {
	s, ok := c.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return nil
	}
	return func() (unsent int64, answered time.Time, ok bool) {
		var n int
		var info *unix.TCPInfo
		var failed error
		err := raw.Control(func(fd uintptr) {
			if n, failed = unix.IoctlGetInt(int(fd), unix.TIOCOUTQ); failed == nil && n > 0 {
				info, _ = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) // nil: not TCP
			}
		})
		if info != nil && info.Unacked == 0 {
			answered = time.Now().Add(-time.Duration(info.Last_ack_recv) * time.Millisecond)
		}
		return int64(n), answered, err == nil && failed == nil
	}
}

package dialer

import (
	"net"
	"syscall"
	"unsafe"
)

// unsent returns a function that reports the bytes that the peer's TCP has not acknowledged, nil if
// c does not support it.
func unsent(c net.Conn) func() (int64, bool) {
	s, ok := c.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return nil
	}
	return func() (int64, bool) {
		var n int32
		var failed syscall.Errno
		err := raw.Control(func(fd uintptr) {
			_, _, failed = syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TIOCOUTQ, uintptr(unsafe.Pointer(&n)))
		})
		return int64(n), err == nil && failed == 0
	}
}

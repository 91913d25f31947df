//go:build windows && !tinygo

package retrypolicy

import "syscall"

// Error numbers of Windows Sockets that package syscall does not define.
const (
	wsaAddrNotAvail syscall.Errno = 10049
	wsaNetDown      syscall.Errno = 10050
	wsaNetUnreach   syscall.Errno = 10051
	wsaNetReset     syscall.Errno = 10052
	wsaConnAborted  syscall.Errno = 10053
	wsaConnReset    syscall.Errno = 10054
	wsaNotConn      syscall.Errno = 10057
	wsaShutdown     syscall.Errno = 10058
	wsaConnRefused  syscall.Errno = 10061
	wsaHostDown     syscall.Errno = 10064
	wsaHostUnreach  syscall.Errno = 10065
)

// lostConnection reports whether err is the errno of a failed connection (ok), and whether the
// connection had been established (made).
func lostConnection(err error) (made, ok bool) {
	n, _ := err.(syscall.Errno) // 0, which is no failure, for another error
	switch n {
	case wsaConnRefused, wsaHostUnreach, wsaNetUnreach, wsaHostDown, wsaAddrNotAvail:
		return false, true
	case wsaConnReset, wsaConnAborted, wsaNetDown, wsaNetReset, wsaNotConn, wsaShutdown:
		return true, true
	}
	return false, false
}

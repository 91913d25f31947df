//go:build windows && !tinygo

package retrypolicy

import "syscall"

// The numbers of Windows Sockets that package syscall does not name.
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

// lostConnection reports whether err is the number of a connection that failed, and whether there
// was one.
func lostConnection(err error) (made, ok bool) {
	n, ok := err.(syscall.Errno)
	if !ok {
		return false, false
	}
	switch n {
	case wsaConnRefused, wsaHostUnreach, wsaNetUnreach, wsaHostDown, wsaAddrNotAvail:
		return false, true
	case wsaConnReset, wsaConnAborted, wsaNetDown, wsaNetReset, wsaNotConn, wsaShutdown:
		return true, true
	}
	return false, false
}

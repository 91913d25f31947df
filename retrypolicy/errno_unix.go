//go:build unix && !tinygo

package retrypolicy

import "syscall"

// lostConnection reports whether err is the errno of a failed connection (ok), and whether the
// connection had been established (made).
func lostConnection(err error) (made, ok bool) {
	n, _ := err.(syscall.Errno) // 0, which is no failure, for another error
	switch n {
	case syscall.ECONNREFUSED, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EHOSTDOWN, syscall.EADDRNOTAVAIL:
		return false, true
	case syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPIPE, syscall.ENETDOWN, syscall.ENETRESET, syscall.ENOTCONN,
		syscall.ESHUTDOWN:
		return true, true
	}
	return false, false
}

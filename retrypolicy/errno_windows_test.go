//go:build !tinygo

package retrypolicy_test

import "syscall"

// native returns the error number of Windows Sockets for one that package syscall made up.
func native(n syscall.Errno) syscall.Errno {
	switch n {
	case syscall.ECONNREFUSED:
		return 10061 // WSAECONNREFUSED
	case syscall.EHOSTUNREACH:
		return 10065 // WSAEHOSTUNREACH
	case syscall.ECONNRESET:
		return 10054 // WSAECONNRESET
	case syscall.EPIPE:
		return 10058 // WSAESHUTDOWN
	}
	return n
}

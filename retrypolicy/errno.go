//go:build (unix || windows) && !tinygo

package retrypolicy

import (
	"slices"
	"syscall"
)

// The numbers of failed connections, and after them those of Windows Sockets, which no other system
// has.
var (
	connectionNotMade = []syscall.Errno{syscall.ECONNREFUSED, syscall.EHOSTUNREACH, syscall.ENETUNREACH,
		syscall.EHOSTDOWN, syscall.EADDRNOTAVAIL, 10061, 10065, 10051, 10064, 10049}
	connectionBroke = []syscall.Errno{syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPIPE, syscall.ENETDOWN,
		syscall.ENETRESET, syscall.ENOTCONN, syscall.ESHUTDOWN, 10054, 10053, 10050, 10052, 10057, 10058}
)

// lostConnection reports whether err is the errno of a failed connection (ok), and whether the
// connection had been established (made).
func lostConnection(err error) (made, ok bool) {
	n, _ := err.(syscall.Errno) // 0, which is no failure, for another error
	made = slices.Contains(connectionBroke, n)
	return made, made || slices.Contains(connectionNotMade, n)
}

package testkit

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// Serve opens a port of this machine, calls serve for each connection, one after the other, and
// closes it. The port is closed at the end of the test.
func Serve(t testing.TB, serve func(c net.Conn)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serve(c)
			_ = c.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-served
	})
	return l.Addr().String()
}

// HangUp reads once, as a server does that gets another protocol than its own. The connection ends
// in good order, or with RST.
func HangUp(reset bool) func(c net.Conn) {
	return func(c net.Conn) {
		_, _ = c.Read(make([]byte, 1<<16))
		if reset {
			_ = c.(*net.TCPConn).SetLinger(0)
		}
	}
}

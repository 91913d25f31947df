package main

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"syscall"
)

// highPorts are the ports that are used without the right to use those of the service.
var highPorts = map[string]string{"443": "8443"}

// listenHigh opens a port above 1024 in place of one that needs a right: the usual one, or a free
// one.
func listenHigh(l listener, at portFlag) (net.Addr, error) {
	host, _, err := net.SplitHostPort(*at.addr)
	if err != nil {
		return nil, err
	}
	addr, err := l.Listen(at.port, net.JoinHostPort(host, cmp.Or(highPorts[at.number], "0")))
	if errors.Is(err, syscall.EADDRINUSE) {
		addr, err = l.Listen(at.port, net.JoinHostPort(host, "0"))
	}
	return addr, err
}

// highPortNote says what the other port means for clients.
func highPortNote(at portFlag, addr net.Addr) string {
	return fmt.Sprintf("%s is at %s, because ports below 1024 need a right: the Azure SDKs for Node.js and C# know "+
		"only %s, so for them run testhub as root, or give it CAP_NET_BIND_SERVICE", at.name, addr, at.number)
}

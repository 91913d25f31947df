package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
)

// leastToken is how many characters a token has at least.
const leastToken = 16

// usualControl is the address of the control API unless another one is given: a browser finds the
// page there again after a restart.
const usualControl = "127.0.0.1:8880"

// completeControl sets the default address of the control API, and checks it and its token. An
// address that other machines can reach needs a token; if none is given it is made.
func (s *settings) completeControl(free bool) error {
	if s.control == "" {
		s.control, s.freeControl = usualControl, true
		if free {
			s.control = "127.0.0.1:0"
		}
	}
	if err := checkAddress("control", s.control); err != nil {
		return err
	}
	if len(s.token) > 0 && len(s.token) < leastToken {
		return fmt.Errorf("flag -control-token: it has %d characters; give %d at least, or leave the flag out",
			len(s.token), leastToken)
	}
	if strings.IndexFunc(s.token, func(r rune) bool { return r <= ' ' || r > '~' }) >= 0 {
		return errors.New("flag -control-token: it has characters that a header cannot have; give ASCII without spaces")
	}
	if host, _, _ := net.SplitHostPort(s.control); s.control != off && !isLoopback(host) && s.token == "" {
		s.token = rand.Text()
	}
	return nil
}

// listenControl opens the port of the control API.
func (s *settings) listenControl() (net.Listener, error) {
	l, err := net.Listen("tcp", s.control)
	if errors.Is(err, syscall.EADDRINUSE) && s.freeControl {
		l, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		return nil, listenError("control", s.control, err)
	}
	return l, nil
}

// controlURL is the address for people and programs. An unspecified address becomes localhost.
func controlURL(at net.Addr) string {
	host, port, _ := net.SplitHostPort(at.String())
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return "http://" + net.JoinHostPort(host, port)
}

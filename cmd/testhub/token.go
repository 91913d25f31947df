package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strings"
)

// leastToken is how many characters a token has at least.
const leastToken = 16

// completeControl checks the address of the control API and its token. An address that other
// machines can reach needs a token; if none is given it is made.
func (s *settings) completeControl() error {
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

// controlURL is the address for people and programs. An unspecified address becomes localhost.
func controlURL(at net.Addr) string {
	host, port, _ := net.SplitHostPort(at.String())
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return "http://" + net.JoinHostPort(host, port)
}

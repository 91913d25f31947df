package main

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
)

// A guard decides which requests reach the control API. A web page of another site can send
// requests to this machine, also by a host name of its own (DNS rebinding); its browser then states
// the origin, the site and the host name, which the guard checks.
type guard struct {
	token string // empty on loopback, where only programs of this machine can connect
}

// check returns why the request is refused, or nil.
func (g *guard) check(r *http.Request) *refusal {
	if r.Method == http.MethodGet && r.URL.Path == "/health" {
		return nil // tells nothing, and health checks know neither names nor tokens
	}
	forbidden := func(field, problem, fix string) *refusal {
		return &refusal{status: http.StatusForbidden, Field: field, Problem: problem, Fix: fix}
	}
	if origins := r.Header.Values("Origin"); len(origins) > 0 && (len(origins) > 1 || origins[0] != "http://"+r.Host) {
		return forbidden("Origin", "the request comes from a web page of another site",
			"send it from a program, or from the page at the address of the control API")
	}
	if !g.ownSite(r) {
		return forbidden("Sec-Fetch-Site", "the request comes from a web page of another site",
			"send it from a program, or from the page at the address of the control API")
	}
	if g.token == "" && !isLoopback(hostOf(r)) {
		return forbidden("Host", "the request names another host than loopback",
			"send it to 127.0.0.1, [::1] or localhost")
	}
	// The files of the page are no secret, and a browser cannot send a token with its first request.
	if g.token != "" && !wantsPage(r) && !g.knows(r) {
		return &refusal{status: http.StatusUnauthorized, Field: "Authorization", Problem: "the token is missing or wrong",
			Fix: "send Authorization: Bearer and the token of the flag -control-token, which testhub prints at its start"}
	}
	return nil
}

// ownSite reports whether a browser states that the request is its own or that of the page. A link
// on another site may open the page, which has no effect by itself.
func (g *guard) ownSite(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
		return true
	}
	return wantsPage(r) && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
}

// knows reports whether the request has the token. It compares digests, whose time tells nothing.
func (g *guard) knows(r *http.Request) bool {
	given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	a, b := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(g.token))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1 && ok
}

// hostOf returns the host of the request without its port.
func hostOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		return strings.Trim(r.Host, "[]")
	}
	return host
}

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
	if err != nil && s.freeControl { // systems have errors of their own for a port that is taken
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

package workload

import (
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/hubline-iot/hubline/internal/memconn"
)

// errClosed is returned by Listen after Close.
var errClosed = fmt.Errorf("workload: %w", net.ErrClosed)

// An endpoint is an address on which the server listens. Guarded by Server.mu.
type endpoint struct {
	network, addr string // addr with the actual port number
	listener      net.Listener
}

// uri returns the address in the form of IOTEDGE_WORKLOADURI.
func (e *endpoint) uri() string {
	if e.network == "unix" {
		return "unix://" + e.addr
	}
	return "http://" + e.addr
}

// Listen opens an address and returns it: network "unix" with the path of a socket, which is
// removed by Close, or "tcp" with a host and a port, where port 0 means a free one. The path must
// not exist.
func (s *Server) Listen(network, addr string) (net.Addr, error) {
	if network != "unix" && network != "tcp" {
		return nil, fmt.Errorf("workload: listen: network %q; give unix or tcp", network)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errClosed
	}
	l, err := net.Listen(network, addr)
	if err != nil {
		return nil, fmt.Errorf("workload: %w", err)
	}
	e := &endpoint{network: network, addr: l.Addr().String()}
	s.endpoints = append(s.endpoints, e)
	s.openLocked(e, l)
	s.reconcileLocked()
	return l.Addr(), nil
}

func (s *Server) openLocked(e *endpoint, l net.Listener) {
	e.listener = l
	s.wg.Go(func() { s.http.Serve(l) })
}

// Stop makes the server unreachable, like a daemon that restarts: it cuts all connections, removes
// its Unix sockets, resets new connections over TCP, and refuses those in memory. A TCP port stays
// open, because another program could take it. A second Stop does nothing.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	s.reconcileLocked()
}

// Start ends [Server.Stop]. It fails when a socket cannot be made again, for example because
// another program has made one at its path; Start can then be called again.
func (s *Server) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = false
	return s.reconcileLocked()
}

// Stopped reports whether clients cannot reach the server: it is stopped, closed, or FaultAbsent.
func (s *Server) Stopped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed || s.absentLocked()
}

// absentLocked reports whether clients cannot reach the server.
func (s *Server) absentLocked() bool {
	return s.stopped || s.inForceLocked(FaultAbsent)
}

// reconcileLocked brings sockets and connections in line with absentLocked.
func (s *Server) reconcileLocked() error {
	if s.closed {
		return nil
	}
	absent := s.absentLocked()
	s.memory.Refuse(absent)
	if absent {
		for c := range s.conns {
			abort(c)
		}
	}
	var errs []error
	for _, e := range s.endpoints {
		switch {
		case e.network != "unix":
		case absent && e.listener != nil:
			e.listener.Close() // removes the socket
			e.listener = nil
		case !absent && e.listener == nil:
			l, err := net.Listen(e.network, e.addr)
			if err != nil {
				errs = append(errs, fmt.Errorf("workload: %w", err))
				continue
			}
			s.openLocked(e, l)
		}
	}
	return errors.Join(errs...)
}

func (s *Server) closeEndpointsLocked() error {
	var errs []error
	for _, e := range s.endpoints {
		if e.listener != nil {
			errs = append(errs, e.listener.Close())
		}
	}
	return errors.Join(errs...)
}

// track follows the life of each connection. The server calls it, for a new connection before its
// first request.
func (s *Server) track(c net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch state {
	case http.StateNew:
		if s.closed || s.absentLocked() {
			abort(c)
		}
		if !s.closed {
			s.conns[c] = struct{}{}
			s.wg.Add(1)
		}
	case http.StateClosed, http.StateHijacked:
		if _, ok := s.conns[c]; ok {
			delete(s.conns, c)
			s.wg.Done()
		}
	case http.StateActive, http.StateIdle:
	}
}

// abort ends a connection, with RST where it can.
func abort(c net.Conn) {
	switch c := c.(type) {
	case *memconn.Conn:
		c.Reset()
	case *net.TCPConn:
		c.SetLinger(0)
	}
	c.Close()
}

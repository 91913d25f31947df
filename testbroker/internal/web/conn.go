package web

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
)

// errIdleHTTP is the cause of a connection's end when the client sent no complete request in time.
var errIdleHTTP = errors.New("client sent no request in time")

// A Front passes connections to the server of package net/http, which implements HTTP/1.1 and
// HTTP/2. To the server it is a listener. The first connection starts the server.
type Front struct {
	hub    *hub.Hub
	routes []Route
	start  sync.Once
	conns  chan net.Conn

	Refusals atomic.Uint64 // counts refused requests, to number them
}

var (
	_ net.Listener = (*Front)(nil)
	_ hub.Front    = (*Front)(nil)
)

func New(h *hub.Hub, routes []Route) *Front {
	return &Front{hub: h, routes: routes, conns: make(chan net.Conn)}
}

// Below puts a modeConn below TLS, and offers both versions of HTTP.
func (f *Front) Below(c *hub.Conn) (net.Conn, []string) {
	offer := []string{"h2", "http/1.1"}
	if f.hub.HTTP.NoHTTP2 {
		offer = offer[1:]
	}
	return &modeConn{Conn: c.Raw, c: c}, offer
}

func (f *Front) MethodTarget(identity.Identity, string) hub.MethodTarget { return nil }

func (f *Front) DesiredListeners(identity.Identity) []hub.DesiredListener { return nil }

func (f *Front) Forget(string) {}

func (f *Front) Shutdown() error { return nil }

// Accept waits for the next connection.
func (f *Front) Accept() (net.Conn, error) {
	select {
	case c := <-f.conns:
		return c, nil
	case <-f.hub.Done:
		return nil, net.ErrClosed
	}
}

// Close does nothing: the front ends with the hub.
func (f *Front) Close() error { return nil }

// Addr returns a placeholder.
func (f *Front) Addr() net.Addr { return memconn.Addr("hub") }

// give passes a connection to the server; false when the hub is closed. Only a goroutine of the hub
// may call it.
func (f *Front) give(c net.Conn) bool {
	f.start.Do(func() {
		o := f.hub.HTTP
		server := &http.Server{
			Handler:           http.HandlerFunc(f.handle),
			ReadHeaderTimeout: o.HeaderTimeout,
			ReadTimeout:       o.RequestTimeout,
			IdleTimeout:       o.IdleTimeout,
			MaxHeaderBytes:    o.MaxHeader,
			ErrorLog:          log.New(io.Discard, "", 0),
			ConnContext: func(ctx context.Context, c net.Conn) context.Context {
				return context.WithValue(ctx, connKey{}, connOf(c))
			},
			ConnState: func(c net.Conn, s http.ConnState) {
				switch s {
				case http.StateActive:
					connOf(c).C.Heard()
				case http.StateClosed:
					connOf(c).end()
				case http.StateNew, http.StateIdle, http.StateHijacked: // the client has not done anything new
				}
			},
		}
		f.hub.Wg.Go(func() { server.Serve(f) })
	})
	select {
	case f.conns <- c:
		return true
	case <-f.hub.Done:
		return false
	}
}

// handle is the server's request handler.
func (f *Front) handle(w http.ResponseWriter, r *http.Request) {
	a := r.Context().Value(connKey{}).(*Conn)
	if !a.enter() {
		panic(http.ErrAbortHandler) // a late stream of an ended connection
	}
	defer a.leave()
	defer func() {
		switch p := recover(); p {
		case nil:
		case http.ErrAbortHandler:
			panic(p)
		default: // the server would recover it
			go panic(fmt.Sprintf("testbroker: %v\n%s", p, debug.Stack()))
		}
	}()
	a.request(w, r)
}

type connKey struct{}

// connOf returns the Conn of a connection that was passed to the server.
func connOf(c net.Conn) *Conn {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	return c.(*modeConn).http
}

// A Conn is the hub's state of a connection over HTTP. Many devices may send requests on it, over
// HTTP/2 concurrently.
type Conn struct {
	Hub      *hub.Hub
	Front    *Front
	C        *hub.Conn
	over     sync.Once
	ended    chan struct{}    // closed when the server, or the hijacker, has finished with the connection
	upgraded chan struct{}    // closed when the connection has become a WebSocket
	next     hubdata.Protocol // the protocol on the WebSocket; set before upgraded is closed

	mu       sync.Mutex                     // guards the fields below
	who      map[identity.Identity]struct{} // identities whose requests were authenticated
	met      map[identity.Identity]struct{} // identities whose first request has passed the faults of a connect
	reported bool                           // an event reported the connection
	closed   bool                           // no new requests
	handlers sync.WaitGroup                 // grows only while closed is false
	err      error                          // the error of Read
}

// Serve serves a connection from the first byte of HTTP to the end. It returns the protocol on the
// WebSocket if the connection has become one.
func (f *Front) Serve(c *hub.Conn) (hubdata.Protocol, error) {
	h := f.hub
	if c.Mode.Load() != hub.Open {
		c.Drain()
		return 0, net.ErrClosed
	}
	a := &Conn{
		Hub: h, Front: f, C: c, ended: make(chan struct{}), upgraded: make(chan struct{}),
		who: make(map[identity.Identity]struct{}), met: make(map[identity.Identity]struct{}),
	}
	under := c.Under.(*modeConn)
	under.http = a
	top := net.Conn(under)
	if c.TLS != nil {
		if err := c.TLS.HandshakeContext(context.Background()); err != nil { // bounded by the connection's deadline
			return 0, err
		}
		top = c.TLS
	}
	c.SetPeer(a)
	c.SetDeadline(time.Time{})
	if !f.give(top) {
		return 0, hub.ErrClosed
	}
	select {
	case <-a.upgraded:
		a.handlers.Wait()
		c.SetPeer(nil)
		c.SetDeadline(time.Now().Add(hub.ConnectLimit))
		return a.next, nil
	case <-a.ended:
	}
	if mode := c.Mode.Load(); mode == hub.Silent || mode == hub.Draining {
		io.Copy(io.Discard, c.Raw) // below TLS, because the server may still read from TLS
	}
	a.mu.Lock()
	a.closed = true
	err := a.err
	a.mu.Unlock()
	a.handlers.Wait()
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return 0, errIdleHTTP
	case err == nil, errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed):
		return 0, hub.ErrDisconnect
	}
	return 0, err
}

var _ hub.Peer = (*Conn)(nil)

func (a *Conn) Matches(selector string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(identity.Matching(a.who, selector)) > 0
}

// Present returns false: the registry does not count HTTP requests as a connection.
func (a *Conn) Present(identity.Identity, bool) bool { return false }

func (a *Conn) Leave() {}

func (a *Conn) enter() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return false
	}
	a.handlers.Add(1)
	return true
}

func (a *Conn) leave() { a.handlers.Done() }

// end reports that the server has finished with the connection.
func (a *Conn) end() { a.over.Do(func() { close(a.ended) }) }

// Admit reports that a client has acted for an identity, once.
func (a *Conn) Admit(id identity.Identity) {
	h := a.Hub
	a.C.Candidate(id)
	a.mu.Lock()
	_, again := a.who[id]
	if id == (identity.Identity{}) || again || a.closed {
		a.mu.Unlock()
		return
	}
	a.who[id] = struct{}{}
	a.reported = true
	a.mu.Unlock()
	a.C.SetLive(a.serves)
	h.Event(event.Event{Kind: event.Connected, DeviceID: id.Device, ModuleID: id.Module}, a.C)
	h.Changed.Wake()
}

// serves reports whether an identity is authenticated at present.
func (a *Conn) serves() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.who) > 0
}

// Refused reports that a request was refused, for an identity or none.
func (a *Conn) Refused(r *http.Request, id identity.Identity, status int, why error) {
	a.Served()
	a.Hub.Event(event.Event{
		Kind: event.Refused, DeviceID: id.Device, ModuleID: id.Module, Status: status,
		Name: r.Method + " " + r.URL.EscapedPath(), // without the query, which may hold a signature
		Err:  why,
	}, a.C)
}

// Served records that the client got an answer, so that the end of the connection is not reported
// as a refusal.
func (a *Conn) Served() {
	a.mu.Lock()
	a.reported = true
	a.mu.Unlock()
}

// Expel reports that the identities that match a selector are disconnected. Their next requests are
// refused.
func (a *Conn) Expel(selector string, cause error, _ string) {
	h := a.Hub
	a.mu.Lock()
	who := identity.Matching(a.who, selector)
	for _, id := range who {
		delete(a.who, id)
	}
	a.mu.Unlock()
	a.C.SetLive(a.serves)
	for _, id := range who {
		h.Event(event.Event{Kind: event.Disconnected, DeviceID: id.Device, ModuleID: id.Module, Err: cause}, a.C)
	}
	h.Changed.Wake()
}

// Finish reports the end of the connection.
func (a *Conn) Finish(cause error, _, _ bool) {
	h := a.Hub
	a.mu.Lock()
	who, reported := identity.Matching(a.who, ""), a.reported
	clear(a.who)
	a.mu.Unlock()
	for _, id := range who {
		h.Event(event.Event{Kind: event.Disconnected, DeviceID: id.Device, ModuleID: id.Module, Err: cause}, a.C)
	}
	if len(who) == 0 && !reported {
		h.Unserved(a.C, cause)
	}
}

// A modeConn carries HTTP, or TLS below it. It is the network connection with the modes of the
// hub's Conn applied.
type modeConn struct {
	net.Conn
	c    *hub.Conn
	http *Conn // set before the server gets the connection

	pastDeadline atomic.Bool // the server has set a deadline in the past to end its own Read
}

// Read reads from the connection. On a half-open connection it returns no data.
func (k *modeConn) Read(p []byte) (int, error) {
	for {
		n, err := k.Conn.Read(p)
		if err != nil && k.http != nil && !k.pastDeadline.Load() {
			k.http.mu.Lock()
			k.http.err = err
			k.http.mu.Unlock()
		}
		if mode := k.c.Mode.Load(); err != nil || mode == hub.Open || mode == hub.Over {
			return n, err
		}
	}
}

// Write sends bytes, or drops them when the connection is half-open.
func (k *modeConn) Write(p []byte) (int, error) {
	if k.c.Mode.Load() == hub.Silent {
		return len(p), nil
	}
	n, err := k.Conn.Write(p)
	if errors.Is(err, hub.ErrSlowReader) {
		k.c.CutFor(hub.ErrSlowReader)
	}
	return n, err
}

// Close ends the connection. When the mode is Silent or Draining, the hub's goroutine ends it
// later.
func (k *modeConn) Close() error {
	if mode := k.c.Mode.Load(); mode == hub.Silent || mode == hub.Draining {
		return nil
	}
	k.c.Leave(hub.Over)
	return k.Conn.Close()
}

// CloseWrite ends the outgoing direction.
func (k *modeConn) CloseWrite() error {
	if s, ok := k.Conn.(interface{ CloseWrite() error }); ok && k.c.Mode.Load() == hub.Open {
		return s.CloseWrite()
	}
	return nil
}

// SetDeadline is SetReadDeadline, because Write never blocks.
func (k *modeConn) SetDeadline(t time.Time) error { return k.SetReadDeadline(t) }

// SetReadDeadline sets the server's deadline while the mode is Open.
func (k *modeConn) SetReadDeadline(t time.Time) error {
	k.pastDeadline.Store(!t.IsZero() && !t.After(time.Now()))
	return k.c.LimitRead(t)
}

// SetWriteDeadline does nothing.
func (k *modeConn) SetWriteDeadline(time.Time) error { return nil }

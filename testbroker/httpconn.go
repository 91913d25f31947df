package testbroker

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
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hubline-iot/hubline/internal/memconn"
)

// errIdleHTTP is the cause of the end of a connection over HTTP that sent no request, or only a
// part of one, in time.
var errIdleHTTP = errors.New("client sent no request in time")

// A webFront hands connections to the server of package net/http, which speaks HTTP/1.1 and HTTP/2
// on them. To the server it is a listener. The server is made when the first connection comes.
type webFront struct {
	hub    *Hub
	routes []httpRoute
	start  sync.Once
	conns  chan net.Conn

	refusals atomic.Uint64 // requests refused, to tell them apart
}

var (
	_ net.Listener = (*webFront)(nil)
	_ front        = (*webFront)(nil)
)

func newWebFront(h *Hub, routes []httpRoute) *webFront {
	return &webFront{hub: h, routes: routes, conns: make(chan net.Conn)}
}

// below puts a cable under TLS, and offers both versions of HTTP.
func (f *webFront) below(c *conn) (net.Conn, []string) {
	offer := []string{"h2", "http/1.1"}
	if f.hub.http.NoHTTP2 {
		offer = offer[1:]
	}
	return &cable{Conn: c.raw, c: c}, offer
}

func (f *webFront) methodTargetLocked(identity, string) methodTarget { return nil }

func (f *webFront) desiredListenersLocked(identity) []desiredListener { return nil }

func (f *webFront) forgetLocked(string) {}

func (f *webFront) close() error { return nil }

// Accept waits for the next connection.
func (f *webFront) Accept() (net.Conn, error) {
	select {
	case c := <-f.conns:
		return c, nil
	case <-f.hub.done:
		return nil, net.ErrClosed
	}
}

// Close does nothing: the front ends with the hub.
func (f *webFront) Close() error { return nil }

// Addr is a name.
func (f *webFront) Addr() net.Addr { return memconn.Addr("hub") }

// give has the server serve a connection; false when the hub is closed. Only a goroutine of the hub
// may call it.
func (f *webFront) give(c net.Conn) bool {
	f.start.Do(func() {
		o := f.hub.http
		server := &http.Server{
			Handler:           http.HandlerFunc(f.handle),
			ReadHeaderTimeout: o.HeaderTimeout,
			ReadTimeout:       o.RequestTimeout,
			IdleTimeout:       o.IdleTimeout,
			MaxHeaderBytes:    o.MaxHeader,
			ErrorLog:          log.New(io.Discard, "", 0),
			ConnContext: func(ctx context.Context, c net.Conn) context.Context {
				return context.WithValue(ctx, httpConnKey{}, httpConnOf(c))
			},
			ConnState: func(c net.Conn, s http.ConnState) {
				if s == http.StateClosed {
					httpConnOf(c).end()
				}
			},
		}
		f.hub.wg.Go(func() { server.Serve(f) })
	})
	select {
	case f.conns <- c:
		return true
	case <-f.hub.done:
		return false
	}
}

// handle is the server's handler.
func (f *webFront) handle(w http.ResponseWriter, r *http.Request) {
	a := r.Context().Value(httpConnKey{}).(*httpConn)
	if !a.enter() {
		panic(http.ErrAbortHandler) // a late stream of a connection that is over
	}
	defer a.leave()
	defer func() {
		switch p := recover(); p {
		case nil:
		case http.ErrAbortHandler:
			panic(p)
		default: // the server would hide it
			go panic(fmt.Sprintf("testbroker: %v\n%s", p, debug.Stack()))
		}
	}()
	a.request(w, r)
}

type httpConnKey struct{}

// httpConnOf finds what the hub knows of a connection that it gave to the server.
func httpConnOf(c net.Conn) *httpConn {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	return c.(*cable).http
}

// An httpConn is a connection over HTTP as the hub sees it. Requests of many devices may come on
// it, and over HTTP/2 at the same time.
type httpConn struct {
	hub      *Hub
	front    *webFront
	c        *conn
	over     sync.Once
	ended    chan struct{} // closed when the server, or who took the connection from it, is through
	upgraded chan struct{} // closed when it has become a WebSocket
	next     Protocol      // what is spoken on that; set before

	// Guarded by Hub.mu.
	who      map[identity]struct{} // those whose requests were authenticated
	met      map[identity]struct{} // those whose first request has passed the faults of a connect
	told     bool                  // an event told of the connection
	closed   bool                  // no request begins any more
	handlers sync.WaitGroup        // grows only while closed is false
	err      error                 // that reading ended with
}

// serve is the life of a connection from the first byte of HTTP on. It returns the protocol of the
// WebSocket that the connection has become.
func (f *webFront) serve(c *conn) (Protocol, error) {
	h := f.hub
	if c.mode.Load() != open {
		c.drain()
		return 0, net.ErrClosed
	}
	a := &httpConn{
		hub: h, front: f, c: c, ended: make(chan struct{}), upgraded: make(chan struct{}),
		who: make(map[identity]struct{}), met: make(map[identity]struct{}),
	}
	under := c.under.(*cable)
	under.http = a
	top := net.Conn(under)
	if c.tls != nil {
		if err := c.tls.HandshakeContext(context.Background()); err != nil { // the connection's deadline bounds it
			return 0, err
		}
		top = c.tls
	}
	h.mu.Lock()
	c.peer = a
	h.mu.Unlock()
	c.SetDeadline(time.Time{})
	if !f.give(top) {
		return 0, ErrClosed
	}
	select {
	case <-a.upgraded:
		a.handlers.Wait()
		h.mu.Lock()
		c.peer = nil
		h.mu.Unlock()
		c.SetDeadline(time.Now().Add(connectLimit))
		return a.next, nil
	case <-a.ended:
	}
	if mode := c.mode.Load(); mode == silent || mode == draining {
		io.Copy(io.Discard, c.raw) // below TLS, on which the server may still be reading
	}
	h.mu.Lock()
	a.closed = true
	err := a.err
	h.mu.Unlock()
	a.handlers.Wait()
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return 0, errIdleHTTP
	case err == nil, errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed):
		return 0, ErrParted
	}
	return 0, err
}

var _ peer = (*httpConn)(nil)

func (a *httpConn) matchesLocked(selector string) bool { return len(a.whoLocked(selector)) > 0 }

// presentLocked returns false: to the registry, requests are no connection.
func (a *httpConn) presentLocked(identity) bool { return false }

func (a *httpConn) leaveLocked() {}

func (a *httpConn) enter() bool {
	a.hub.mu.Lock()
	defer a.hub.mu.Unlock()
	if a.closed {
		return false
	}
	a.handlers.Add(1)
	return true
}

func (a *httpConn) leave() { a.handlers.Done() }

// end says that the server is through with the connection.
func (a *httpConn) end() { a.over.Do(func() { close(a.ended) }) }

// admit tells that a client has acted for an identity.
func (a *httpConn) admit(id identity) {
	h := a.hub
	h.mu.Lock()
	_, again := a.who[id]
	if id == (identity{}) || again || a.closed {
		h.mu.Unlock()
		return
	}
	a.who[id] = struct{}{}
	a.told, a.c.live = true, true
	h.mu.Unlock()
	h.event(Event{Kind: Connected, DeviceID: id.device, ModuleID: id.module}, a.c)
	h.changed.wake()
}

// refused tells that a request was refused for an identity, or any.
func (a *httpConn) refused(r *http.Request, id identity, status int, why error) {
	a.served()
	a.hub.event(Event{
		Kind: Refused, DeviceID: id.device, ModuleID: id.module, Status: status,
		Name: r.Method + " " + r.URL.EscapedPath(), // without the query, which may hold a signature
		Err:  why,
	}, a.c)
}

// served notes that the client got an answer, so the end of the connection is not a refusal.
func (a *httpConn) served() {
	a.hub.mu.Lock()
	a.told = true
	a.hub.mu.Unlock()
}

// whoLocked returns the identities that a selector means, by their names.
func (a *httpConn) whoLocked(selector string) []identity {
	var all []identity
	for id := range a.who {
		if id.matches(selector) {
			all = append(all, id)
		}
	}
	slices.SortFunc(all, func(x, y identity) int { return strings.Compare(x.String(), y.String()) })
	return all
}

// expel tells that those whom a selector means are not connected any more. Their next requests are
// refused.
func (a *httpConn) expel(selector string, cause error, _ string) {
	h := a.hub
	h.mu.Lock()
	who := a.whoLocked(selector)
	for _, id := range who {
		delete(a.who, id)
	}
	a.c.live = len(a.who) > 0
	h.mu.Unlock()
	for _, id := range who {
		h.event(Event{Kind: Disconnected, DeviceID: id.device, ModuleID: id.module, Err: cause}, a.c)
	}
	h.changed.wake()
}

// finish tells of the end of the connection.
func (a *httpConn) finish(cause error, _, _ bool) {
	h := a.hub
	h.mu.Lock()
	who, told := a.whoLocked(""), a.told
	clear(a.who)
	h.mu.Unlock()
	for _, id := range who {
		h.event(Event{Kind: Disconnected, DeviceID: id.device, ModuleID: id.module, Err: cause}, a.c)
	}
	if len(who) == 0 && !told {
		h.event(Event{Kind: Refused, Err: cause}, a.c)
	}
}

// A cable is what HTTP, or TLS below it, is spoken on: the network connection, as the modes of the
// hub's end have it.
type cable struct {
	net.Conn
	c    *conn
	http *httpConn // set before the server has the connection

	hurry atomic.Bool // the deadline is in the past: the server wants its own Read to end
}

// Read waits for bytes. On a dead link none come.
func (k *cable) Read(p []byte) (int, error) {
	for {
		n, err := k.Conn.Read(p)
		if err != nil && k.http != nil && !k.hurry.Load() {
			k.c.hub.mu.Lock()
			k.http.err = err
			k.c.hub.mu.Unlock()
		}
		if mode := k.c.mode.Load(); err != nil || mode == open || mode == over {
			return n, err
		}
	}
}

// Write sends bytes, or lets them vanish.
func (k *cable) Write(p []byte) (int, error) {
	if k.c.mode.Load() == silent {
		return len(p), nil
	}
	n, err := k.Conn.Write(p)
	if errors.Is(err, ErrSlowReader) {
		k.c.cutFor(ErrSlowReader)
	}
	return n, err
}

// Close ends the connection, unless it is to last: then the hub's goroutine ends it.
func (k *cable) Close() error {
	if mode := k.c.mode.Load(); mode == silent || mode == draining {
		return nil
	}
	k.c.leave(over)
	return k.Conn.Close()
}

// CloseWrite ends the outgoing direction.
func (k *cable) CloseWrite() error {
	if s, ok := k.Conn.(interface{ CloseWrite() error }); ok && k.c.mode.Load() == open {
		return s.CloseWrite()
	}
	return nil
}

// SetDeadline is SetReadDeadline, for no Write waits.
func (k *cable) SetDeadline(t time.Time) error { return k.SetReadDeadline(t) }

// SetReadDeadline does what the server wants as long as the connection is in order.
func (k *cable) SetReadDeadline(t time.Time) error {
	k.hurry.Store(!t.IsZero() && !t.After(time.Now()))
	return k.c.setReadDeadline(t)
}

// SetWriteDeadline does nothing.
func (k *cable) SetWriteDeadline(time.Time) error { return nil }

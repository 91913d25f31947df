package mqtt

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// hooked is a socket whose reads and writes fail on demand.
type hooked struct {
	*memconn.Conn
	readErr, writeErr chan error // capacity 1
}

func (c *hooked) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	select {
	case other := <-c.readErr:
		return 0, other
	default:
		return n, err
	}
}

func (c *hooked) Write(p []byte) (int, error) {
	select {
	case err := <-c.writeErr:
		return 0, err
	default:
		return c.Conn.Write(p)
	}
}

// hook makes the client's sockets hooked and returns a function that returns the last one.
func hook(h *hub, o *Options) (last func() *hooked) {
	var c *hooked
	o.Network.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		raw, err := h.net.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		c = &hooked{raw.(*memconn.Conn), make(chan error, 1), make(chan error, 1)}
		return c, nil
	}
	return func() *hooked { return c }
}

// socketOf returns the hub's end of the socket below TLS.
func socketOf(l *link) *memconn.Conn {
	if secure, ok := l.Conn.(*tls.Conn); ok {
		return secure.NetConn().(*memconn.Conn)
	}
	return l.Conn.(*memconn.Conn)
}

// Any end of a live session is worth a retry: a loss says only that the connection is gone.
func TestAnyLossOfALiveSessionIsRetryable(t *testing.T) {
	foreign := errors.New("a throwable that nobody knows")
	for name, c := range map[string]struct {
		lose func(r *running, l *link, c *hooked)
		kind transport.Kind
	}{
		"closed":                 {func(_ *running, l *link, _ *hooked) { _ = l.Close() }, transport.Network},
		"reset":                  {func(_ *running, l *link, _ *hooked) { socketOf(l).Reset() }, transport.Network},
		"cut without DISCONNECT": {func(_ *running, l *link, _ *hooked) { _ = socketOf(l).Close() }, transport.Network},
		"garbage on the wire": {func(_ *running, l *link, _ *hooked) {
			_, _ = socketOf(l).Write([]byte("\x17\x03\x03\x00\x20" + strings.Repeat("?", 32)))
		}, transport.Network},
		"silence":            {func(*running, *link, *hooked) {}, transport.Timeout},
		"no room":            {func(r *running, _ *link, c *hooked) { c.SetBuffer(1); r.send("x") }, transport.Timeout},
		"closed on our side": {func(_ *running, _ *link, c *hooked) { _ = c.Close() }, transport.Network},
		"a foreign read error": {func(_ *running, l *link, c *hooked) {
			c.readErr <- foreign
			_, _ = socketOf(l).Write([]byte{0})
		}, transport.Network},
		"a read time-out": {func(_ *running, l *link, c *hooked) {
			c.readErr <- os.ErrDeadlineExceeded
			_, _ = socketOf(l).Write([]byte{0})
		}, transport.Timeout},
		"a foreign write error": {func(r *running, _ *link, c *hooked) {
			c.writeErr <- foreign
			r.send("x")
		}, transport.Network},
		"an alert": {func(_ *running, l *link, c *hooked) {
			c.readErr <- &net.OpError{Op: "remote error", Err: tls.AlertError(42)}
			_, _ = socketOf(l).Write([]byte{0})
		}, transport.Network},
		"a certificate error": {func(_ *running, l *link, c *hooked) {
			c.readErr <- x509.UnknownAuthorityError{}
			_, _ = socketOf(l).Write([]byte{0})
		}, transport.Network},
		"an error with a Kind": {func(_ *running, l *link, c *hooked) {
			c.readErr <- &transport.Error{Kind: transport.Forbidden}
			_, _ = socketOf(l).Write([]byte{0})
		}, transport.Network},
	} {
		for _, secure := range []bool{false, true} {
			testkit.Run(t, name+map[bool]string{true: " with TLS"}[secure], func(t *testing.T) {
				h := newHub(t)
				o := h.options()
				if secure {
					h.serveTLS(t, o)
				}
				last := hook(h, o)
				r, l := start(t, h, o)
				synctest.Wait()
				c.lose(r, l, last())
				err := <-r.ran
				require.ErrorIs(t, err, c.kind, "%v", err)
				require.True(t, errfilter.Retryable(err), "%v", err)
				require.Equal(t, transport.ScopeConnection, transport.Find(err).Scope)
				require.Equal(t, transport.OpRun, transport.Find(err).Op)
				_ = socketOf(l).Close()
			})
		}
	}
}

// failingTunnel fails each Open.
type failingTunnel struct{ err error }

func (failingTunnel) Port(bool) string { return "1" }
func (t failingTunnel) Open(context.Context, net.Conn, netopt.Peer) (net.Conn, error) {
	return nil, t.err
}

func TestAFailedDialIsRetryableUnlessItsCauseIsKnown(t *testing.T) {
	foreign := errors.New("a throwable that nobody knows")
	fails := func(err error) func(*hub, *Options) {
		return func(_ *hub, o *Options) {
			o.Network.Dial = func(context.Context, string, string) (net.Conn, error) { return nil, err }
		}
	}
	sys := func(errno syscall.Errno) func(*hub, *Options) {
		return fails(&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", errno)})
	}
	// answers makes the hub write raw bytes below TLS after it received something.
	answers := func(bytes string, end func(*memconn.Conn)) func(*hub, *Options) {
		return func(h *hub, _ *Options) {
			go func() {
				c, err := h.net.Accept()
				if err != nil {
					return
				}
				_, _ = c.Read(make([]byte, 1))
				_, _ = io.WriteString(c, bytes)
				end(c.(*memconn.Conn))
			}()
		}
	}
	closes := func(c *memconn.Conn) { _ = c.Close() }
	for name, c := range map[string]struct {
		prepare func(h *hub, o *Options)
		kind    transport.Kind
	}{
		"refused":                 {sys(syscall.ECONNREFUSED), transport.Network},
		"reset":                   {sys(syscall.ECONNRESET), transport.Network},
		"aborted":                 {sys(syscall.ECONNABORTED), transport.Network},
		"no route to the host":    {sys(syscall.EHOSTUNREACH), transport.Network},
		"no route to the network": {sys(syscall.ENETUNREACH), transport.Network},
		"no address":              {sys(syscall.EADDRNOTAVAIL), transport.Network},
		"too many files":          {sys(syscall.EMFILE), transport.Network},
		"time-out of the system":  {sys(syscall.ETIMEDOUT), transport.Timeout},
		"time-out of a deadline":  {fails(os.ErrDeadlineExceeded), transport.Timeout},
		"name not found":          {fails(&net.DNSError{Err: "no such host", IsNotFound: true}), transport.Network},
		"name look-up timed out":  {fails(&net.DNSError{IsTimeout: true}), transport.Timeout},
		"EOF":                     {fails(io.EOF), transport.Network},
		"half an EOF":             {fails(io.ErrUnexpectedEOF), transport.Network},
		"a foreign error":         {fails(foreign), transport.Network},
		"a foreign error in tunnel": {func(h *hub, o *Options) {
			o.Network.Tunnel = failingTunnel{foreign}
			go func() { _, _ = h.net.Accept() }()
		}, transport.Network},
		"a tunnel that has no error": {func(h *hub, o *Options) {
			o.Network.Tunnel = failingTunnel{}
			go func() { _, _ = h.net.Accept() }()
		}, transport.Network},
		"hello, closed":         {answers("", closes), transport.Network},
		"hello, reset":          {answers("", (*memconn.Conn).Reset), transport.Network},
		"half a record, closed": {answers("\x16\x03\x03\x00\x50\x02\x00", closes), transport.Network},
		"half a CONNACK, closed": {func(h *hub, o *Options) {
			o.Network.Plaintext = true
			answers("\x20\x02", closes)(h, o)
		}, transport.Network},
		"no CONNACK, reset": {func(h *hub, o *Options) {
			o.Network.Plaintext = true
			answers("", (*memconn.Conn).Reset)(h, o)
		}, transport.Network},
		"no CONNACK, TLS closed": {func(h *hub, o *Options) {
			h.serveTLS(t, o)
			go func() { _ = h.accept().Close() }()
		}, transport.Network},
		"no CONNACK, TLS cut": {func(h *hub, o *Options) {
			h.serveTLS(t, o)
			go func() { _ = socketOf(h.accept()).Close() }()
		}, transport.Network},
		"no CONNACK, TLS reset": {func(h *hub, o *Options) {
			h.serveTLS(t, o)
			go func() { socketOf(h.accept()).Reset() }()
		}, transport.Network},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			h := newHub(t)
			o := h.options()
			o.Network.Plaintext = strings.Contains(name, "tunnel")
			c.prepare(h, o)
			_, err := New(o).Dial(t.Context(), &transport.Config{Creds: testCreds(t), Sink: new(sink)})
			require.ErrorIs(t, err, c.kind, "%v", err)
			require.True(t, errfilter.Retryable(err), "%v", err)
			require.Equal(t, transport.ScopeConnection, transport.Find(err).Scope)
			require.Equal(t, transport.OpDial, transport.Find(err).Op)
			requireNothingLeft(t, h)
		})
	}
}

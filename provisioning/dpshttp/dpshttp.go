// Package dpshttp carries registrations with the provisioning service over HTTPS, on net/http.
//
//	client, err := provisioning.New(id, dpshttp.New(nil), nil)
//
// A session has one connection, which the first request opens. Redirections are not followed. The
// delay in Retry-After may be a number of seconds or a date, on any answer.
//
// # Clock
//
// The service's answers carry its time (Date). It corrects a clock that is ahead, and replaces one
// that is not set (transport.Credentials.Implausible) if TLS has verified the service and its
// certificate is valid at that time: the rules of package transport/http. The credentials of
// provisioning.Client.Credentials have the corrected clock. A certificate of the service that is
// not valid yet by the device's clock fails with ClockUnset: for a clock that is never set, give
// netopt.Options.TLS.Time a closer time, such as the build time.
//
// # Certificates
//
// netopt.Options.Certificate authenticates an Identity without keys. The whole chain of the
// certificate is sent, as an enrollment group requires. A certificate without its key is refused
// before anything is sent.
//
// # TPM
//
// A device with a TPM registers with its public keys and without a token. The service answers with
// a challenge, and the same register is sent again with a token of the activated key.
package dpshttp

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/internal/dialer"
	"github.com/hubline-iot/hubline/internal/httpguard"
	"github.com/hubline-iot/hubline/internal/hubhttp"
	"github.com/hubline-iot/hubline/internal/texts"
	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// protocol parameterizes the dialer and its errors.
var protocol = dialer.Protocol{Name: "http", Secure: "443", Plain: "80", HTTP: true,
	Kind: hubhttp.PeerKind}

// Carrier is a provisioning.Timekeeper over HTTPS. Several clients may share it.
type Carrier struct {
	dialer dialer.Dialer
	agent  string
	clock  hubhttp.Clock
	err    error // what Open returns for wrong options
}

var _ provisioning.Timekeeper = (*Carrier)(nil)

// New returns a Carrier with these network settings, which are copied; nil means all defaults.
// HTTPS uses neither Tunnel nor WriteTimeout. Open reports wrong settings, with Kind Invalid.
func New(o *netopt.Options) *Carrier {
	c := &Carrier{dialer: dialer.Dialer{Protocol: &protocol, ALPN: []string{"http/1.1"}}}
	if o != nil {
		c.dialer.Network = *o
	}
	c.agent = dialer.Agent(c.dialer.Network.ProductInfo)
	c.err = c.dialer.Resolve()
	return c
}

// maxHeader bounds the header of an answer.
const maxHeader = 32 << 10

// closeTime bounds the close handshake of TLS.
const closeTime = 250 * time.Millisecond

// errSlow is the cause of a request that took too long.
var errSlow = errors.New("no answer in time")

// Open prepares a session. It does not connect.
func (c *Carrier) Open(_ context.Context, l *provisioning.Login) (provisioning.Session, error) {
	if c.err != nil {
		return nil, c.err
	}
	return c.session(l, l.Credentials()), nil
}

// TokenTime implements provisioning.Timekeeper, as do Corrected, Outlived and AskTime.
func (c *Carrier) TokenTime(creds *transport.Credentials) time.Time { return c.clock.TokenTime(creds) }

// Corrected implements provisioning.Timekeeper.
func (c *Carrier) Corrected(creds *transport.Credentials, made time.Time) bool {
	return c.clock.Corrected(creds, made)
}

// Outlived implements provisioning.Timekeeper.
func (c *Carrier) Outlived(token transport.Token) bool { return c.clock.Outlived(token) }

// AskTime implements provisioning.Timekeeper.
func (c *Carrier) AskTime(ctx context.Context, l *provisioning.Login) error {
	if c.err != nil {
		return c.err
	}
	s := c.session(l, l.Credentials())
	s.anonymous = true
	defer s.Close()
	_, err := s.Exchange(ctx, &provisioning.Request{Operation: "time"}) // refused, with the time
	return err
}

func (c *Carrier) session(l *provisioning.Login, creds *transport.Credentials) *session {
	s := &session{c: c, l: *l, creds: creds, token: l.Token}
	s.stack = &http.Transport{
		DialContext: s.dial, DialTLSContext: s.dial, DisableCompression: true, MaxConnsPerHost: 1,
		MaxResponseHeaderBytes: maxHeader,
	}
	return s
}

type session struct {
	c         *Carrier
	l         provisioning.Login
	creds     *transport.Credentials
	anonymous bool // nothing proves the identity, on purpose
	stack     *http.Transport

	// Used by the goroutine of Exchange.
	token transport.Token
	spoke bool // the peer answered a request

	mu      sync.Mutex
	sockets []net.Conn // below TLS, of all connections
}

// dial connects to the service. net/http may call it on a goroutine of its own.
func (s *session) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	// net/http removes the request's deadline
	ctx, cancel := context.WithTimeoutCause(ctx, s.l.Timeout, errSlow)
	defer cancel()
	d := s.c.dialer
	var cert *tls.Certificate
	if !s.anonymous {
		var err error
		if cert, err = d.ClientCertificate(ctx, s.creds); err != nil {
			return nil, protocol.Error(err)
		}
	}
	outer, socket, err := d.Dial(ctx, s.creds, cert)
	if err != nil {
		return nil, protocol.Error(err)
	}
	s.mu.Lock()
	s.sockets = append(s.sockets, socket)
	s.mu.Unlock()
	return httpguard.New(outer, maxHeader), nil
}

// Exchange makes one request.
func (s *session) Exchange(ctx context.Context, r *provisioning.Request) (*provisioning.Answer, error) {
	limited, cancel := context.WithTimeoutCause(ctx, s.l.Timeout, errSlow)
	defer cancel()
	return s.exchange(ctx, limited, r)
}

// exchange makes one request. limited is ctx with the time-out.
func (s *session) exchange(ctx, limited context.Context, r *provisioning.Request) (*provisioning.Answer, error) {
	var peer *tls.ConnectionState
	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		conn := info.Conn.(*httpguard.Conn)
		conn.Next()
		peer = conn.TLS()
	}}
	request, err := s.request(r)
	if err != nil {
		return nil, protocol.Invalid("the request has no URL: " + err.Error())
	}
	// an http.Client would show the URL in its errors
	sent := time.Now()
	response, err := s.stack.RoundTrip(request.WithContext(httptrace.WithClientTrace(limited, trace)))
	if err != nil {
		return nil, s.failure(ctx, limited, err)
	}
	defer response.Body.Close()
	s.spoke = true
	s.c.clock.Learn(response.Header, peer, sent, time.Now())
	body, err := io.ReadAll(io.LimitReader(response.Body, provisioning.MaxAnswer+1))
	if err != nil {
		return nil, s.failure(ctx, limited, err)
	}
	after, _ := times.RetryAfterHeaders(response.Header.Get, s.l.Now())
	return &provisioning.Answer{Status: response.StatusCode, RetryAfter: after, Body: body,
		ErrorCode: response.Header.Get("x-ms-error-code")}, nil
}

// request returns the HTTP request for r.
func (s *session) request(r *provisioning.Request) (*http.Request, error) {
	method, path := http.MethodPut, "/register"
	switch {
	case r.Call != "":
		method, path = http.MethodPost, "/"+r.Call
	case r.Operation != "":
		method, path = http.MethodGet, "/operations/"+encode(r.Operation)
	}
	target, err := url.Parse(s.c.dialer.Scheme() + "://" + s.l.Endpoint + "/" + encode(s.l.IDScope) + "/registrations/" +
		encode(s.l.RegistrationID) + path + "?api-version=" + s.l.APIVersion)
	if err != nil {
		return nil, err
	}
	header := http.Header{"Accept": {"application/json"}, "User-Agent": {s.c.agent}}
	if token := s.token.Text.Reveal(); token != "" {
		header.Set("Authorization", token)
	}
	if r.Call != "" {
		header.Set("x-ms-client-request-id", dialer.NewUUID())
	}
	h := &http.Request{Method: method, URL: target, Host: target.Host, Header: header, Proto: "HTTP/1.1", ProtoMajor: 1,
		ProtoMinor: 1, Body: http.NoBody}
	if len(r.Body) > 0 {
		header.Set("Content-Type", "application/json")
		h.ContentLength = int64(len(r.Body))
		h.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(r.Body)), nil }
		h.Body, _ = h.GetBody()
	}
	return h, nil
}

func encode(s string) string { return string(texts.AppendEscaped(nil, s)) }

// failure returns the error of an exchange without an answer.
func (s *session) failure(ctx, limited context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case limited.Err() != nil:
		return &transport.Error{Kind: transport.Timeout, Scope: transport.ScopeConnection, Op: transport.OpRegister,
			Proto: protocol.Name, Err: errSlow}
	case transport.Find(err) != nil: // of dial
		return err
	}
	if !s.spoke {
		err = dialer.First{Err: err, Want: "HTTP"}
	}
	e := protocol.Error(err)
	if e.Kind == transport.Protocol && s.spoke {
		e.Kind = transport.Network // the peer spoke HTTP before, so the data was damaged
	}
	return e
}

// Close closes the connection.
func (s *session) Close() {
	cut := time.AfterFunc(closeTime, s.cut)
	s.stack.CloseIdleConnections()
	cut.Stop()
	s.cut()
}

// cut closes the sockets, which unblocks a close handshake.
func (s *session) cut() {
	s.mu.Lock()
	sockets := s.sockets
	s.mu.Unlock()
	for _, socket := range sockets {
		_ = socket.Close()
	}
}

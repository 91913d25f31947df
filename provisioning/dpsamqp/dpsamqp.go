// Package dpsamqp carries registrations with the provisioning service over AMQP 1.0 with TLS, and
// over WebSocket:
//
//	client, err := provisioning.New(id, dpsamqp.New(nil), nil)
//	client, err := provisioning.New(id, dpsamqp.New(&netopt.Options{Tunnel: websocket.AMQP(nil)}), nil)
//
// A session is one connection with two links, both to the address of the registration. A request is
// a message with a correlation id. Its answer is a message with the same id, or the rejection of
// the request with the service's JSON as the description of the error. The answer counts, not the
// outcome of the request: they may arrive in either order. Messages with other ids are ignored. The
// delay in retry-after may stand in the properties of the answer or in the info of the error, in
// any letter case, as a number of seconds or a date.
//
// Each frame of the service is checked, as package transport/amqp describes. Errors have the
// types of that package.
//
// # Authentication
//
// An Identity with keys logs in with SASL PLAIN. For an Identity without keys, the certificate of
// netopt.Options.Certificate authenticates the device, with SASL EXTERNAL; a service that offers no
// EXTERNAL is dialed again without SASL. The whole chain of the certificate is sent, as an
// enrollment group requires. A certificate without its key is refused before anything is sent.
//
// An Identity with a TPM logs in with the SASL mechanism TPM.
package dpsamqp

import (
	"context"
	"crypto/tls"
	"errors"

	"github.com/hubline-iot/hubline/internal/amqpclient"
	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/internal/dialer"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// protocol parameterizes the dialer and its errors.
var protocol = dialer.Protocol{Name: "amqp", Secure: "5671", Plain: "5672", Kind: amqpclient.Kind}

// Carrier is a provisioning.Carrier over AMQP. Several clients may share it.
type Carrier struct {
	dialer dialer.Dialer
	agent  string
	err    error // what Open returns for wrong options
}

var _ provisioning.Limited = (*Carrier)(nil)

// LacksCalls implements provisioning.Limited.
func (c *Carrier) LacksCalls() string {
	return "the service does not take it over AMQP; use dpshttp or dpsmqtt"
}

// New returns a Carrier with these network settings, which are copied; nil means all defaults: TLS
// to port 5671. Each Open reports wrong settings, with Kind Invalid.
func New(o *netopt.Options) *Carrier {
	c := &Carrier{dialer: dialer.Dialer{Protocol: &protocol}}
	if o != nil {
		c.dialer.Network = *o
	}
	info := c.dialer.Network.ProductInfo
	c.agent = dialer.Agent(info)
	if problem := amqpclient.TextProblem("ProductInfo", info); problem != "" {
		c.err = protocol.Invalid("options: " + problem)
		return c
	}
	c.err = c.dialer.Resolve()
	return c
}

// errSlow is the cause of a connection or request that took too long.
var errSlow = errors.New("no answer in time")

// Open connects, logs in and attaches the links.
func (c *Carrier) Open(ctx context.Context, l *provisioning.Login) (provisioning.Session, error) {
	if c.err != nil {
		return nil, c.err
	}
	limited, cancel := context.WithTimeoutCause(ctx, l.Timeout, errSlow)
	defer cancel()
	s, err := c.open(limited, l)
	if err != nil {
		return nil, failure(ctx, limited, err)
	}
	return s, nil
}

func (c *Carrier) open(ctx context.Context, l *provisioning.Login) (*session, error) {
	cert, err := c.dialer.ClientCertificate(ctx, l.Credentials())
	if err != nil {
		return nil, err
	}
	o := amqpclient.Options{Host: l.Endpoint}
	if token := l.Token.Text.Reveal(); token != "" {
		o.SASL = []wire.Init{{Mechanism: "PLAIN", InitialResponse: []byte("\x00" + l.Resource() + "\x00" + token)}}
		return c.connect(ctx, l, l.Credentials(), cert, o)
	}
	o.SASL = []wire.Init{{Mechanism: "EXTERNAL", InitialResponse: []byte{}}}
	s, err := c.connect(ctx, l, l.Credentials(), cert, o)
	if errors.Is(err, amqpclient.ErrNoMechanism) || errors.Is(err, amqpclient.ErrNotAMQP) {
		o.SASL = nil
		s, err = c.connect(ctx, l, l.Credentials(), cert, o) // the official C# client sends no SASL
	}
	if errors.Is(err, amqpclient.ErrWantsSASL) {
		return nil, &transport.Error{Kind: transport.Unsupported, Err: errNoExternal}
	}
	return s, err
}

var errNoExternal = errors.New("the service insists on SASL, and offers no EXTERNAL for a certificate")

// connect connects and attaches the links. The error is a cause for dialer.Protocol.
func (c *Carrier) connect(ctx context.Context, l *provisioning.Login, creds *transport.Credentials,
	cert *tls.Certificate, o amqpclient.Options) (*session, error) {
	outer, socket, err := c.dialer.Dial(ctx, creds, cert)
	if err != nil {
		return nil, err
	}
	conn, err := amqpclient.Connect(ctx, outer, socket, &o)
	if err != nil {
		return nil, err
	}
	s := newSession(conn, l)
	if err := s.attach(ctx, l, c.agent); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// failure returns the error of a connection. limited is ctx with the time-out.
func failure(ctx, limited context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case limited.Err() != nil:
		err = &transport.Error{Kind: transport.Timeout, Err: errSlow}
	}
	e := protocol.Error(err)
	e.Op = transport.OpRegister
	return e
}

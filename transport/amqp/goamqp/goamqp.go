// Package goamqp carries a device over AMQP 1.0 on the library Azure/go-amqp, for programs that
// want that client underneath: to an IoT hub, or with Addresses to any other broker.
//
//	client, err := device.New(creds, goamqp.New(nil), nil)
//
// Package amqp, with its own endpoint, is the default: it is faster, smaller, and does more. This
// package uses go-amqp as its authors mean it to be used: a message is sent with a receipt, and is
// done when its receipt says so. What is missing here, or done in another way:
//
//	twin and methods              not there
//	a connection for many devices not there: each client has its own
//	batches                       each message is a transfer of its own
//	application properties        in random order
//	lost links                    end the session; the client connects again. One for tokens does so
//	                              when the next token is due: nothing else is sent on it
//	Options                       Batch, Devices and Parallel are ignored; CreditTimeout ends the
//	                              session
//	a slow connection             an answer that takes longer than Options.IdleTimeout ends it
//	SASL that the peer insists on must be set in Options.Auth
//	hostile peers                 the size of frames is bounded, and nothing else: go-amqp trusts its
//	                              peer, and one frame can crash the process
//
// Everything else is as in package amqp: tokens by CBS and their renewal, outcomes, settling, the
// fields of messages, and the Kinds of errors.
//
// A Transport keeps nothing between dials and is safe for use by many clients at a time.
package goamqp

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"strings"
	"time"

	raw "github.com/Azure/go-amqp"

	"github.com/hubline-iot/hubline/internal/amqpclient"
	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/internal/dialer"
	"github.com/hubline-iot/hubline/internal/statuscode"
	"github.com/hubline-iot/hubline/internal/texts"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
	"github.com/hubline-iot/hubline/transport/amqp/internal/message"
)

// Transport makes sessions with a connection each. It is safe for concurrent use.
type Transport struct {
	opt    amqp.Options
	dialer dialer.Dialer
	same   *amqp.Transport // with the same options, which it checks
}

var (
	_ transport.Transport = (*Transport)(nil)
	_ transport.Checker   = (*Transport)(nil)
	_ transport.Limited   = (*Transport)(nil)
)

// New returns a Transport with the given options, which are copied; nil means all defaults. Wrong
// options are reported by Check, which device.New calls, and by Dial, with Kind Invalid.
func New(o *amqp.Options) *Transport {
	t := new(Transport)
	if o != nil {
		t.opt = *o
	}
	t.same = amqp.New(&t.opt)
	t.opt.IdleTimeout = cmp.Or(t.opt.IdleTimeout, time.Minute)
	t.opt.OperationTimeout = cmp.Or(t.opt.OperationTimeout, 20*time.Second)
	t.opt.CreditTimeout = cmp.Or(t.opt.CreditTimeout, 20*time.Second)
	t.dialer = dialer.Dialer{Protocol: &protocol, Network: t.opt.Network}
	_ = t.dialer.Resolve() // Check reports its error
	return t
}

// Check implements transport.Checker.
func (t *Transport) Check(creds *transport.Credentials) error { return t.same.Check(creds) }

// Lacks implements transport.Limited.
func (t *Transport) Lacks(creds *transport.Credentials, feature transport.Features) string {
	if feature != transport.FeatureMessages {
		return "not available over package goamqp; use package amqp"
	}
	return t.same.Lacks(creds, feature)
}

// Dial makes a session as transport.Transport says. The Sink is not called before Run. Package amqp
// lists the errors.
func (t *Transport) Dial(ctx context.Context, cfg *transport.Config) (transport.Session, error) {
	if err := t.Check(cfg.Creds); err != nil {
		return nil, err
	}
	if err := cfg.Creds.Validate(); err != nil {
		return nil, protocol.Error(err)
	}
	s, err := t.dial(ctx, cfg)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx) // ctx ended and caused the socket's error
		}
		return nil, protocol.Error(err)
	}
	return s, nil
}

func (t *Transport) dial(ctx context.Context, cfg *transport.Config) (*session, error) {
	creds := cfg.Creds
	s := &session{cfg: *cfg, opt: &t.opt, fatal: make(chan error, 1), queued: make(chan struct{}, 1),
		started: make(chan struct{})}
	var err error
	if s.telemetry, s.commands, err = t.addresses(creds); err != nil {
		return nil, err
	}
	var cert *tls.Certificate
	auth := t.auth(creds)
	if t.opt.Network.Certificate != nil || auth == amqp.AuthDefault || auth == amqp.AuthExternal {
		if cert, err = t.dialer.ClientCertificate(ctx, creds); err != nil {
			return nil, err
		}
	}
	var token transport.Token
	if auth == amqp.AuthCBS || auth == amqp.AuthPlain {
		if token, err = creds.NewToken(ctx); err != nil {
			return nil, err
		}
		if !token.Fixed {
			s.info.Expires = token.Expires
		}
	}
	if cert != nil && s.info.Expires.IsZero() {
		s.info.Expires = cert.Leaf.NotAfter
	}
	if t.opt.Addresses == nil {
		s.info.MaxSize = transport.MaxMessageSize
	}
	d := t.dialer
	d.Timeout = cfg.DialTimeout
	outer, socket, err := d.Dial(ctx, creds, cert)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = socket.Close() })
	err = s.open(ctx, &guard{Conn: outer}, socket, t.sasl(auth, creds, token), auth, token)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = socket.Close()
		s.close()
		return nil, err
	}
	return s, nil
}

// auth returns the method by which credentials authenticate.
func (t *Transport) auth(creds *transport.Credentials) amqp.Auth {
	switch {
	case t.opt.Auth != amqp.AuthDefault:
		return t.opt.Auth
	case t.opt.Addresses != nil && creds.UserName != "":
		return amqp.AuthPlain
	case t.opt.Addresses != nil:
		return amqp.AuthAnonymous
	case creds.Sign != nil || creds.Token != nil:
		return amqp.AuthCBS
	}
	return amqp.AuthDefault
}

// addresses returns the addresses of the links.
func (t *Transport) addresses(creds *transport.Credentials) (telemetry, commands string, err error) {
	a := t.opt.Addresses
	if a == nil {
		telemetry, commands, _, _ = message.Addresses(creds)
		return telemetry, commands, nil
	}
	telemetry, problem := texts.FillIDs(a.Telemetry, creds.DeviceID, creds.ModuleID)
	commands, other := texts.FillIDs(a.Commands, creds.DeviceID, creds.ModuleID)
	if problem += other; problem != "" {
		return "", "", protocol.Invalid("options: an address of Addresses " + problem)
	}
	return telemetry, commands, nil
}

// sasl returns the SASL mechanism; nil, where CBS or TLS proves the identity.
func (t *Transport) sasl(auth amqp.Auth, creds *transport.Credentials, token transport.Token) raw.SASLType {
	switch auth {
	case amqp.AuthPlain:
		user := creds.UserName
		if t.opt.Addresses == nil {
			hub, _, _ := strings.Cut(creds.Host, ".")
			if user = creds.DeviceID; creds.ModuleID != "" {
				user += "/" + creds.ModuleID
			}
			user += "@sas." + hub
		}
		return raw.SASLTypePlain(user, token.Text.Reveal())
	case amqp.AuthExternal:
		return raw.SASLTypeExternal("")
	case amqp.AuthAnonymous:
		return raw.SASLTypeAnonymous()
	case amqp.AuthDefault, amqp.AuthCBS:
	}
	return nil
}

// protocol describes AMQP to package dialer.
var protocol = dialer.Protocol{Name: "amqp", Secure: "5671", Plain: "5672", Kind: kind}

// kind is for dialer.Protocol: the Kind of a failed handshake.
func kind(err error) (kind transport.Kind, hint string, ok bool) {
	if e, ok := errors.AsType[*amqp.TokenError](err); ok {
		return statuscode.Of(e.Status, statuscode.Token).Kind, "", true
	}
	return amqpclient.Kind(err)
}

// cause returns the peer's error in an error of go-amqp, or gives a failed handshake its type.
func cause(err error) error {
	var remote *raw.Error
	what := ""
	if e, ok := errors.AsType[*raw.ConnError](err); ok {
		what, remote = "connection", e.RemoteErr
	} else if e, ok := errors.AsType[*raw.SessionError](err); ok {
		what, remote = "session", e.RemoteErr
	} else if e, ok := errors.AsType[*raw.LinkError](err); ok {
		what, remote = "link", e.RemoteErr
	} else if e, ok := errors.AsType[*raw.Error](err); ok {
		what, remote = "link", e
	}
	if remote != nil {
		return condition(what, remote)
	}
	// go-amqp has no type for a refused login, and its text may repeat the peer's about credentials
	text := err.Error()
	if _, code, ok := strings.Cut(text, " auth failed with code 0x"); ok {
		n := 0
		for _, c := range code[:min(2, len(code))] {
			if c < '0' || c > '9' {
				break
			}
			n = n*16 + int(c-'0')
		}
		return &amqp.SASLError{Code: n}
	}
	if strings.HasPrefix(text, "no supported auth mechanism") {
		return amqpclient.ErrNoMechanism
	}
	if strings.HasPrefix(text, "unexpected protocol") || strings.HasPrefix(text, "invalid protoHeader") {
		return amqpclient.ErrNotAMQP
	}
	return err
}

// condition converts the peer's error.
func condition(what string, e *raw.Error) *amqp.ConditionError {
	return amqpclient.ConditionOf(what, &wire.Error{Condition: wire.Symbol(e.Condition), Description: e.Description})
}

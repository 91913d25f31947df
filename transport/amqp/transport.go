// Package amqp carries devices over AMQP 1.0, on the library Azure/go-amqp.
//
//	client, err := device.New(creds, amqp.New(nil), nil)
//
// A Transport makes a connection for each client. A Mux lets many clients share one:
//
//	mux := amqp.NewMux(nil)
//	for _, creds := range all {
//		client, err := device.New(creds, mux, nil)
//		...
//	}
//
// Both are safe for use by many clients at a time.
//
// Tokens are put to the hub over the open connection (CBS), and renewed there by OpRenew without a
// disconnect. X.509 certificates, SASL PLAIN, EXTERNAL and ANONYMOUS are the other ways to prove an
// identity; see Auth. With Options.Addresses the same transport talks to any broker of AMQP 1.0,
// which has no twin and no methods: requests for them are replied to with Unsupported.
//
// The twin and direct methods have a pair of links each, opened when they are subscribed to and
// again when they are lost. What was asked on a pair that is lost is replied to with Unavailable,
// its outcome unknown; that changes of desired properties may have been missed is told by a
// Delivery without a version. That the hub took the link out away is noticed within 10 s, also by a
// device that only listens.
//
// # Telemetry
//
// The link for telemetry is opened by the first message. Any number of messages is in flight, and
// messages that wait at the same moment travel as one batch. A message is done when the hub's
// outcome has come: accepted is success; rejected is an error by its condition; released, and
// modified unless it is undeliverable here, are Unavailable. A batch that was rejected because of a
// message in it is sent again, each message alone.
//
// # Recovery
//
// A link that the hub detaches is opened again on the same session of AMQP when there is something
// to send, or at once if it is the one for commands; a session of AMQP that the hub ends is begun
// again the same way. What was in flight or waited at that moment is reported by Done, with an
// error of Scope Operation and mostly of Kind Unavailable, and is to be sent again. A link that was
// lost while it was idle is replaced without a word, when there is something to send; that it is
// lost is noticed within 10 s, though nothing is sent. Run ends, with an error of Scope Connection,
// when the connection is lost, when a link is refused, when one for commands is lost within 5 s of
// its opening, and when what the hub says is about the device or the hub itself (unauthorized, not
// found, suspended, disabled). On a shared connection this concerns that device alone.
//
// A message fails for good when the hub rejects it with a condition that is not about the moment,
// the device or the hub; and when the hub ends a link on which it was alone, with a condition about
// content: too large, not to be decoded, a wrong field or argument. With any other a link is only
// opened again.
//
// # Commands
//
// Accept, Release and Reject are the outcomes of AMQP; what is released comes again at once. A
// message that the Sink does not take is released after 5 s. The system properties fill the fields
// of Message; the application properties, sorted by name, and "user-id", "iothub-enqueuedtime" and
// "x-opt-input-name" where given, are its Properties.
//
// # Violations
//
// Each frame of the peer is decoded and checked before the library sees it: its type and header,
// all fields at every depth, and what it refers to (sessions, links, deliveries, credit). A message
// has at most 16 MB. A frame that breaks the protocol ends the connection with Kind Protocol and a
// reason that names the frame and the field. On a connection that had worked the cause is
// transport.ErrViolation, and the failure is retried. Some frames go on rewritten: a flow without
// next-incoming-id or link-credit is completed, a detach becomes a closing one, and an idle
// time-out below 1 s becomes 1 s.
//
// # Errors
//
// A failed Dial returns an *transport.Error of Scope Connection and Op OpDial. Its Kind, for what
// the hub says, follows from the condition (*ConditionError), from the status of the token
// (*TokenError) or from the SASL outcome (*SASLError), each reachable with errors.As; Protocol is
// for peers that speak something else or break the protocol; for all that concerns network, TLS and
// certificates it is as in package mqtt. Conditions that are not listed mean Unknown where the hub
// refuses a message, and Network where it ends something.
//
// A Dial has no time limit but its context's: package device bounds it. That of a Mux, which may be
// waited for by many, has one.
package amqp

import (
	"context"
	"errors"

	"github.com/hubline-iot/hubline/transport"
)

// Transport makes sessions with a connection each. It is safe for concurrent use.
type Transport struct {
	opt    Options
	err    error // what Dial returns for wrong options
	learnt learnt
}

var _ transport.Transport = (*Transport)(nil)

// New returns a Transport with the given options, which are copied; nil means all defaults. Wrong
// options are reported by Dial, with Kind Invalid.
func New(o *Options) *Transport {
	t := new(Transport)
	t.opt, t.err = o.resolve()
	return t
}

// Dial makes a session as transport.Transport says: token, connection, TLS, open, put-token. The
// Sink is not called before Run. The package documentation lists the errors.
func (t *Transport) Dial(ctx context.Context, cfg *transport.Config) (transport.Session, error) {
	if t.err != nil {
		return nil, t.err
	}
	if err := cfg.Creds.Validate(); err != nil {
		return nil, protocol.Error(err)
	}
	s, err := t.dial(ctx, cfg)
	if err != nil {
		return nil, dialError(ctx, err)
	}
	return s, nil
}

// dialError is what a Dial returns for a cause.
func dialError(ctx context.Context, err error) *transport.Error {
	if ctx.Err() != nil {
		err = context.Cause(ctx) // what the end of ctx did to the socket is of no interest
	}
	return protocol.Error(err)
}

func (t *Transport) dial(ctx context.Context, cfg *transport.Config) (*session, error) {
	l, err := t.opt.prove(ctx, cfg.Creds)
	if err != nil {
		return nil, err
	}
	conn, err := t.opt.connect(ctx, cfg.Creds, &l, &t.learnt)
	if err != nil {
		return nil, err
	}
	if l.auth == CBS {
		if conn.sessions() < 2 {
			conn.close()
			return nil, &transport.Error{Kind: transport.Unsupported, Err: errOneSession}
		}
		if err := conn.tokens.put(ctx, cfg.Creds.Resource(), l.token.Text.Reveal(), cfg.Progress); err != nil {
			conn.close()
			return nil, err
		}
	}
	s := newSession(cfg, &t.opt, conn, &l)
	s.release = conn.close
	return s, s.check(ctx)
}

// errOneSession is why a peer is of no use with CBS, which has a session of AMQP to itself.
var errOneSession = errors.New("the peer allows one session of AMQP on a connection (channel-max), CBS needs two")

// Package amqp is the AMQP 1.0 transport, on an endpoint of its own. Package goamqp is a plain one
// on the library Azure/go-amqp.
//
//	client, err := device.New(creds, amqp.New(nil), nil)
//
// A Transport makes a connection for each client. With a Mux many clients share one:
//
//	mux := amqp.NewMux(nil)
//	for _, creds := range all {
//		client, err := device.New(creds, mux, nil)
//		...
//	}
//
// Both are safe for concurrent use by many clients.
//
// A token is put to the hub over the open connection (CBS), and renewed there without a disconnect.
// Other methods of authentication are X.509 certificates and SASL PLAIN, EXTERNAL and ANONYMOUS;
// see Auth. With Options.Addresses the transport works with any AMQP 1.0 broker. Such a broker has
// no twin and no methods: requests for them fail with Unsupported.
//
// # Telemetry
//
// The sending link is attached for the first message. Queued messages are sent in batches. A
// message is done when the hub has settled its transfer:
//
//	accepted                      success
//	rejected                      an error by the condition
//	released                      Unavailable
//	modified                      Unavailable
//	modified, undeliverable here  Forbidden
//
// Outcomes are reported as they arrive. device.Options.AckTimeout begins again with each of them,
// so a long queue at the hub is no failure while outcomes arrive. When a batch is rejected for
// one of its messages, each message is sent again alone.
//
// # Cloud-to-device messages, twin and methods
//
// Accept, Release and Reject are AMQP's outcomes. Release waits for 1 s, after each further
// delivery of the message twice as long, up to 30 s and within a hub's lock of a minute, because a
// hub delivers a released message again at once. A message that the Sink declines is released after
// 5 s. The system properties fill the fields of Message and Message.System, of which brokers with
// Addresses have To and UserID. The application properties, sorted by name, and the annotation
// "iothub-enqueuedtime" are its Properties.
//
// A module receives the messages of its inputs instead, on a link at the address of its telemetry.
// It has no cloud-to-device messages.
//
// The twin and direct methods have a pair of links each. Requests that are pending when a pair is
// lost fail with Unavailable, outcome unknown. A Delivery of desired properties without a version
// says that changes may have been missed.
//
// # Recovery
//
// A lost link is attached again on the same AMQP session: the telemetry link for the next message,
// the others at once. An AMQP session that the hub ended is begun again. Messages that were in
// flight or queued fail with Scope Operation, mostly with Kind Unavailable, and should be sent
// again. The loss of an idle sending link is not reported.
//
// Run ends, with an error of Scope Connection, when
//   - the connection is lost,
//   - the hub refuses a link,
//   - a receiving link is lost within 5 s after its attach,
//   - a condition is about the device or the hub: unauthorized, not found, suspended, disabled.
//
// With a Mux, all of these but the first end the session of one device only.
//
// A message fails permanently when the hub rejects it with a condition about the message, or
// detaches a link with such a condition while the message was the only one in flight: too large,
// not decodable, a wrong field or argument.
//
// # Violations
//
// Each frame of the peer is checked: its header, all fields at every depth, and the sessions,
// links, deliveries and credit that it refers to. A frame that breaks the protocol ends the
// connection with Kind Protocol; the error names the frame and the field. After the open of the
// connection the cause is transport.ErrViolation, and the failure is retried.
//
// A message from IoT Hub may have 1 MiB, one from another broker 16 MiB. A cloud-to-device message
// that is larger, or cannot be decoded, is rejected, which moves it to the hub's dead letters, with
// amqp:link:message-size-exceeded or amqp:decode-error. When it belongs to the twin or to methods,
// the pair of links is lost; when it answers a token, the session of the tokens is. A connection
// keeps 32 MiB of incomplete messages. A cloud-to-device message beyond them is released after 5 s.
//
// Some mistakes of brokers are tolerated: a flow without next-incoming-id or link-credit, a
// detach that does not close, a string for a symbol and the other way. An idle time-out below 1 s
// counts as 1 s.
//
// # Errors
//
// A failed Dial returns a *transport.Error of Scope Connection and Op OpDial. Its Kind follows from
// the hub's condition (*ConditionError), the status of the token (*TokenError) or the SASL outcome
// (*SASLError), each reachable with errors.As. It is Protocol for a peer that speaks another
// protocol or breaks AMQP. Errors of network, TLS and certificates are those of package mqtt. An
// unknown condition means Unknown when the hub rejects a message, and Network when it ends a link,
// session or connection.
//
// A Dial is bounded by its context, which package device sets. The dial of a Mux is bounded by
// Options.OperationTimeout, too.
package amqp

import (
	"context"
	"errors"

	"github.com/hubline-iot/hubline/transport"
)

// Transport makes sessions with a connection each. It is safe for concurrent use. It needs no
// Close.
type Transport struct {
	opt    Options
	err    error // what Dial returns for wrong options
	learnt learnt
}

var _ transport.Transport = (*Transport)(nil)

// New returns a Transport with the given options, which are copied; nil means all defaults. Wrong
// options are reported by Check, which device.New calls, and by Dial, with Kind Invalid.
func New(o *Options) *Transport {
	t := new(Transport)
	t.opt, t.err = o.resolve()
	return t
}

// Check reports wrong options.
func (t *Transport) Check(*transport.Credentials) error { return t.err }

// Dial connects and authenticates, as transport.Transport says. The Sink is not called before Run.
// The package documentation lists the errors.
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

// dialError returns the error of a Dial for a cause.
func dialError(ctx context.Context, err error) *transport.Error {
	if ctx.Err() != nil {
		err = context.Cause(ctx) // ctx ended, which closed the socket
	}
	return protocol.Error(err)
}

func (t *Transport) dial(ctx context.Context, cfg *transport.Config) (*session, error) {
	addr, err := t.opt.addresses(cfg.Creds)
	if err != nil {
		return nil, err
	}
	l, err := t.opt.prove(ctx, cfg.Creds)
	if err != nil {
		return nil, err
	}
	conn, err := t.opt.connect(ctx, cfg.Creds, &l, cfg.DialTimeout, &t.learnt)
	if err != nil {
		return nil, err
	}
	if l.auth == AuthCBS {
		if conn.Sessions() < 2 {
			conn.close()
			return nil, &transport.Error{Kind: transport.Unsupported, Err: errOneSession}
		}
		if err := conn.tokens.put(ctx, cfg.Creds.Resource(), l.token.Text.Reveal(), cfg.Progress); err != nil {
			conn.close()
			return nil, err
		}
	}
	s := newSession(cfg, &t.opt, conn, &l, addr)
	s.release = conn.close
	return s, s.check(ctx)
}

// errOneSession is for a peer that cannot serve CBS, which needs its own AMQP session.
var errOneSession = errors.New("the peer allows one AMQP session on a connection (channel-max), and CBS needs two")

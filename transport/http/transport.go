// Package http connects devices to a hub over HTTPS, for networks that pass no other protocol and
// for devices that wake up, send something and sleep again.
//
//	client, err := device.New(creds, http.New(nil), nil)
//
// One Transport may serve any number of clients at the same time. The package is built on net/http.
//
// # Telemetry
//
// Messages that are queued at the same moment travel in one request, at most 500 messages and 255
// KB; a single queued message is sent at once. At most one telemetry request is in flight, so
// messages arrive in order. The package does not delay requests to enlarge batches. A batch has at
// most device.Options.Window messages, 128 by default; programs with a high message rate set it to
// 500 or more.
//
// A single message travels in its plain form, with its properties as headers. It travels as JSON
// with the body in base64 if a header would change its properties. So does each message of a batch.
// Property names must consist of ASCII letters, digits and ! # $ % & ' * + - . ^ _ ` | ~, and must
// be unique without regard to case; the package refuses other messages with Kind Invalid.
//
// The system properties of Message travel under the hub's names for HTTPS, the same in headers and
// in a batch. Those of Message.System stand in the table of transport.SystemProperties. HTTPS has
// no place for Output, System.DiagnosticID and System.DiagnosticContext: a message with one of them
// is refused with Kind Unsupported, and so is one with Topic, ResponseTopic or Retain.
//
// The first batch has at most 32 KB. The size doubles while requests are fast. It shrinks on a slow
// link, where a large batch would take longer than the client waits before it gives up the
// connection (Options.Timeout, device.Options.AckTimeout). A body so large that base64 costs more
// than a request goes in one of its own. The Transport keeps what it measured, so the next
// connection continues with it and clients that share the Transport share it.
//
// A hub takes a batch as a whole or not at all. If the hub refuses a batch because of one message
// (400, 413, 422 and so on), the batch is sent again in halves, so only the bad message fails. If
// the hub takes nothing at the moment (429, 5xx, a quota), all queued messages are reported with an
// error of Scope Operation, which carries the delay that the hub asked for (Retry-After).
//
// # Connected
//
// HTTP has no lasting connection. Connected means that the last exchange succeeded. Dial connects,
// does TLS, and proves the credentials by an exchange without effect: it abandons a message under a
// lock that does not exist (a module sends an empty batch), which the hub refuses only after it has
// authenticated the device (see Options.NoProof). Run ends with an error of Scope Connection when
// an exchange fails because of the network, or with an answer about the identity (401, a 404 for
// the device, a disabled device). A connection that the hub closes while no request is in flight is
// replaced silently. So is one that the hub closes just as the next request goes, which then goes
// again at once, over the next connection. A reset, or a connection that the system finds dead, is
// a loss. A device whose hub has become unreachable finds out with its next message or poll for
// cloud-to-device messages.
//
// Each request has Options.Timeout, and more while its answer arrives. The session waits that long
// for a hub that answers late. It
// finds a dead network sooner, after 30 s, when a new connection does not come about or (on Linux)
// the peer acknowledges no packets. When an answer is 15 s late, the session tries a second
// connection to tell the two apart. Later requests use a new connection. Messages in flight at the
// failure have an unknown outcome, and package device sends them again; see "What is repeated" in
// the repository's docs/retries.md.
//
// # Cloud-to-device messages
//
// With OpSubscribe the session polls the hub for cloud-to-device messages every
// Options.PollInterval, and again at once after each message until there is none. At most
// Config.Queue messages are unsettled. If the hub is busy, or refuses a poll for a reason that is
// not about the device (400, 409, 412 and so on), the next poll follows after 1 s, 2 s and so on up
// to a minute, or when the hub asked for it (Retry-After), up to an hour. After a refusal that
// looks final, such as 405 or a tier of the hub without such messages, it follows after the longer
// of that and PollInterval. A refusal that does not pass by itself is the reply to OpSubscribe
// (Unsupported), and the next accepted poll replies once more. A new session polls at once, so
// device.Client.Reconnect causes an early poll.
//
// A hub locks a delivered message for a minute. Accept, Release and Reject are the hub's complete,
// abandon and reject. Release waits for 1 s, after each further delivery of the message twice as
// long, up to 30 s, because a hub delivers an abandoned message with the next poll and gives it up
// after ten deliveries. A settlement that fails for a transient reason is retried while the lock
// lasts. If the lock expired before the settlement, the hub delivers the message again: the session
// then repeats an earlier accept or reject without a second call of the handler, as long as the
// session lives. A message that the Sink does not take is abandoned after 5 s. When a session ends,
// it sends pending settlements and abandons unsettled messages, within half a second, unless the
// connection for cloud-to-device messages itself was lost or the hub refuses the device.
//
// Property names arrive in lower case, because header names are case-insensitive. System properties
// fill the fields of Message. Those without a field, "iothub-ack", "iothub-enqueuedtime" and
// "iothub-operation", become Properties of these names.
//
// # Modules
//
// A module sends telemetry, to the hub or to an edge gateway (Credentials.GatewayHost). It has no
// inputs over HTTPS: its OpSubscribe fails with Unsupported at once.
//
// # Tokens, certificates, clock
//
// Each request carries the token. A new token is made when 85 % of the lifetime of the current one
// has passed, so there is nothing to renew (Info.Expires is zero). If the hub refuses a token that
// was made for an earlier request, the request is retried once with a new token. The hub's answers
// carry its time (Date). A Date can be forged, so it never makes a token of a set clock live longer
// than TokenLife by that clock:
//
//   - A clock that is ahead is corrected: tokens are made by the hub's time.
//   - A clock that is behind by less than TokenLife needs no correction. Tokens are renewed by the
//     hub's time.
//   - If a clock is behind by more, the hub refuses its tokens, and the error is ClockUnset: set
//     the clock.
//   - A clock that is not set (Credentials.Implausible) is replaced by the hub's, if TLS has
//     verified the hub and its certificate is valid at that time.
//
// Tokens are made by Transport.Now; with creds.Now = t.Now the client uses it too. A certificate
// that is not valid yet by the device's clock fails with ClockUnset: for a clock that is never set,
// give Options.Network.TLS.Time a closer time, such as the build time.
//
// X.509 certificates are requested for each connection; see netopt.Options.Certificate.
//
// HTTPS has no twin and no methods: their requests fail with Unsupported at once.
//
// # Errors
//
// The Kind follows from the hub's error code if it is a known one, else from the status; each has a
// row in a table. *transport.StatusError is reachable with errors.As. A hub acknowledges with 204,
// and with 200 only a poll, by a message with a lock and the hub's headers. Any other success, a
// redirection, a web page, and a 404 or a refusal of a message without a code, name or id of a hub
// come from a peer that is no hub, such as an intercepting proxy or a captive portal: they
// acknowledge and refuse no message and are Protocol. Errors of network, TLS and certificates are
// as in package mqtt. The hub's text is shown with signatures removed.
package http

import (
	"context"
	"time"

	"github.com/hubline-iot/hubline/internal/dialer"
	"github.com/hubline-iot/hubline/internal/hubhttp"
	"github.com/hubline-iot/hubline/transport"
)

// Transport makes sessions. It is safe for concurrent use.
type Transport struct {
	opt   Options
	err   error // what Dial returns for wrong options
	clock hubhttp.Clock
	sizer sizer
}

var (
	_ transport.Transport = (*Transport)(nil)
	_ transport.Limited   = (*Transport)(nil)
)

// New returns a Transport with a copy of the given options; nil means all defaults. Check,
// which device.New calls, and Dial report wrong options, with Kind Invalid.
func New(o *Options) *Transport {
	t := new(Transport)
	t.opt, t.err = o.resolve()
	return t
}

// Check reports wrong options.
func (t *Transport) Check(*transport.Credentials) error { return t.err }

// Now returns the time by the hub's clock, estimated from the Date headers of its answers: accurate
// to one second plus half of the shortest round trip. It returns time.Now before the first answer,
// after this process's clock is set until the next answer, and while both clocks agree within that
// accuracy. It is never ahead of this process's clock, unless that clock is not set and TLS has
// verified the hub. It can serve as Credentials.Now.
func (t *Transport) Now() time.Time { return t.clock.Now() }

// Skew returns how far the hub's clock is ahead of time.Now. known is false before the first answer
// with a time, and after this process's clock was set until the next one.
func (t *Transport) Skew() (skew time.Duration, known bool) { return t.clock.Skew() }

const unavailable = "not available over HTTPS"

// Lacks says that HTTPS has only cloud-to-device messages, and those not for modules.
func (t *Transport) Lacks(creds *transport.Credentials, feature transport.Features) string {
	return lacks(creds, feature)
}

func lacks(creds *transport.Credentials, feature transport.Features) string {
	if feature == transport.FeatureMessages && creds.ModuleID == "" {
		return ""
	}
	return unavailable
}

// Dial makes a session as transport.Transport specifies: connection, TLS, and the exchange that
// proves the credentials. It does not call the Sink before Run. The package documentation lists the
// errors.
func (t *Transport) Dial(ctx context.Context, cfg *transport.Config) (transport.Session, error) {
	if t.err != nil {
		return nil, t.err
	}
	if err := cfg.Creds.Validate(); err != nil {
		return nil, protocol.Error(err)
	}
	s := newSession(t, cfg)
	stop := context.AfterFunc(ctx, s.abort)
	limited, cancel := ctx, func() {}
	if cfg.DialTimeout > 0 {
		limited, cancel = context.WithTimeout(ctx, cfg.DialTimeout)
	}
	err := s.prove(limited)
	cancel()
	stopped := stop()
	if err == nil && stopped {
		return s, nil
	}
	s.cancelSettling()
	s.telemetry.requester.close()
	if ctx.Err() != nil {
		err = context.Cause(ctx) // the socket error is a consequence of it
	}
	return nil, protocol.Error(dialer.First{Err: err, Want: "HTTP"})
}

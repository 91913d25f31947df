// Package http carries devices over HTTPS, for networks that let nothing else through and for
// devices that wake up, say something and sleep again.
//
//	client, err := device.New(creds, http.New(nil), nil)
//
// A Transport may serve any number of clients at a time. It is built on net/http.
//
// # Telemetry
//
// Messages that wait at the same moment travel in one request, up to 500 of them and 255 KB; a
// message that comes alone goes at once. There is one request for telemetry under way at a time, so
// messages arrive in order. Requests are not delayed to make batches larger; a batch has at most as
// many messages as device.Options.Window, 128 by default: programs that send much make it 500 or
// more. A message alone travels in its plain form, with its properties as headers; a message whose
// properties a header would change, and each message of a batch, travels as JSON with the body in
// base64. Names of properties must consist of ASCII letters, digits and ! # $ % & ' * + - . ^ _ ` |
// ~, and be there once, without regard to case; other messages are refused here, with Kind Invalid.
//
// The first batch has 32 KB at most; they double while they go quickly, and get smaller over a slow
// link, where a large one would take longer than the client believes in a connection
// (Options.Timeout, device.Options.AckTimeout). What is learnt so of the link belongs to the
// Transport, so that the next connection goes on with it, and clients that share the Transport
// share it.
//
// A hub takes a batch as a whole or not at all. One that it refuses because of a message in it
// (400, 413, 422 and so on) is sent again in halves, so only the bad message fails. What the hub
// does not take at the moment (429, 5xx, a quota) is reported for all messages that wait, with the
// time that the hub asked for (Retry-After), as an error of Scope Operation.
//
// # Connected
//
// HTTP knows no connection that lasts. Connected means that the last exchange succeeded. Dial
// connects, does TLS and proves the credentials by an exchange that does nothing: it gives back a
// message under a lock that does not exist (a module sends a batch of no messages), which the hub
// refuses only after it has found out who asks (see Options.NoProof). Run ends, with an error of
// Scope Connection, when an exchange fails because of the network, or with an answer about the
// identity (401, a 404 for the device, a disabled device). A connection that the hub closes while
// nothing is under way is replaced without a word; one that is reset, or that the system finds
// dead, is a loss. A device that the hub has gone away from finds out with its next message or look
// for cloud-to-device messages.
//
// Each request has Options.Timeout. A hub that answers within it is waited for, however late; a
// network that is dead is found sooner where it can be told from such a hub: when a new connection
// does not come about, or (on Linux) nobody acknowledges packets, for 30 s. While an answer is late
// for 15 s a second connection is tried for that. What follows goes over a new connection. What was
// under way when it failed has an unknown outcome, and package device sends it again; see "What is
// repeated" in the repository's docs/retries.md.
//
// # Cloud-to-device messages
//
// With OpSubscribe the hub is asked for cloud-to-device messages each Options.PollInterval, and
// again at once after each one that came, until there is none; never are more than Config.Queue
// unsettled. A hub that is busy, or refuses a look for a reason that is not about the device (400,
// 409, 412 and so on), is asked again after 1 s, 2 s and so on up to a minute, or when it said
// (Retry-After), up to an hour. A new session looks at once, so device.Client.Reconnect looks
// early. A hub locks what it gives for a minute. Accept, Release and Reject are the hub's complete,
// abandon and reject; one that fails because of the moment is tried again while the lock lasts.
// When the lock was lost before the verdict came, the hub delivers the message again: if it had
// been accepted or rejected, that is repeated without asking anybody again, as long as the session
// lives. A message that the Sink does not take is abandoned after 5 s. At the end of a session
// verdicts that were given are told and what is not settled is abandoned, within half a second,
// unless the connection that brought cloud-to-device messages was lost itself, or the hub refuses
// the device.
//
// Names of properties come in lower case, for the case of a header's name says nothing. Modules
// have no cloud-to-device messages over HTTPS.
//
// # Tokens, certificates, clock
//
// Each request carries the token, which is made anew when 85 % of its life is over, so there is
// nothing to renew (Info.Expires is zero). When the hub refuses one that was made for an earlier
// request, another one is tried, once. The hub's answers tell the time (Date). A Date can be
// forged, so it never makes a token of a set clock live longer than TokenLife by that clock:
//
//   - A clock that is ahead is corrected: tokens are made by the hub's time.
//   - A clock that is late by less than TokenLife needs no correction. Tokens are renewed by the
//     hub's time.
//   - A clock that is late by more gets its tokens refused, as ClockUnset: set it.
//   - A clock that is not set (Credentials.Implausible) is replaced by the hub's, if TLS has
//     verified the hub and its certificate is valid at that time.
//
// Transport.Now is the time to make tokens by; with creds.Now = t.Now the client goes by it too. A
// certificate that is not valid yet by the device's clock fails with ClockUnset: for a clock that
// is never set give Options.Network.TLS.Time a time that is nearer, such as that of the build.
//
// X.509 certificates are asked for at each connection; see netopt.Options.Certificate.
//
// Twin and methods are not there over HTTPS: their requests are replied to with Unsupported at
// once.
//
// # Errors
//
// Kinds follow from the hub's own error code if it is a known one, else from the status; each has a
// row in a table. *transport.StatusError is reachable with errors.As. Redirections are not
// followed: they are Protocol. All that concerns network, TLS and certificates is as in package
// mqtt. The hub's text is shown without the signatures that may be in it.
package http

import (
	"context"
	"time"

	"github.com/hubline-iot/hubline/internal/hubauth"
	"github.com/hubline-iot/hubline/transport"
)

// Transport makes sessions. It is safe for concurrent use.
type Transport struct {
	opt   Options
	err   error // what Dial returns for wrong options
	clock hubauth.Clock
	pace  pace
}

var _ transport.Transport = (*Transport)(nil)

// New returns a Transport with the given options, which are copied; nil means all defaults. Wrong
// options are reported by Dial, with Kind Invalid.
func New(o *Options) *Transport {
	t := new(Transport)
	t.opt, t.err = o.resolve()
	return t
}

// Now is the time by the hub's clock, as far as the Date headers of its answers tell: to a second
// and half of the time that the quickest one took. Before the first answer, from when this
// process's clock is set until the next one, and where both agree within that, it is time.Now. It
// is not ahead of this process's clock, unless that is not set and TLS has verified the hub. It
// fits Credentials.Now.
func (t *Transport) Now() time.Time { return t.clock.Now() }

// Skew is how far the hub's clock is ahead of time.Now. False: no answer has told it yet, or not
// since this process's clock was set.
func (t *Transport) Skew() (skew time.Duration, known bool) { return t.clock.Skew() }

// Dial makes a session as transport.Transport says: connection, TLS, and the exchange that proves
// the credentials. The Sink is not called before Run. The package documentation lists the errors.
func (t *Transport) Dial(ctx context.Context, cfg *transport.Config) (transport.Session, error) {
	if t.err != nil {
		return nil, t.err
	}
	if err := cfg.Creds.Validate(); err != nil {
		return nil, protocol.Error(err)
	}
	s := newSession(t, cfg)
	stop := context.AfterFunc(ctx, s.cut)
	err := s.prove(ctx)
	stopped := stop()
	if err == nil && stopped {
		return s, nil
	}
	s.cancelLate()
	s.telemetry.lane.hangUp()
	if ctx.Err() != nil {
		err = context.Cause(ctx) // what the end of ctx did to the socket is of no interest
	}
	return nil, protocol.Error(err)
}

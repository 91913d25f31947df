package device

import (
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// Trace is a set of optional callbacks for what happens inside a client, in the manner of
// httptrace. They run on the client's own goroutines, must return at once, and must not call the
// client. Use them to log, count and measure; for the state of the connection use Options.OnStatus.
//
// A callback that panics or ends its goroutine (runtime.Goexit) makes the client Disconnected with
// an error of Kind Invalid that names it, or begins again after Options.TryAgainAfter. The same
// holds for policies, Options.Rand and Credentials.Now. Panics of HandlerPanic, AnswerLost and
// TwinUnread are ignored.
type Trace struct {
	// Connected: a session is up and subscribed. took is the time since its attempt began.
	Connected func(info transport.Info, took time.Duration)
	// SessionEnd: a session that was up has ended. err is nil when the client hung up as planned.
	SessionEnd func(err error, up time.Duration)
	// Decision: a policy was asked, or asked again after SetRetryPolicy. d is what the client does:
	// RetryAfter, the least delay of a slow pace and spread included.
	Decision func(a retrypolicy.Attempt, d retrypolicy.Decision)
	// Renewed: the session's credentials were renewed in place and expire then; or, with err, they
	// could not be, and the session is about to be replaced. Not called for sessions that are always
	// replaced (MQTT).
	Renewed func(expires time.Time, err error)
	// Sent: n messages were handed to the session.
	Sent func(n int)
	// Settled: a verdict on a cloud-to-device message was handed to the session.
	Settled func(o transport.Outcome)
	// HandlerPanic: a handler, or OnStatus, failed. It panicked with v, or v is an error that says
	// what it did instead: it ended its goroutine, or answered a method with what is not JSON or is
	// too large. A message was released, a method was answered with the status 500. It is called
	// on the handler's goroutine.
	HandlerPanic func(v any)
	// AnswerLost: the answer to a direct method could not be sent: the session that brought the call
	// has ended, and the hub has given it up, or it has no way for it, or the hub calls methods faster
	// than it takes answers (see Client.HandleMethod). An answer that was sent, and that the network
	// lost, is not noticed; a hub does not confirm answers.
	AnswerLost func(method string)
	// TwinUnread: the twin could not be read to catch up with desired properties, for a reason that no
	// retry mends. It is read again after 10 s, then after growing times up to 10 minutes, with the
	// next change and with the next connection.
	TwinUnread func(err error)
	// ClockJump: the credentials' clock moved by this much more than time passed: the device slept, or
	// the clock was set.
	ClockJump func(by time.Duration)
}

package device

import (
	"time"

	"github.com/hubline-iot/hubline/internal/callback"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// Trace is a set of optional callbacks for events inside a client, similar to httptrace. They run
// on the client's goroutines, must return at once, and must not call the client. Use them for logs,
// counters and measurements; for the state of the connection use Options.OnStatus.
//
// A callback that panics or ends its goroutine (runtime.Goexit) makes the client Disconnected with
// an error of Kind Invalid that names the callback; with Options.TryAgainAfter the client starts
// over. The same holds for policies, Options.Rand and Credentials.Now. Panics of HandlerPanic,
// InputUnhandled, AnswerLost and TwinUnread are ignored.
type Trace struct {
	// Connected: a session is up and subscribed. took is the time since its attempt began.
	Connected func(info transport.Info, took time.Duration)
	// SessionEnd: a session that was up has ended. err is nil when the client hung up as planned.
	SessionEnd func(err error, up time.Duration)
	// Decision: a policy was asked, or asked again after SetRetryPolicy. d is the decision that the
	// client executes; it includes RetryAfter, the minimum delay of a slow pace and the spread.
	Decision func(a retrypolicy.Attempt, d retrypolicy.Decision)
	// Renewed: the session's credentials were renewed in place and expire at that time. With err, the
	// renewal failed and the session will be replaced. Not called for sessions that are always
	// replaced (MQTT).
	Renewed func(expires time.Time, err error)
	// Sent: n messages were handed to the session.
	Sent func(n int)
	// Settled: a verdict on a cloud-to-device message was handed to the session.
	Settled func(o transport.Outcome)
	// HandlerPanic: a handler, or OnStatus, failed. v is the panic value, or an error: the handler
	// ended its goroutine, or its answer to a method is too large or not JSON. The message was
	// released; the method was answered with the status 500. Called on the handler's goroutine.
	HandlerPanic func(v any)
	// InputUnhandled: a message came by an input of the module that no handler is for, and was
	// rejected; see Client.HandleInput. Called on the handlers' goroutine.
	InputUnhandled func(input string)
	// AnswerLost: the answer to a direct method could not be sent. The session that brought the call
	// has ended, and the hub has given up the call; or the session cannot send it; or the hub calls
	// methods faster than it takes answers (see Client.HandleMethod). Answers that were sent and then
	// lost are not detected, because a hub does not confirm answers.
	AnswerLost func(method string)
	// TwinUnread: the twin could not be read to catch up with desired properties, and the failure is
	// not retryable. It is read again after 10 s, then at growing intervals of up to 10 minutes, on
	// the next change and on the next connection.
	TwinUnread func(err error)
	// ClockJump: the credentials' clock moved by this much relative to elapsed time, ahead or back by
	// 5 s or more, because the device slept or the clock was set. Called at most every 30 s.
	ClockJump func(by time.Duration)
}

// The loop calls the policies, Trace, Rand and the credentials' clock on its own goroutine, because
// it calls some of them for each batch. It notes the running callback for crashed.

// rand draws a random number for a policy.
func (l *loop) rand() uint64 {
	l.calls("Options.Rand")
	n := l.c.set.Rand()
	l.called()
	return n
}

// wall reads the credentials' clock.
func (l *loop) wall() time.Time {
	l.calls("Credentials.Now")
	at := l.c.creds.Time()
	l.called()
	return at
}

// withSafeClock returns creds with a protected clock, for goroutines that must not end and for code
// that holds a lock. A clock that panics or ends its goroutine reads as unset.
func withSafeClock(creds *transport.Credentials) *transport.Credentials {
	now := creds.Now
	if now == nil {
		return creds
	}
	safe := *creds
	safe.Now = func() (at time.Time) {
		if callback.Run("Credentials.Now", func() { at = now() }) != nil {
			return time.Unix(0, 0)
		}
		return at
	}
	return &safe
}

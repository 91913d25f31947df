package device

import (
	"time"

	"github.com/hubline-iot/hubline/internal/callback"
	"github.com/hubline-iot/hubline/transport"
)

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

package device

import (
	"errors"
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// clock notices when the wall clock moves by more, or less, than time passes. Loop only.
type clock struct {
	wall time.Time // as it was looked at last, in serve at the beginning of each turn

	// What the wall clock is compared with: both clocks at one moment.
	fromWall, fromMono time.Time

	judged time.Time // when a jump was found last
}

const (
	// clockCheck is how often the clock is looked at when nothing else happens, and the least time
	// between two jumps that count: a clock that swings, or runs fast, must not make the client
	// connect all the time.
	clockCheck = 30 * time.Second
	// clockJump is the least difference that counts.
	clockJump = 5 * time.Second
)

// jump returns by how much the wall clock moved beyond the time that passed; 0 for less than
// clockJump. Within clockCheck after a jump it returns 0; a difference that is still there then is
// the next one.
func (k *clock) jump(wall, mono time.Time) time.Duration {
	var by time.Duration
	if !k.fromMono.IsZero() {
		by = wall.Round(0).Sub(k.fromWall) - mono.Sub(k.fromMono) // what the clock shows, not the monotonic reading
	}
	k.wall = wall
	jumped := by >= clockJump || by <= -clockJump
	if jumped && !k.judged.IsZero() && mono.Sub(k.judged) < clockCheck {
		return 0
	}
	k.fromWall, k.fromMono = wall, mono
	if !jumped {
		return 0
	}
	k.judged = mono
	return by
}

// settle compares with what the clocks show at this moment from now on.
func (k *clock) settle(wall, mono time.Time) { k.wall, k.fromWall, k.fromMono = wall, wall, mono }

// clockJumped looks at the clock and tells the trace.
func (l *loop) clockJumped(now time.Time) time.Duration {
	by := l.clock.jump(l.wall(), now)
	if t := l.c.set.Trace; by != 0 && t != nil && t.ClockJump != nil {
		l.calls("Trace.ClockJump")
		t.ClockJump(by)
		l.called()
	}
	return by
}

// errJumped is why a connection counts as lost when the clock jumped ahead.
var errJumped = &transport.Error{
	Kind: transport.Network, Scope: transport.Connection, Op: transport.OpRun,
	Err: errors.New("the clock jumped ahead: the device has slept, so the connection is dead, or the clock was set, so " +
		"the token may be old"),
}

// clockAtFault returns what the failure of an attempt means when the device's clock at its
// beginning is taken into account: a token of ours that is refused is no proof of a wrong key when
// it was signed by a clock that is not set.
func (l *loop) clockAtFault(failure *transport.Error) *transport.Error {
	if !l.c.creds.ClockRefused(l.clock.wall, failure) {
		return failure
	}
	return &transport.Error{Kind: transport.ClockUnset, Scope: failure.Scope, Op: failure.Op, Proto: failure.Proto,
		RetryAfter: failure.RetryAfter, Err: failure}
}

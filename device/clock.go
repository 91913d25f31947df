package device

import (
	"errors"
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// clock detects jumps of the wall clock relative to elapsed time. Loop only.
type clock struct {
	wall time.Time // latest reading; serve takes one at the start of each turn

	// The reference for the next comparison: both clocks at one moment.
	fromWall, fromMono time.Time

	judged time.Time // time of the latest jump
}

const (
	// clockCheck is the interval of clock checks on an idle connection. It is also the least time
	// between two jumps that count, so a clock that swings or runs fast does not make the client
	// reconnect all the time.
	clockCheck = 30 * time.Second
	// clockJump is the smallest difference that counts as a jump.
	clockJump = 5 * time.Second
)

// jump returns by how much the wall clock moved beyond the elapsed time; 0 for less than clockJump.
// Within clockCheck after a jump it returns 0. A difference that remains after that counts as the
// next jump.
func (k *clock) jump(wall, mono time.Time) time.Duration {
	var by time.Duration
	if !k.fromMono.IsZero() {
		by = wall.UTC().Sub(k.fromWall) - mono.Sub(k.fromMono) // UTC strips the monotonic reading
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

// settle makes the current readings the reference for the next comparison.
func (k *clock) settle(wall, mono time.Time) { k.wall, k.fromWall, k.fromMono = wall, wall, mono }

// clockJumped checks the clock and reports a jump to the trace.
func (l *loop) clockJumped(now time.Time) time.Duration {
	by := l.clock.jump(l.wall(), now)
	if t := l.c.set.Trace; by != 0 && t != nil && t.ClockJump != nil {
		l.calls("Trace.ClockJump")
		t.ClockJump(by)
		l.called()
	}
	return by
}

// errJumped is the error of a connection that is given up because the clock jumped ahead.
var errJumped = &transport.Error{
	Kind: transport.Network, Scope: transport.ScopeConnection, Op: transport.OpRun,
	Err: errors.New("the clock jumped ahead: the device has slept, so the connection is dead, or the clock was set, so " +
		"the token may be old"),
}

// clockAtFault turns the failure of an attempt into ClockUnset if the clock was not set when the
// attempt began. A token signed by an unset clock may be refused although the key is right.
func (l *loop) clockAtFault(failure *transport.Error) *transport.Error {
	if !l.c.creds.ClockRefused(l.clock.wall, failure) {
		return failure
	}
	return &transport.Error{Kind: transport.ClockUnset, Scope: failure.Scope, Op: failure.Op, Proto: failure.Proto,
		RetryAfter: failure.RetryAfter, Err: failure}
}

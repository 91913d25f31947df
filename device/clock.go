package device

import (
	"errors"
	"time"

	"github.com/hubline-iot/hubline/internal/callback"
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
	by := k.moved(wall, mono)
	k.wall = wall
	if by != 0 && !k.judged.IsZero() && mono.Sub(k.judged) < clockCheck {
		return 0
	}
	k.fromWall, k.fromMono = wall, mono
	if by != 0 {
		k.judged = mono
	}
	return by
}

// moved is jump also within clockCheck after a jump, and changes nothing.
func (k *clock) moved(wall, mono time.Time) time.Duration {
	if k.fromMono.IsZero() {
		return 0
	}
	by := wall.UTC().Sub(k.fromWall) - mono.Sub(k.fromMono) // UTC strips the monotonic reading
	if by > -clockJump && by < clockJump {
		return 0
	}
	return by
}

// settle makes the current readings the reference for the next comparison.
func (k *clock) settle(wall, mono time.Time) { k.wall, k.fromWall, k.fromMono = wall, wall, mono }

// errJumped is the error of a connection that is given up because the clock jumped ahead.
var errJumped = &transport.Error{
	Kind: transport.Network, Scope: transport.ScopeConnection, Op: transport.OpRun,
	Err: errors.New("the clock jumped ahead: the device has slept, so the connection is dead, or the clock was set, so " +
		"the token may be old"),
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

package device

import "time"

// clock notices when the wall clock moves by more, or less, than time passes. It belongs to the loop.
type clock struct {
	wall time.Time // as it was looked at last, in serve at the beginning of each turn
	mono time.Time
}

const (
	// clockCheck is how often the clock is looked at when nothing else happens.
	clockCheck = 30 * time.Second
	// clockJump is the least difference that counts.
	clockJump = 5 * time.Second
)

// jump returns by how much the wall clock moved beyond the time that passed since the last call; 0 for less than clockJump.
func (k *clock) jump(wall, mono time.Time) time.Duration {
	var by time.Duration
	if !k.mono.IsZero() {
		by = wall.Round(0).Sub(k.wall) - mono.Sub(k.mono) // what the clock shows, not the monotonic reading
	}
	k.wall, k.mono = wall, mono
	if by < clockJump && by > -clockJump {
		return 0
	}
	return by
}

// clockJumped looks at the clock and tells the trace.
func (l *loop) clockJumped(now time.Time) time.Duration {
	by := l.clock.jump(l.wall(), now)
	if t := l.c.set.Trace; by != 0 && t != nil && t.ClockJump != nil {
		l.calling = "Trace.ClockJump"
		t.ClockJump(by)
		l.calling = ""
	}
	return by
}

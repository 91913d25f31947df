package fleet

import "time"

// Effect is what devices notice of a fault.
type Effect uint8

const (
	// EffectRefused: connections are reset, and attempts are refused at once, as by a host without the
	// service.
	EffectRefused Effect = iota
	// EffectSilent: packets are lost. Connections die without notice, and attempts end after
	// DialTimeout.
	EffectSilent
	// EffectUnavailable: connections are closed, and the hub answers attempts with CONNACK 3, after a
	// complete handshake.
	EffectUnavailable

	effects // number of effects
)

var effectText = [effects]string{EffectRefused: "refused", EffectSilent: "silent", EffectUnavailable: "unavailable"}

// String returns the name of the effect.
func (e Effect) String() string {
	if e >= effects {
		return "undefined effect"
	}
	return effectText[e]
}

// Fault takes a part of the fleet off the hub for a time.
type Fault struct {
	// At is when the fault begins, and For is how long it lasts.
	At, For time.Duration
	Effect  Effect
	// Notice is the time within which the devices notice a Silent loss, at random: a keep-alive or a
	// message without an answer. A device that would notice later than the fault's end keeps its
	// connection, and its messages are acknowledged after that end. Default 30 s.
	Notice time.Duration
	// First and Count select the devices. Count 0: all from First on.
	First, Count int
	// Every repeats the fault. 0: once. It must exceed For.
	Every time.Duration
	// Cell divides the selected devices into cells of that size, each of which begins at a random time
	// within Every after At. 0: all at the same time.
	Cell int
}

// shape is a Fault in nanoseconds.
type shape struct {
	Fault
	phases []int64 // of each cell
}

// phase returns the delay of the cell of device i, and whether the fault concerns the device.
func (f *shape) phase(i int) (int64, bool) {
	if i < f.First || f.Count > 0 && i >= f.First+f.Count {
		return 0, false
	}
	if f.Cell == 0 {
		return 0, true
	}
	return f.phases[(i-f.First)/f.Cell], true
}

// during reports whether the fault holds device i at time t.
func (f *shape) during(i int, t int64) bool {
	phase, concerned := f.phase(i)
	since := t - int64(f.At) - phase
	if !concerned || since < 0 {
		return false
	}
	if f.Every > 0 {
		since %= int64(f.Every)
	}
	return since < int64(f.For)
}

// next returns the first beginning of the fault for device i at or after t.
func (f *shape) next(i int, t int64) int64 {
	phase, concerned := f.phase(i)
	if !concerned {
		return never
	}
	at := int64(f.At) + phase
	switch {
	case at >= t:
		return at
	case f.Every == 0:
		return never
	}
	periods := (t - at + int64(f.Every) - 1) / int64(f.Every)
	return at + periods*int64(f.Every)
}

package fleet

import (
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/reconnect"
	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/transport"
)

// window is the number of messages that a device has in flight at most, the client's default.
const window = 128

// connected begins a connection.
func (b *block) connected(i int32, t int64) {
	d, s := &b.devices[i], b.sim
	b.count(cUp, t, 1)
	d.state, d.upAt, d.came, d.noticing, d.batch = up, t, 0, false, 0
	d.loss, d.fault = s.nextFault(b.first+int(i), t)
	b.planRenewal(d, t, s.scenario.Tokens.Life)
	b.rest(i, t)
}

// planRenewal sets when the token of d, with the given remaining life, is renewed or expires.
func (b *block) planRenewal(d *device, t int64, life time.Duration) {
	d.renew = never
	if life <= 0 {
		return
	}
	in, rules := life, &b.sim.rules
	switch {
	case rules.RenewAt < 0 || life < reconnect.ShortLife:
	case rules.RenewInStep:
		in = times.Part(life, rules.RenewAt)
	default:
		in = reconnect.RenewIn(life, rules.RenewAt, d.draw())
	}
	d.renew = later(t, in)
}

// rest sets the next event of a connection that is up.
func (b *block) rest(i int32, t int64) {
	d := &b.devices[i]
	b.generate(d, t)
	d.state, d.at = up, min(d.loss, d.renew)
	switch {
	case d.noticing:
		d.at = d.loss
	case d.queue > 0:
		d.at = min(d.at, max(t, d.hold))
	default:
		d.at = min(d.at, d.due)
	}
	if stable := later(d.upAt, b.sim.rules.StableTime); !d.reported && b.process(i).remembers {
		d.at = min(d.at, max(t, stable))
	}
}

// live handles the next event of a connection that is up.
func (b *block) live(i int32, t int64) {
	d := &b.devices[i]
	if !d.reported && time.Duration(t-d.upAt) >= b.sim.rules.StableTime {
		b.observe(i, t, nil)
	}
	b.generate(d, t)
	switch {
	case t >= d.loss:
		b.struck(i, t)
	case d.noticing:
		b.rest(i, t)
	case t >= d.renew:
		b.renewed(i, t)
	case d.queue > 0 && t >= d.hold:
		d.batch, d.began = min(d.queue, window), t
		b.arrive(i, t)
	default:
		b.rest(i, t)
	}
}

// struck handles the beginning of a fault, and the moment when the device notices a silent one.
func (b *block) struck(i int32, t int64) {
	d := &b.devices[i]
	f := &b.sim.faults[d.fault]
	worked := t
	switch {
	case d.noticing:
		worked = d.hold // when the fault began
	case f.Effect == EffectSilent:
		notice := reconnect.Spread(f.Notice, d.draw())
		if notice < f.For {
			d.noticing, d.hold, d.loss, d.batch = true, t, t+int64(notice), 0
		} else {
			b.unnoticed(d, later(d.loss, f.For))
			d.loss, d.fault = b.sim.nextFault(b.first+int(i), t+1)
		}
		b.rest(i, t)
		return
	}
	d.hold = 0
	b.lose(i, t, worked, lost)
}

// unnoticed keeps the connection of d through a silent fault until the given time. Nothing passes
// before: messages wait for their answers, and the hub's end of an old token does not arrive. A
// renewal by the device is a new connection, which the fault meets.
func (b *block) unnoticed(d *device, until int64) {
	d.hold = max(d.hold, until)
	if b.sim.rules.RenewAt < 0 {
		d.renew = max(d.renew, until)
	}
}

// renewed replaces a connection whose token is old. Without renewal the hub ends it.
func (b *block) renewed(i int32, t int64) {
	d := &b.devices[i]
	if b.sim.rules.RenewAt < 0 {
		b.lose(i, t, t, tokenExpired)
		return
	}
	b.observe(i, t, nil)
	b.down(i, t, t, errfilter.PaceNormal)
	d.state, d.at = waiting, t
}

// acknowledge handles the answer to a batch of messages, or a fault before it.
func (b *block) acknowledge(i int32, t int64) {
	d := &b.devices[i]
	if t >= d.loss {
		d.batch = 0
		b.struck(i, t)
		return
	}
	b.radiate(d, d.began, t, int(d.batch)*b.sim.scenario.Telemetry.Size)
	switch f := &b.sim.failures[d.result]; {
	case d.result == acknowledged:
		b.count(cAcknowledged, t, int64(d.batch))
		d.queue -= d.batch
		d.came, d.pause = d.came+d.batch, 0
		d.batch = 0
		b.rest(i, t)
	case f.err != nil && f.err.Scope == transport.ScopeOperation:
		d.batch = 0
		b.paused(i, t, f)
	default:
		b.lose(i, t, d.began, d.result)
	}
}

// paused asks the policy how long to send nothing after a refused message.
func (b *block) paused(i int32, t int64, f *failure) {
	d := &b.devices[i]
	d.pause++
	a := b.ask(i, t, f)
	a.Scope, a.Retry = transport.ScopeOperation, int(d.pause)
	answer := b.process(i).policies.Decide(nil, a)
	if !answer.Retry { // the oldest message fails
		d.queue--
		d.pause = 0
		b.count(cOverflow, t, 1)
	}
	d.hold = later(t, max(answer.Delay, shortestHold))
	b.rest(i, t)
}

// generate puts the messages that are due into the queue. A full one drops the oldest.
func (b *block) generate(d *device, t int64) {
	for d.due <= t {
		if b.budget--; b.budget < 0 { // ends the run
			return
		}
		b.count(cGenerated, d.due, 1)
		b.events++
		if int(d.queue) < b.sim.rules.MaxMessages {
			d.queue++
		} else {
			b.count(cOverflow, d.due, 1)
		}
		d.due = b.sim.scenario.Telemetry.after(d.due)
	}
}

// after returns when the message after the one at t is due.
func (m *Telemetry) after(t int64) int64 { return m.walk(t, m.Every) }

// walk returns when an interval at the rate 1 that begins at t ends at the rates of Day.
func (m *Telemetry) walk(t int64, interval time.Duration) int64 {
	if m.Every == 0 {
		return never
	}
	if m.Day == [24]float64{} {
		return later(t, interval)
	}
	left := float64(interval)
	for range maxDay {
		hour := t / int64(time.Hour)
		end, weight := (hour+1)*int64(time.Hour), m.Day[hour%24]
		if room := float64(end-t) * weight; left >= room {
			left -= room
			t = end
			continue
		}
		return t + max(int64(left/weight), 1)
	}
	return never
}

// maxDay is the number of hours after which a device counts as silent.
const maxDay = 70 * 24

package fleet

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/hubline-iot/hubline/internal/reconnect"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// blockSize is the largest number of devices in a block. Blocks do not depend on the number of
// workers, so neither does the result.
const blockSize = 1 << 14

// block is a part of the fleet: whole processes. In a step one worker owns it.
type block struct {
	sim       *simulation
	number    int // of the block
	first     int // number of the first device
	devices   []device
	processes []process // one for each Gateway devices; a single one if all are plain
	shared    bool      // devices of a process influence each other: order matters
	calendar  *calendar // of the devices to advance

	*tally         // of the worker that runs the block
	start    int64 // of the current step
	ahead    int64 // events of a device before this time do not depend on others
	question retrypolicy.Attempt
	loaded   int64 // keeps the compiler from removing load
	due      []entry
	batch    []int32
	requests []entry
	answers  []answer // of the hub to the arrivals of the step before
	budget   int64    // events left
}

func (b *block) process(i int32) *process {
	if len(b.processes) == 1 {
		return &b.processes[0]
	}
	return &b.processes[int(i)/b.sim.scenario.Gateway]
}

// mostAhead bounds how far a device runs ahead of the others. Steps take about the same time then,
// and progress is shown between them.
const mostAhead = int64(10 * time.Minute)

// busy reports whether there is something to do in the current step.
func (b *block) busy() bool { return len(b.answers) > 0 || b.calendar.due() }

// run executes the events of a step.
//
// Devices that influence each other take turns in the order of time. Nothing but the hub's answers
// influences the others, so each runs ahead to its next request, or by mostAhead: that saves most
// of the visits to devices, which cost cache misses.
func (b *block) run(ctx context.Context, step int64, t *tally) {
	b.tally, b.start = t, step*b.calendar.step
	b.ahead = min(b.start+mostAhead, b.sim.end)
	if b.shared {
		b.ahead = min(b.start+b.calendar.step, b.sim.end)
	}
	for part := range slices.Chunk(b.answers, loaded) {
		if ctx.Err() != nil {
			return // it ends the run
		}
		b.receive(part)
	}
	b.answers = b.answers[:0]
	b.due = b.calendar.take(b.due[:0])
	if b.shared {
		slices.SortFunc(b.due, func(x, y entry) int {
			return cmp.Or(cmp.Compare(x.at, y.at), cmp.Compare(x.device, y.device))
		})
	}
	for part := range slices.Chunk(b.due, loaded) {
		if ctx.Err() != nil {
			return
		}
		b.batch = b.batch[:0]
		for _, e := range part {
			b.batch = append(b.batch, e.device.device())
		}
		b.load()
		for _, i := range b.batch {
			b.advance(i)
		}
	}
}

// receive sets the next events of the devices that the hub answered.
func (b *block) receive(answers []answer) {
	b.batch = b.batch[:0]
	for _, a := range answers {
		b.batch = append(b.batch, a.device)
	}
	b.load()
	for _, a := range answers {
		d := &b.devices[a.device]
		d.state, d.result, d.at = answering, a.outcome, a.at
		if d.batch > 0 {
			d.state, d.at = sending, min(d.at, d.loss)
		}
		if b.shared {
			b.wake(a.device, b.calendar.now)
		} else {
			b.advance(a.device)
		}
	}
}

// loaded is the number of devices that load reads at a time.
const loaded = 64

// load reads the devices of the batch, which brings them into the cache together. Each would cost a
// cache miss otherwise, one after the other: half of the time of a run with a million devices.
func (b *block) load() {
	var sum int64
	for _, i := range b.batch {
		d := &b.devices[i]
		sum += d.at + int64(d.retry) + int64(d.last.Delay)
	}
	b.loaded = sum
}

// handlers are the events by the state of the device.
var handlers [states]func(b *block, i int32, t int64)

func init() { // the handlers use the table
	handlers = [states]func(b *block, i int32, t int64){
		waiting: (*block).try, atTurn: (*block).dial, answering: (*block).answered, up: (*block).live,
		sending: (*block).acknowledge,
	}
}

// advance executes the events of device i up to its next request, at most to the time ahead.
func (b *block) advance(i int32) {
	d := &b.devices[i]
	for handlers[d.state] != nil && d.at < b.ahead {
		if b.budget--; b.budget < 0 {
			return
		}
		b.events++
		handlers[d.state](b, i, d.at)
	}
	if handlers[d.state] != nil {
		b.wake(i, b.calendar.now)
	}
}

// wake has the calendar advance device i at its next event, in step least at the earliest.
func (b *block) wake(i int32, least int64) {
	if at := b.devices[i].at; at < b.sim.end {
		b.calendar.add(entry{at, b.numberOf(i), wake}, least)
	}
}

// arrive sends the device's request to the hub, in this step or in a later one.
func (b *block) arrive(i int32, t int64) {
	d := &b.devices[i]
	d.state = arriving
	request := d.batch
	if !d.ready {
		request = register
	}
	b.requests = append(b.requests, entry{t, b.numberOf(i), request})
}

func (b *block) numberOf(i int32) number { return number(b.number)<<deviceBits | number(i) }

// attempt returns a question to a policy about device i. It is valid until the next call: the block
// keeps it, because copies of it would take half of the time of a run.
func (b *block) attempt(i int32, t int64) *retrypolicy.Attempt {
	d, a := &b.devices[i], &b.question
	a.Scope, a.Now = transport.ScopeConnection, instant(t)
	a.Retry, a.Elapsed, a.Rand = int(d.retry), time.Duration(t-d.since), d.draw()
	a.Err, a.Kind, a.After = nil, 0, 0
	return a
}

// try begins an attempt if the policy and the limiter of dials admit it.
func (b *block) try(i int32, t int64) {
	d, p := &b.devices[i], b.process(i)
	if p.remembers {
		if d.series == nil {
			d.series = p.begin()
		}
		answer := d.series.Admit(*b.attempt(i, t))
		switch {
		case !answer.Retry:
			b.giveUp(i, t, 0)
			return
		case answer.Delay > 0:
			b.wait(i, t, max(answer.Delay, shortestHold), 0)
			return
		}
	}
	d.reported = false
	if p.dials == nil {
		b.dial(i, t)
		return
	}
	if d.state = queued; p.dials.enter(i) {
		d.state, d.at = atTurn, p.dials.turn(t)
	}
}

// shortestHold bounds how often a policy is asked in simulated time.
const shortestHold = time.Millisecond

// later returns t plus a delay, at most never.
func later(t int64, d time.Duration) int64 {
	if int64(d) > never-t {
		return never
	}
	return t + int64(d)
}

func (b *block) spread(d *device) time.Duration {
	if most := reconnect.MostSpread(b.sim.rules.ReconnectSpread, int(d.retry)); most > 0 {
		return reconnect.Spread(most, d.draw())
	}
	return 0
}

// dial begins an attempt.
func (b *block) dial(i int32, t int64) {
	d := &b.devices[i]
	b.attempted(t)
	d.began = t
	effect, down := b.sim.fault(b.first+int(i), t)
	if !down {
		b.arrive(i, t)
		return
	}
	d.state = answering
	hub := &b.sim.scenario.Hub
	switch effect {
	case EffectRefused:
		d.result, d.at = refused, t+int64(hub.RTT)
	case EffectUnavailable:
		d.result, d.at = unavailable, t+int64(hub.RTT)*int64(hub.Trips)
	default:
		d.result, d.at = silent, t+int64(b.sim.rules.DialTimeout)
	}
}

// answered ends an attempt.
func (b *block) answered(i int32, t int64) {
	d, p := &b.devices[i], b.process(i)
	if d.result <= registered || d.result >= connectRefused {
		if effect, down := b.sim.fault(b.first+int(i), t); down && b.met(d, t, effect) {
			return
		}
	}
	result := d.result
	end := counterOf[result]
	b.count(end, t, 1)
	if !d.ready && (end == cAccepted || end == cRejected) {
		b.count(cRegistration, t, 1)
	}
	b.radiate(d, d.began, t, b.sim.bytes[result])
	switch result {
	case accepted:
		b.connected(i, t)
	case registered:
		d.ready, d.again = true, false
		d.retry, d.last, d.since = 0, retrypolicy.Decision{}, t
		d.state, d.at = waiting, t
	default:
		b.failed(i, t, result, 0)
	}
	if p.dials != nil {
		b.nextDial(p, t)
	}
}

// met replaces the hub's answer to the attempt of d, at time t, by the end that a fault gives it.
// It reports whether that end comes later: no answer arrives while packets are lost.
func (b *block) met(d *device, t int64, effect Effect) bool {
	switch effect {
	case EffectSilent:
		d.result, d.at = silent, max(t, d.began+int64(b.sim.rules.DialTimeout))
	case EffectUnavailable:
		d.result = unavailable
	default:
		d.result = refused
	}
	return d.at > t
}

// nextDial gives the slot of an ended attempt to the next device.
func (b *block) nextDial(p *process, t int64) {
	next, ok := p.dials.leave()
	if !ok {
		return
	}
	d := &b.devices[next]
	d.state, d.at = atTurn, p.dials.turn(t)
	b.advance(next)
}

// radiate counts the bytes and the time of the radio for an activity.
func (b *block) radiate(d *device, from, to int64, bytes int) {
	b.bytes += int64(bytes)
	off := to + int64(b.sim.scenario.Radio.Tail)
	if from > d.radio {
		b.promotions++
		d.radio = from
	}
	if off > d.radio {
		b.radioOn += (off - d.radio) / 1000
		d.radio = off
	}
}

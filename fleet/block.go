package fleet

import (
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
	first     int // number of the first device
	devices   []device
	last      []retrypolicy.Decision // of each device
	processes []process              // one for each Gateway devices; a single one if all are plain
	shared    bool                   // devices of a process influence each other: order matters
	calendar  *calendar

	*tally         // of the worker that runs the block
	start    int64 // of the current step
	ahead    int64 // events before this time do not depend on others
	question retrypolicy.Attempt
	loaded   int64 // keeps the compiler from removing load
	batch    []int32
	arrived  []uint64 // arrivals of the step, see arrival
	answers  []answer // of the hub to the arrivals of the step before
	budget   int64    // events left
}

// An arrival is a request that reaches the hub, packed so that arrivals sort by time and are read
// without a look at their devices: the time since the beginning of the step, the number of the
// device, and the number of messages; 0 for a connection, register for a registration.
const (
	batchBits  = 8
	deviceBits = 24
	register   = 1<<batchBits - 1
)

func arrival(since int64, device int, batch int32) uint64 {
	return uint64(since)<<(deviceBits+batchBits) | uint64(device)<<batchBits | uint64(batch)
}

func (b *block) process(i int32) *process {
	if len(b.processes) == 1 {
		return &b.processes[0]
	}
	return &b.processes[int(i)/b.sim.scenario.Gateway]
}

// busy reports whether there is something to do in the current step.
func (b *block) busy() bool {
	return len(b.answers) > 0 || b.calendar.near[b.calendar.now%wheel] != none
}

// run executes the events of a step.
func (b *block) run(step int64, t *tally) {
	b.tally, b.start = t, step*b.calendar.step
	b.arrived = b.arrived[:0]
	b.receive()
	b.batch = b.calendar.take(b.batch[:0])
	if b.shared {
		slices.SortFunc(b.batch, func(i, j int32) int {
			if d := b.devices[i].at - b.devices[j].at; d != 0 {
				return int(max(-1, min(1, d)))
			}
			return int(i - j)
		})
	}
	for part := range slices.Chunk(b.batch, chunk) {
		b.load(part)
		for _, i := range part {
			b.advance(i)
		}
	}
}

// receive sets the next events of the devices that the hub answered.
func (b *block) receive() {
	for _, a := range b.answers {
		d := &b.devices[a.device]
		d.state, d.result, d.at = answering, a.outcome, a.at
		if d.batch > 0 {
			d.state, d.at = sending, min(d.at, d.loss)
		}
		if d.at < b.sim.end {
			b.calendar.add(a.device, d.at, b.calendar.now)
		}
	}
	b.answers = b.answers[:0]
}

// chunk is the number of devices that load reads at a time.
const chunk = 64

// load reads the devices of list, which brings them into the cache together. Each would cost a
// cache miss otherwise, one after the other: half of the time of a run with a million devices.
func (b *block) load(list []int32) {
	var sum int64
	for _, i := range list {
		d := &b.devices[i]
		sum += d.at + int64(d.retry) + int64(b.last[i].Step) + int64(b.last[i].Cost)
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

// advance executes the events of device i that are due in this step, and those after it that
// nothing else can influence.
func (b *block) advance(i int32) {
	d := &b.devices[i]
	b.ahead = b.start + b.calendar.step
	for handlers[d.state] != nil && d.at < min(b.ahead, b.sim.end) {
		if b.budget--; b.budget < 0 {
			return
		}
		b.events++
		handlers[d.state](b, i, d.at)
	}
	if handlers[d.state] != nil && d.at < b.sim.end {
		b.calendar.add(i, d.at, b.calendar.now+1)
	}
}

// arrive hands the device's request to the merge.
func (b *block) arrive(i int32, t int64) {
	d := &b.devices[i]
	d.state = arriving
	request := d.batch
	if !d.ready {
		request = register
	}
	b.arrived = append(b.arrived, arrival(max(0, t-b.start), b.first+int(i), request))
}

// attempt returns a question to a policy about device i. It is valid until the next call: the block
// keeps it, because copies of it would take half of the time of a run.
func (b *block) attempt(i int32, t int64) *retrypolicy.Attempt {
	d, a := &b.devices[i], &b.question
	a.Scope, a.Key, a.Now = transport.Connection, "hub", instant(t)
	a.Retry, a.Elapsed, a.Rand = int(d.retry), time.Duration(t-d.since), d.draw()
	a.Last = b.last[i]
	a.Err, a.Kind, a.After, a.Terminal = nil, 0, 0, false
	return a
}

// try begins an attempt if the policy's gate and the limiter of dials admit it.
func (b *block) try(i int32, t int64) {
	d, p := &b.devices[i], b.process(i)
	if p.gate != nil {
		answer := p.gate.Admit(*b.attempt(i, t))
		switch {
		case !answer.Retry:
			b.giveUp(i, t, 0)
			return
		case answer.Delay > 0:
			d.at = later(t, max(answer.Delay, shortestHold)+b.spread(d))
			return
		case answer.Cost != 0:
			b.last[i].Cost = answer.Cost
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

// shortestHold bounds how often a gate is asked in simulated time.
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
	b.count(cAttempt, t, 1)
	d.began = t
	effect, until, down := b.sim.fault(b.first+int(i), t)
	if !down {
		b.arrive(i, t)
		return
	}
	d.state = answering
	hub := &b.sim.scenario.Hub
	switch effect {
	case Refused:
		d.result, d.at = refused, t+int64(hub.RTT)
	case Unavailable:
		d.result, d.at = unavailable, t+int64(hub.RTT)*int64(hub.Trips)
	default:
		d.result, d.at = silent, t+int64(b.sim.rules.DialTimeout)
	}
	if !b.shared {
		b.ahead = until
	}
}

// answered ends an attempt.
func (b *block) answered(i int32, t int64) {
	d, p := &b.devices[i], b.process(i)
	if _, _, down := b.sim.fault(b.first+int(i), t); down && d.result <= registered {
		d.result = refused
	}
	result := d.result
	b.count(counterOf[result], t, 1)
	b.radiate(d, d.began, t, b.sim.bytes[result])
	switch result {
	case accepted:
		b.connected(i, t)
	case registered:
		d.ready, d.again = true, false
		d.retry, b.last[i], d.since = 0, retrypolicy.Decision{}, t
		d.state, d.at = waiting, t
	default:
		b.failed(i, t, result)
	}
	if p.dials != nil {
		b.nextDial(p, t)
	}
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

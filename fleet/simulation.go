package fleet

import (
	"cmp"
	"context"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hubline-iot/hubline/internal/reconnect"
	"github.com/hubline-iot/hubline/retrypolicy"
)

// Options tune a run. Nil and zero fields select the defaults.
type Options struct {
	// Seed selects the random numbers. The same seed gives the same result.
	Seed uint64
	// Workers is the number of goroutines. Default: one for each processor. The result does not depend
	// on it.
	Workers int
	// Resolution is the width of a bin of the time series, at least 100 ms. Default 1 s, or more if
	// the series would have more than 86,400 bins.
	Resolution time.Duration
	// MaxEvents bounds the work of a run, as events for each device on average. Default 1,000,000.
	MaxEvents int
	// Progress is called with the simulated time, in order, by the goroutine that called Run. Default:
	// none.
	Progress func(at, of time.Duration)
}

func (o *Options) withDefaults(duration time.Duration) (Options, error) {
	var set Options
	if o != nil {
		set = *o
	}
	fallback(&set.Workers, runtime.GOMAXPROCS(0))
	fallback(&set.Resolution, max(time.Second, (duration/86400).Round(time.Second)))
	fallback(&set.MaxEvents, 1_000_000)
	return set, cmp.Or(check([]field[time.Duration]{
		{"Options.Resolution", set.Resolution, max(100*time.Millisecond, duration/1_000_000), maxDuration},
	}, time.Duration.String), check([]field[int]{
		{"Options.Workers", set.Workers, 1, 1024},
		{"Options.MaxEvents", set.MaxEvents, 1, 1e9},
	}, strconv.Itoa))
}

// simulation is one run.
type simulation struct {
	scenario Scenario
	rules    Rules
	options  Options
	end      int64
	faults   []shape
	failures [outcomes]failure
	bytes    [outcomes]int
	service  service
	blocks   []*block
	size     int // devices in a block, but for the last one
	tallies  []*tally
	calendar *calendar // of the requests
	due      []entry
	arrivals []arrival
	order    order
}

// Run simulates a fleet under rules. Errors are of Kind Invalid, or the context's.
func Run(ctx context.Context, scenario Scenario, rules Rules, o *Options) (*Result, error) {
	if err := scenario.Validate(); err != nil {
		return nil, err
	}
	if err := rules.Validate(); err != nil {
		return nil, err
	}
	s := &simulation{scenario: scenario.WithDefaults(), rules: rules.withDefaults()}
	var err error
	if s.options, err = o.withDefaults(s.scenario.Duration); err != nil {
		return nil, err
	}
	s.end = int64(s.scenario.Duration)
	s.prepare()
	if err := s.populate(); err != nil {
		return nil, err
	}
	if err := s.steps(ctx); err != nil {
		return nil, err
	}
	return s.result(), nil
}

// prepare derives the hub and the faults from the scenario.
func (s *simulation) prepare() {
	h, p := &s.scenario.Hub, &s.scenario.Provisioning
	s.failures = failures(h, p)
	s.order.step = int64(h.RTT)
	s.calendar = newCalendar(int64(h.RTT), s.end)
	queue := max(0, h.Queue)
	s.service = service{
		handshakes: newLimiter(h.Handshakes, 0, h.Accept),
		connects:   newLimiter(h.Connects, h.Burst, queue),
		messages:   newLimiter(h.Messages, h.Burst, queue),
		rtt:        int64(h.RTT), dial: int64(h.RTT) * int64(h.Trips), assign: int64(p.Assign),
	}
	if p.Rate > 0 {
		s.service.registers = newLimiter(p.Rate, p.Burst, 0)
	}
	for o := range outcomes {
		s.bytes[o] = h.Wire.Handshake
	}
	s.bytes[refused], s.bytes[silent], s.bytes[dropped] = h.Wire.Refused, h.Wire.Silent, h.Wire.Silent
	for n, f := range s.scenario.Faults {
		shaped := shape{Fault: f}
		if f.Cell > 0 {
			for cell := range (s.scenario.Devices + f.Cell - 1) / f.Cell {
				draw := mix(mix(s.options.Seed+uint64(n)) + uint64(cell))
				shaped.phases = append(shaped.phases, int64(reconnect.Spread(f.Every, draw)))
			}
		}
		s.faults = append(s.faults, shaped)
	}
}

// fault returns the fault that holds device i at time t.
func (s *simulation) fault(i int, t int64) (effect Effect, down bool) {
	for n := range s.faults {
		if s.faults[n].during(i, t) {
			return s.faults[n].Effect, true
		}
	}
	return 0, false
}

// nextFault returns when the next fault for device i begins, from t on, and which it is.
func (s *simulation) nextFault(i int, t int64) (at int64, fault uint8) {
	at = never
	for n := range s.faults {
		if next := s.faults[n].next(i, t); next < at {
			at, fault = next, uint8(n)
		}
	}
	return at, fault
}

// populate makes the devices.
func (s *simulation) populate() error {
	bin := int64(s.options.Resolution)
	for range min(s.options.Workers, s.scenario.Devices/blockSize+1) {
		s.tallies = append(s.tallies, newTally(bin, s.end))
	}
	s.size = blockSize / s.scenario.Gateway * s.scenario.Gateway
	for first := 0; first < s.scenario.Devices; first += s.size {
		n := min(s.size, s.scenario.Devices-first)
		b := &block{
			sim: s, number: len(s.blocks), first: first, devices: make([]device, n),
			calendar: newCalendar(int64(s.scenario.Hub.RTT), s.end), tally: s.tallies[0],
			budget: int64(n) * int64(s.options.MaxEvents),
		}
		if err := b.employ(); err != nil {
			return err
		}
		for i := range b.devices {
			b.begin(int32(i))
		}
		s.blocks = append(s.blocks, b)
	}
	return nil
}

// employ makes the processes of a block.
func (b *block) employ() error {
	rules, gateway := &b.sim.rules, b.sim.scenario.Gateway
	for first := 0; first < len(b.devices); first += gateway {
		policy, err := rules.Policy()
		if err != nil {
			return err
		}
		if err := retrypolicy.Validate(policy); err != nil {
			return err
		}
		p := newProcess(reconnect.Policies{Policy: policy, Paced: rules.Paced})
		if rules.Dials > 0 {
			p.dials = &dials{free: rules.Dials, turns: reconnect.Turns{Gap: rules.DialGap}}
		}
		b.processes = append(b.processes, p)
		if p.plain() {
			break // all devices may share the policy
		}
		b.shared = true
	}
	return nil
}

// begin puts device i into its first state.
func (b *block) begin(i int32) {
	d, s := &b.devices[i], &b.sim.scenario
	d.draws = draws(mix(b.sim.options.Seed) + mix(uint64(b.first)+uint64(i)+1))
	d.due, d.reported, d.ready = never, true, s.Provisioning.Rate == 0
	if every := s.Telemetry.Every; every > 0 {
		d.due = s.Telemetry.walk(0, reconnect.Spread(every, d.draw()))
	}
	if s.PowerOn != 0 || !d.ready {
		if s.PowerOn > 0 {
			d.at = int64(reconnect.Spread(s.PowerOn, d.draw()))
		}
		d.since = d.at
	} else {
		d.state, d.upAt, d.radio = up, -int64(b.sim.rules.StableTime), -1
		b.count(cUp, 0, 1)
		d.loss, d.fault = b.sim.nextFault(b.first+int(i), 0)
		b.planRenewal(d, 0, s.Tokens.Life)
		if s.Tokens.Life > 0 && !s.Tokens.Together {
			d.renew = int64(reconnect.Spread(time.Duration(d.renew), d.draw()))
		}
		b.rest(i, 0)
	}
	if !b.shared {
		b.calendar.add(entry{0, b.numberOf(i), wake}, 0) // it runs ahead, see run
		return
	}
	b.wake(i, 0)
}

// steps advances all blocks, one step of a round trip after the other. No answer of the hub arrives
// in the step of its request, so blocks need each other's arrivals only between steps.
func (s *simulation) steps(ctx context.Context) error {
	step := int64(s.scenario.Hub.RTT)
	steps := (s.end + step - 1) / step
	crew := newCrew(ctx, s)
	defer crew.close()
	for n := range steps {
		if n%64 == 0 && s.options.Progress != nil {
			s.options.Progress(time.Duration(n*step), s.scenario.Duration)
		}
		crew.run(ctx, n)
		if err := cmp.Or(ctx.Err(), s.spent()); err != nil {
			return err
		}
		s.merge(n)
	}
	for _, b := range s.blocks {
		for i := range b.devices {
			if err := ctx.Err(); err != nil {
				return err
			}
			b.generate(&b.devices[i], s.end-1)
		}
	}
	if s.options.Progress != nil {
		s.options.Progress(s.scenario.Duration, s.scenario.Duration)
	}
	return s.spent()
}

// spent returns an error if a block has used up its events.
func (s *simulation) spent() error {
	for _, b := range s.blocks {
		if b.budget < 0 {
			return invalid("the run takes more than Options.MaxEvents events for each device; give a longer delay, a " +
				"shorter Duration, a longer Telemetry.Every or more events")
		}
	}
	return nil
}

// merge answers the arrivals of step n, in the order of time. It takes the requests of all blocks
// into one calendar: those of the next seconds are then close together in memory.
func (s *simulation) merge(n int64) {
	s.calendar.advance(n)
	for _, b := range s.blocks {
		for _, e := range b.requests {
			s.calendar.add(e, n)
		}
		b.requests = b.requests[:0]
	}
	s.due, s.arrivals = s.calendar.take(s.due[:0]), s.arrivals[:0]
	start := n * s.calendar.step
	for _, e := range s.due {
		s.arrivals = append(s.arrivals, arrivalOf(e, start))
	}
	for _, key := range s.order.sort(s.arrivals) {
		d := key.device()
		b := s.blocks[d.block()]
		a := s.answer(start+key.since(), key.request())
		a.device = d.device()
		b.answers = append(b.answers, a)
	}
}

// answer returns the hub's answer to a request that arrived at t, or what the device makes of a
// late one.
func (s *simulation) answer(t int64, request int) answer {
	var a answer
	limit := int64(s.rules.DialTimeout)
	switch request {
	case connect:
		a = s.service.connect(t)
	case register:
		return s.service.register(t)
	default:
		a = s.service.send(t, request)
		limit = int64(s.rules.AckTimeout)
	}
	if a.at-t > limit {
		a.at = t + limit
		if a.outcome != dropped {
			a.outcome = late
		}
	}
	return a
}

// crew is the workers of a run. They sleep between steps.
type crew struct {
	s    *simulation
	work []chan int64
	next atomic.Int64 // the next block
	done sync.WaitGroup
	all  sync.WaitGroup
}

func newCrew(ctx context.Context, s *simulation) *crew {
	c := &crew{s: s}
	for w := 1; w < len(s.tallies); w++ {
		work := make(chan int64)
		c.work = append(c.work, work)
		c.all.Go(func() { // ends with close, which waits for it
			for step := range work {
				c.take(ctx, step, s.tallies[w])
				c.done.Done()
			}
		})
	}
	return c
}

// run executes a step of all blocks. It stops early if ctx is done.
func (c *crew) run(ctx context.Context, step int64) {
	busy := 0
	for _, b := range c.s.blocks {
		b.calendar.advance(step)
		if b.busy() {
			busy++
		}
	}
	if busy == 0 {
		return
	}
	c.next.Store(0)
	helpers := c.work[:min(len(c.work), busy-1)]
	c.done.Add(len(helpers))
	for _, work := range helpers {
		work <- step
	}
	c.take(ctx, step, c.s.tallies[0])
	c.done.Wait()
}

// take executes blocks until none is left.
func (c *crew) take(ctx context.Context, step int64, t *tally) {
	for {
		n := int(c.next.Add(1)) - 1
		if n >= len(c.s.blocks) {
			return
		}
		if b := c.s.blocks[n]; b.busy() {
			b.run(ctx, step, t)
		}
	}
}

func (c *crew) close() {
	for _, work := range c.work {
		close(work)
	}
	c.all.Wait()
}

package fleet

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/reconnect"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// reports is the number of requests to the service in which a device reports an update. All are
// counted at its end.
const reports = 3

// updating is a device of a rollout. It has one event in the calendar, unless it downloads.
type updating struct {
	draws
	next   func(r *rolling, i int32, t int64) // handles the event: check, fetch or report
	since  int64                              // the first failure of the request that is retried
	retry  int32
	wave   int32
	got    float64 // bytes of the image
	failed bool    // the new image did not confirm itself
	ended  bool    // the service knows the outcome
}

// fraction draws a number of [0, 1).
func (d *updating) fraction() float64 { return float64(d.draw()>>11) / (1 << 53) }

// rolling is one run, in steps of a second.
type rolling struct {
	rollout  Rollout
	rules    RolloutRules
	policy   retrypolicy.Policy
	calendar *calendar
	service  limiter
	devices  []updating
	running  []int32 // downloads
	result   RolloutResult

	wave     int   // the latest that has begun
	begun    int64 // when
	size, ok []int // devices of each wave, and those of them that run the new image
	offers   int   // devices with an offer whose outcome the service does not know
	ended    int   // devices whose outcome it knows

	now               int64 // the current second
	requests, fetches int   // in it, to the service and to the file server
}

// RunRollout simulates a rollout under rules. Of the options it uses Seed and Progress. Errors are
// of Kind Invalid, or the context's.
func RunRollout(ctx context.Context, rollout Rollout, rules RolloutRules, o *Options) (*RolloutResult, error) {
	if err := validateRollout(&rollout, &rules); err != nil {
		return nil, err
	}
	options, err := o.withDefaults(rollout.Duration)
	if err != nil {
		return nil, err
	}
	r := &rolling{
		rollout: rollout, rules: rules, policy: reconnect.RequestPolicy(rules.Policy),
		calendar: newCalendar(second, int64(rollout.Duration)), service: newLimiter(rollout.Requests, time.Minute, 0),
		devices: make([]updating, rollout.Devices), now: -1,
		size: make([]int, len(rules.Waves)), ok: make([]int, len(rules.Waves)),
		result: RolloutResult{
			Rollout: rollout.Name, Rules: rules.Name, Seed: options.Seed, Devices: rollout.Devices,
			Stopped: Never, Ended50: Never, Ended95: Never, Ended100: Never,
		},
	}
	for i := range r.devices {
		r.place(int32(i), options.Seed)
	}
	for r.now = 0; r.now < int64(rollout.Duration/time.Second) && !r.over(); r.now++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if r.now%600 == 0 && options.Progress != nil {
			options.Progress(time.Duration(r.now)*time.Second, rollout.Duration)
		}
		r.step()
	}
	return &r.result, nil
}

// place puts a device into its first state.
func (r *rolling) place(i int32, seed uint64) {
	d := &r.devices[i]
	d.draws = draws(mix(seed) + mix(uint64(i)+1))
	part := d.fraction()
	d.wave = int32(slices.IndexFunc(r.rules.Waves, func(w Wave) bool { return part < w.Share }))
	r.size[d.wave]++
	var at time.Duration
	switch {
	case d.fraction() < r.rollout.Away:
		at = reconnect.Spread(r.rollout.Return, d.draw())
	case r.rules.Spread > 0:
		at = reconnect.Spread(r.rules.Interval, d.draw())
	}
	r.plan(i, int64(at), (*rolling).check)
}

// plan sets the next event of a device.
func (r *rolling) plan(i int32, at int64, next func(*rolling, int32, int64)) {
	r.devices[i].next = next
	if at < int64(r.rollout.Duration) {
		r.calendar.add(entry{at: at, device: number(i)}, r.now+1)
	}
}

// over reports whether no further device installs the image.
func (r *rolling) over() bool {
	return r.ended == r.result.Devices || r.result.Stopped != Never && r.offers == 0
}

// step simulates a second.
func (r *rolling) step() {
	r.requests, r.fetches = 0, 0
	r.download()
	r.calendar.advance(r.now)
	due := r.calendar.take(nil)
	slices.SortFunc(due, func(x, y entry) int {
		return cmp.Or(cmp.Compare(x.at, y.at), cmp.Compare(x.device, y.device))
	})
	for _, e := range due {
		r.devices[e.device].next(r, int32(e.device), e.at)
	}
	r.judge()
	r.count()
}

// download lets the running downloads share the link for a second.
func (r *rolling) download() {
	share := min(r.rollout.Access, r.rollout.Link/float64(max(1, len(r.running)))) / 8
	still, t := r.running[:0], r.now*second
	for _, i := range r.running {
		d := &r.devices[i]
		bytes := min(share, r.rollout.Image-d.got)
		r.result.Sent += bytes
		d.got += bytes
		switch {
		case d.got >= r.rollout.Image:
			r.install(i, t)
		case d.fraction() < 1/r.rollout.Loss.Seconds():
			if r.rules.NoResume {
				r.discard(d)
			} else {
				d.retry = 0
			}
			r.refused(i, t, transport.Network, 0)
		default:
			still = append(still, i)
		}
	}
	r.running = still
}

func (r *rolling) discard(d *updating) {
	r.result.Wasted += d.got
	d.got = 0
}

// install ends with the report of the image that runs then.
func (r *rolling) install(i int32, t int64) {
	d := &r.devices[i]
	r.result.Installed++
	d.retry = 0
	took := r.rollout.Install
	if d.failed = d.fraction() < r.rollout.Failures; d.failed {
		took += r.rollout.Rollback
	}
	r.plan(i, later(t, took), (*rolling).report)
}

// judge stops the rollout, or begins the next wave.
func (r *rolling) judge() {
	if r.result.Stopped != Never {
		return
	}
	devices, ok := 0, 0
	for w := range r.wave + 1 {
		devices, ok = devices+r.size[w], ok+r.ok[w]
	}
	at, wave := r.now*second, &r.rules.Waves[r.wave]
	switch {
	case float64(r.result.Failed) > r.rules.Stop*float64(devices):
		r.result.Stopped = time.Duration(at)
	case r.wave < len(r.size)-1 && at >= r.begun+int64(wave.Pause) && float64(ok) >= wave.Success*float64(devices):
		r.wave, r.begun = r.wave+1, at
	}
}

// check asks the service for an update.
func (r *rolling) check(i int32, t int64) {
	d := &r.devices[i]
	switch {
	case !r.ask(i, t, 1):
	case d.ended || r.result.Stopped != Never || int(d.wave) > r.wave:
		r.rest(i, t)
	default:
		r.offers++
		r.fetch(i, t)
	}
}

// rest plans the next check.
func (r *rolling) rest(i int32, t int64) {
	at := later(t, r.rules.Interval)
	if r.rules.Spread > 0 {
		at += int64(reconnect.Spread(r.rules.Spread, r.devices[i].draw()))
	} else {
		at -= at % int64(r.rules.Interval) // all at the same moment, however long the last check took
	}
	r.devices[i].retry = 0
	r.plan(i, at, (*rolling).check)
}

// ask makes n requests to the service. It reports whether they were taken.
func (r *rolling) ask(i int32, t int64, n int) bool {
	r.requests += n
	if _, ok := r.service.take(t, n); !ok {
		r.refused(i, t, transport.Throttled, r.rollout.RetryAfter)
		return false
	}
	r.devices[i].retry = 0
	return true
}

// fetch asks the file server for the missing part of the image.
func (r *rolling) fetch(i int32, t int64) {
	d := &r.devices[i]
	d.next = (*rolling).fetch
	r.fetches++
	switch {
	case r.rules.Withdraw && r.result.Stopped != Never:
		r.discard(d)
		r.offers--
		r.rest(i, t)
	case len(r.running) >= r.rollout.Downloads:
		r.refused(i, t, transport.Unavailable, r.rollout.Busy)
	default:
		r.running = append(r.running, i)
	}
}

// report tells the service the outcome.
func (r *rolling) report(i int32, t int64) {
	if !r.ask(i, t, reports) {
		return
	}
	d := &r.devices[i]
	d.ended = true
	r.ended++
	r.offers--
	if d.failed {
		r.result.Failed++
	} else {
		r.ok[d.wave]++
	}
	r.rest(i, t)
}

// refused asks filter and policy when the device repeats its request: an interval later if they
// stop.
func (r *rolling) refused(i int32, t int64, kind transport.Kind, after time.Duration) {
	d := &r.devices[i]
	if d.retry++; d.retry == 1 {
		d.since = t
	}
	err := &transport.Error{Kind: kind, Scope: transport.ScopeOperation, RetryAfter: after, Err: errRollout}
	var answer retrypolicy.Decision
	if errfilter.Of(err).Retry {
		answer = r.policy.Decide(retrypolicy.Attempt{
			Retry: int(d.retry), Err: err, Kind: kind, Scope: transport.ScopeOperation, After: after,
			Elapsed: time.Duration(t - d.since), Now: instant(t), Rand: d.draw(),
		})
	}
	switch {
	case !answer.Retry:
		answer.Delay, d.retry = r.rules.Interval, 0
	case r.rules.Spread > 0:
		answer.Delay += reconnect.Stagger(answer.Delay, kind == transport.Throttled, d.retry > 1, d.draw())
	}
	r.plan(i, later(t, answer.Delay), d.next)
}

var errRollout = errors.New("simulated")

// count adds the current second to the result.
func (r *rolling) count() {
	s, at := &r.result, time.Duration(r.now+1)*time.Second
	s.PeakRequests, s.PeakFetches = max(s.PeakRequests, r.requests), max(s.PeakFetches, r.fetches)
	if s.Ended95 == Never {
		s.Requests += r.requests
		s.Used = s.Sent * 8 / r.rollout.Link / at.Seconds()
	}
	for _, share := range [...]struct {
		at      *time.Duration
		percent int
	}{{&s.Ended50, 50}, {&s.Ended95, 95}, {&s.Ended100, 100}} {
		if *share.at == Never && r.ended*100 >= s.Devices*share.percent {
			*share.at = at
		}
	}
}

package retrypolicy

import (
	"time"

	"github.com/hubline-iot/hubline/retrypolicy/internal/kit"
	"github.com/hubline-iot/hubline/transport"
)

// Operation is one operation and its retries, for a caller with a loop of its own; Do is such a
// loop. The order of calls is
//
//	for {
//		Admit, until it returns Retry without Delay
//		the operation itself
//		Success, and the Operation is over
//		or Failure: wait as it says and go on, or stop
//	}
//	End, in any case
//
// Success, and an Admit or Failure without Retry, end the Operation too. A call in another order,
// and any but End after the end, returns an error of Kind Invalid. An Operation is not safe for
// concurrent use; the policy may be shared.
type Operation struct {
	policy Policy // the series, if there is one
	series Series // nil: the policy has no memory
	began  time.Time
	retry  int // number of the running or latest attempt
	next   int // number of the next attempt
	info   Info
	err    error
	state  operationState
	held   bool // the series has delayed the next attempt
}

type operationState uint8

const (
	operationIdle     operationState = iota // before an attempt, or between two
	operationInFlight                       // an attempt has begun
	operationOver
)

// Begin begins an operation under p, which it does not validate. key is for budget.PerKey.
func Begin(p Policy, key string, now time.Time) Operation {
	o := Operation{policy: p, began: now, series: BeginSeries(p, Start{Key: key})}
	if o.series != nil {
		o.policy = o.series
	}
	return o
}

// errOrder is the error of a call for which an Operation must be in another state.
var errOrder = [...]*transport.Error{
	operationIdle:     kit.Invalid("Operation has no attempt in flight; call Admit before the attempt"),
	operationInFlight: kit.Invalid("Operation has an attempt in flight; report its end by Success or Failure first"),
	operationOver:     kit.Invalid("Operation is over; begin a new one, an operation has one outcome"),
}

func (o *Operation) attempt(retry int, now time.Time, rand uint64) Attempt {
	return Attempt{
		Retry: retry, Err: o.err, Kind: o.info.Kind, Safe: o.info.Safe, After: o.info.After, Elapsed: now.Sub(o.began),
		Now: now, Rand: rand,
	}
}

// Admit asks whether the next attempt may begin. Retry without a Delay: the attempt has begun.
// Retry with a Delay: wait that long and call Admit again. Retry false: the attempt is refused and
// the Operation is over.
func (o *Operation) Admit(now time.Time, rand uint64) (Decision, error) {
	if err := o.expect(operationIdle); err != nil {
		return Decision{}, err
	}
	d := Decision{Retry: true}
	if o.series != nil {
		d = Admit(o.series, o.attempt(o.next, now, rand), &o.held)
	}
	switch {
	case !d.Retry:
		o.End()
	case d.Delay <= 0:
		o.state, o.retry = operationInFlight, o.next
	}
	return d, nil
}

// Failure reports that the attempt failed, as info describes it, and returns the decision.
// If info rules out a retry, the policy is not asked.
func (o *Operation) Failure(now time.Time, rand uint64, info Info, failure error) (Decision, error) {
	if err := o.expect(operationInFlight); err != nil {
		return Decision{}, err
	}
	o.failed(now, info, failure)
	d := o.decide(now, rand)
	if o.next = min(o.retry, maxRetry) + 1; !d.Retry {
		o.End()
	}
	return d, nil
}

// failed reports the failure of the running attempt to the series.
func (o *Operation) failed(now time.Time, info Info, err error) {
	o.info, o.err = info, err
	if info.Verdict != VerdictAgain {
		o.info.Verdict = VerdictFail
	}
	o.state = operationIdle
	if o.series != nil {
		o.series.Report(o.info.Verdict, o.attempt(o.retry, now, 0))
	}
}

// maxRetry keeps retry counts within 32 bits.
const maxRetry = 1<<31 - 2

func (o *Operation) decide(now time.Time, rand uint64) Decision {
	switch {
	case o.info.Verdict == VerdictFail:
		return stop(ReasonNotRetryable)
	case o.info.Safe == SafeNo:
		return stop(ReasonUnsafe)
	case o.info.After < 0:
		return stop(ReasonPushback)
	}
	return Decide(o.policy, o.attempt(min(o.retry, maxRetry)+1, now, rand), leastDelay)
}

// Success reports that the attempt succeeded.
func (o *Operation) Success(now time.Time) error {
	if err := o.expect(operationInFlight); err != nil {
		return err
	}
	if o.series != nil {
		o.err, o.info = nil, Info{}
		o.series.Report(VerdictSucceed, o.attempt(o.retry, now, 0))
	}
	o.End()
	return nil
}

// End ends an Operation that may be unfinished. A retry that has not begun costs nothing. End may
// be called at any time and more than once.
func (o *Operation) End() {
	if o.state == operationOver {
		return
	}
	o.state = operationOver
	if o.series != nil {
		o.series.End()
	}
}

// Retries returns the number of retries made so far.
func (o *Operation) Retries() int { return o.retry }

func (o *Operation) expect(state operationState) error {
	if o.state != state {
		return errOrder[o.state]
	}
	return nil
}

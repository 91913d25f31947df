package retrypolicy

import (
	"time"

	"github.com/hubline-iot/hubline/retrypolicy/classify"
	"github.com/hubline-iot/hubline/retrypolicy/internal/failure"
	"github.com/hubline-iot/hubline/transport"
)

// Series is the state of one operation and its retries. The caller's own loop carries it from
// attempt to attempt; Do is such a loop. The order of calls is
//
//	for {
//		Admit, until it returns Retry without Delay
//		the operation itself
//		Success, and the series is over
//		or Failure: wait as it says and go on, or stop
//	}
//
// Success, a Failure without Retry, and Abandon resolve a series. After that every call returns an
// error of Kind Invalid. A Series is not safe for concurrent use; the policy may be shared.
type Series struct {
	policy Policy
	key    string
	began  time.Time
	until  time.Time // zero: no deadline
	retry  int       // number of the running or latest attempt
	next   int       // number of the next attempt
	last   Decision
	kind   transport.Kind
	err    error
	state  seriesState
}

type seriesState uint8

const (
	seriesIdle     seriesState = iota // before an attempt, or between two
	seriesInFlight                    // an attempt has begun
	seriesOver
)

// Begin starts a series under p at the time now; key goes into Attempt.Key. Begin does not check p:
// see Validate.
func Begin(p Policy, key string, now time.Time) Series {
	return Series{policy: p, key: key, began: now}
}

// Bound sets the caller's deadline, which the policy sees as Attempt.Left. The caller must enforce
// it.
func (s *Series) Bound(deadline time.Time) { s.until = deadline }

var (
	errResolved   = failure.Invalid("Series is over; begin a new one, a series is resolved once")
	errNoAttempt  = failure.Invalid("Series has no attempt in flight; call Admit before the operation")
	errOneAttempt = failure.Invalid("Series has an attempt in flight; report its end by Success or Failure first")
)

func (s *Series) attempt(now time.Time, rand uint64) Attempt {
	a := Attempt{
		Retry: s.retry, Kind: s.kind, Elapsed: now.Sub(s.began), Now: now, Key: s.key, Last: s.last, Rand: rand, Err: s.err,
	}
	if !s.until.IsZero() {
		a.Left = max(s.until.Sub(now), 1)
	}
	return a
}

// Admit asks the policy's gates whether the next attempt may begin. Retry without a Delay: the
// attempt has begun. Retry with a Delay: wait that long and call Admit again. Retry false: the
// attempt is refused and the series is over.
func (s *Series) Admit(now time.Time, rand uint64) (Decision, error) {
	switch s.state {
	case seriesOver:
		return Decision{}, errResolved
	case seriesInFlight:
		return Decision{}, errOneAttempt
	case seriesIdle:
	}
	d := admitted
	if g, ok := s.policy.(Gate); ok {
		a := s.attempt(now, rand)
		a.Retry = s.next
		d = g.Admit(a)
	}
	switch {
	case !d.Retry:
		s.withdraw(now)
		s.state = seriesOver
	case d.Delay <= 0:
		s.state = seriesInFlight
		s.retry = s.next
		if d.Cost != 0 {
			s.last.Cost = d.Cost
		}
	}
	return d, nil
}

// Failure reports that the attempt failed with err, which info describes, and returns the decision.
// If info rules out a retry, the policy is not asked.
func (s *Series) Failure(now time.Time, rand uint64, info classify.Info, err error) (Decision, error) {
	if e := s.ended(); e != nil {
		return Decision{}, e
	}
	a := s.observe(now, rand, info, err)
	d := s.decide(a, info)
	if !d.Retry {
		s.state = seriesOver
		return d, nil
	}
	s.state = seriesIdle
	s.last = d
	s.next = min(s.retry, maxRetry) + 1
	return d, nil
}

// close ends the series with the failure of the running attempt. The policy observes it but does
// not decide.
func (s *Series) close(now time.Time, info classify.Info, err error) {
	s.observe(now, 0, info, err)
	s.state = seriesOver
}

func (s *Series) observe(now time.Time, rand uint64, info classify.Info, err error) Attempt {
	s.kind, s.err = info.Kind, err
	a := s.attempt(now, rand)
	a.Safe, a.After, a.Terminal = info.Safe, info.After, info.Verdict != classify.VerdictAgain
	Observe(s.policy, a)
	return a
}

// maxRetry keeps retry counts within 32 bits.
const maxRetry = 1<<31 - 2

func (s *Series) decide(a Attempt, info classify.Info) Decision {
	switch {
	case info.Verdict != classify.VerdictAgain:
		return stop(ReasonNotRetryable)
	case info.Safe == classify.SafeNo:
		return stop(ReasonUnsafe)
	case info.After < 0:
		return stop(ReasonPushback)
	}
	a.Retry = min(a.Retry, maxRetry) + 1
	return Decide(s.policy, a, leastDelay)
}

// leastDelay is the shortest delay of a Series from its second retry on.
const leastDelay = time.Millisecond

// Success reports that the attempt succeeded.
func (s *Series) Success(now time.Time) error {
	if e := s.ended(); e != nil {
		return e
	}
	s.state = seriesOver
	if o, ok := s.policy.(Observer); ok {
		s.err, s.kind = nil, transport.Unknown
		o.Observe(s.attempt(now, 0))
	}
	return nil
}

// Abandon ends a series without an outcome, because the caller gave up. A running attempt is
// reported to the policy as failed with cause. A pending retry is withdrawn, so it costs nothing.
func (s *Series) Abandon(now time.Time, cause error) error {
	switch s.state {
	case seriesOver:
		return errResolved
	case seriesInFlight:
		s.kind, s.err = transport.Unknown, cause
		if s.err == nil {
			s.err = failure.ErrAbandoned
		}
		Observe(s.policy, s.attempt(now, 0))
	default:
		s.withdraw(now)
	}
	s.state = seriesOver
	return nil
}

// withdraw informs the policy that the pending retry, if any, is not made.
func (s *Series) withdraw(now time.Time) {
	if s.next == 0 {
		return
	}
	a := s.attempt(now, 0)
	a.Retry = s.next
	Withdraw(s.policy, a)
}

// Retries returns the number of retries made so far.
func (s *Series) Retries() int { return s.retry }

func (s *Series) ended() error {
	switch s.state {
	case seriesOver:
		return errResolved
	case seriesIdle:
		return errNoAttempt
	case seriesInFlight:
	}
	return nil
}

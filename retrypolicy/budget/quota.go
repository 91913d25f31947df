package budget

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/internal/kit"
	"github.com/hubline-iot/hubline/transport"
)

// Cost is the number of tokens that a retry after one of Kinds takes from a Quota.
type Cost struct {
	// Kinds are at least one.
	Kinds retrypolicy.KindSet
	// Tokens are 0 to 65535.
	Tokens int
}

// QuotaOptions configures a Quota. The zero value has 500 tokens, of which a retry costs 5 and a
// success at the first attempt brings 1.
type QuotaOptions struct {
	// Bucket holds the tokens; quotas can share one, and its method Tokens returns the level. Nil: a
	// bucket of its own, of 500 tokens that return only with successes.
	Bucket *TokenBucket
	// Retry is the cost of a retry for Kinds that Costs does not list. Default: 5. Negative: none.
	Retry int
	// Costs lists Kinds with other costs; the first match counts.
	Costs []Cost
	// First is the cost of a first attempt. Default: none.
	First int
	// Success is the number of tokens that return when a first attempt succeeds. Default: 1.
	// Negative: none. After a successful retry its cost returns.
	Success int
	// MinRefund is the least number of tokens that return when a retry succeeds, and ExtraRefund the
	// number that returns in addition to the cost. Default: none.
	MinRefund, ExtraRefund int
	// Late charges right before the retry, instead of before its delay. So tokens refilled during
	// the delay count, and the retry may be refused after it. A device client that gets a new policy
	// during the delay is not charged for that retry.
	Late bool
	// Wait makes a retry wait for the refill if tokens are missing, instead of refusing it. It
	// needs a Bucket that refills, and charges as Late does.
	Wait bool
}

// Quota limits the retries of all operations that share it: each retry costs tokens, and a success
// returns the cost of its last retry. Without tokens there are no retries: they end their series
// with OutOfQuota and carry their delay. It is no rate such as 50 retries a minute; that is a
// RetryBudget with MinRetries.
//
// Source: the standard mode of the AWS SDKs (smithy-kotlin StandardRetryTokenBucket, botocore
// RetryQuota).
type Quota struct {
	state
	o QuotaOptions // with its defaults
}

// NewQuota returns a quota.
func NewQuota(o *QuotaOptions) (*Quota, error) {
	set := given(o)
	set.Retry, set.Success = kit.OrDefault(set.Retry, 5), kit.OrDefault(set.Success, 1)
	set.Costs = slices.Clone(set.Costs)
	if set.Bucket == nil {
		set.Bucket = &TokenBucket{size: 500, have: 500 * token}
	}
	rules := []kit.Rule{
		kit.Bad(set.Wait && set.Bucket.refill == 0, "Wait needs a Bucket with a refill; tokens would never come back"),
		tokens(set.Retry, "Retry"), tokens(set.First, "First"), tokens(set.Success, "Success"),
		tokens(set.MinRefund, "MinRefund"), tokens(set.ExtraRefund, "ExtraRefund"),
	}
	for _, c := range set.Costs {
		rules = append(rules, tokens(c.Tokens, "Costs.Tokens"),
			kit.Bad(c.Kinds == 0, "Costs has a row without Kinds; it would never apply"))
	}
	if err := kit.Check("QuotaOptions.", rules...); err != nil {
		return nil, err
	}
	return &Quota{o: set}, nil
}

func tokens(n int, field string) kit.Rule {
	return kit.Bad(n < 0 || n > math.MaxUint16, field+" is out of range; give at most 65535 tokens")
}

// Wrap puts the quota around p: p decides first, and the quota charges only for a retry that p
// wants. A refusal is OutOfQuota and carries the retry's delay.
func (q *Quota) Wrap(p retrypolicy.Policy) retrypolicy.Policy {
	return shared{q, q != nil, "Quota", p}
}

// late reports whether a retry is charged when it begins, instead of before its delay.
func (q *Quota) late() bool { return q.o.Late || q.o.Wait }

func (q *Quota) charge(t *ticket, a retrypolicy.Attempt, d retrypolicy.Decision) retrypolicy.Decision {
	if q.late() {
		q.o.Bucket.Tokens(a.Now) // sets the clock of an unused bucket, so that it refills during the delay
		t.pending = true
		return d
	}
	cost := q.cost(a.Kind)
	if _, ok := q.o.Bucket.Take(a.Now, cost); !ok {
		return stop(retrypolicy.ReasonOutOfQuota, d.Delay)
	}
	t.cost, t.pending = cost, true
	return d
}

// release gives back the cost of a retry that has not begun.
func (q *Quota) release(t *ticket) {
	if t.pending {
		q.o.Bucket.putBack(t.cost)
		t.cost, t.pending = 0, false
	}
}

// atAdmit is the cost that admit charges: that of a first attempt, and of a late quota's retry,
// unless another policy granted it.
func (q *Quota) atAdmit(t *ticket, a retrypolicy.Attempt) int {
	switch {
	case a.Retry <= 0:
		return q.o.First
	case q.late() && t.pending:
		return q.cost(a.Kind)
	}
	return 0
}

func (q *Quota) admit(t *ticket, a retrypolicy.Attempt) retrypolicy.Decision {
	cost := q.atAdmit(t, a)
	if wait, ok := q.o.Bucket.Take(a.Now, cost); !ok {
		if q.o.Wait && wait >= 0 {
			return retrypolicy.Decision{Retry: true, Delay: max(wait, 1)}
		}
		return stop(retrypolicy.ReasonOutOfQuota, 0)
	}
	if a.Retry > 0 && q.late() {
		t.cost = cost
	}
	t.inFlight = t.pending
	return admitted
}

func (q *Quota) undo(t *ticket, a retrypolicy.Attempt) {
	q.o.Bucket.Give(a.Now, q.atAdmit(t, a))
	if q.late() {
		t.cost = 0
	}
	t.inFlight = false
}

// report gives back the cost of a retry that succeeded and that was charged here.
func (q *Quota) report(t *ticket, v retrypolicy.Verdict, a retrypolicy.Attempt) {
	if v == retrypolicy.VerdictSucceed {
		back := 0
		switch {
		case a.Retry <= 0:
			back = q.o.Success
		case t.inFlight:
			back = max(t.cost, q.o.MinRefund) + q.o.ExtraRefund
		}
		q.o.Bucket.Give(a.Now, back)
	}
	t.cost, t.pending, t.inFlight = 0, false, false
}

func (q *Quota) cost(k transport.Kind) int {
	for _, c := range q.o.Costs {
		if c.Kinds.Has(k) {
			return c.Tokens
		}
	}
	return q.o.Retry
}

// TokenBucket holds the tokens of quotas and refills over time. Fractions of a token carry over.
// Its methods are safe for concurrent use.
type TokenBucket struct {
	size, refill int // tokens, tokens per second

	mu   sync.Mutex
	have int64     // in billionths of a token, so that a nanosecond brings refill of them
	mark time.Time // when have was computed
}

// token is a token in billionths.
const token = int64(time.Second)

// NewTokenBucket returns a bucket for size tokens that starts with size-spent of them. It gains
// refill tokens per second, from the first method call on; 0: none.
func NewTokenBucket(size, spent, refill int) (*TokenBucket, error) {
	if err := kit.Check("TokenBucket ",
		kit.Bad(size < 0 || size > math.MaxInt32, "size is out of range; give 0 to 2^31-1 tokens"),
		kit.Bad(spent < 0 || spent > size, "spent is out of range; give 0 to size"),
		kit.Bad(refill < 0 || refill > 1_000_000, "refill is out of range; give 0 to 1000000 tokens a second")); err != nil {
		return nil, err
	}
	return &TokenBucket{size: size, refill: refill, have: int64(size-spent) * token}, nil
}

// Take takes n tokens and returns ok. If there are fewer, it returns the time until n are
// available, or a negative duration if they never will be.
func (b *TokenBucket) Take(now time.Time, n int) (wait time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fill(now)
	missing := min(int64(n), int64(b.size)+1)*token - b.have
	switch {
	case missing <= 0:
		b.have = -missing
		return 0, true
	case b.refill == 0 || n > b.size:
		return -1, false
	}
	return time.Duration((missing + int64(b.refill) - 1) / int64(b.refill)), false
}

// Give returns n tokens, up to the size of the bucket.
func (b *TokenBucket) Give(now time.Time, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fill(now)
	b.giveLocked(n)
}

// putBack is Give for a caller that cannot say what time it is.
func (b *TokenBucket) putBack(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.giveLocked(n)
}

func (b *TokenBucket) giveLocked(n int) {
	b.have = min(b.have+int64(min(max(n, 0), b.size))*token, int64(b.size)*token)
}

// Tokens returns the number of tokens at now.
func (b *TokenBucket) Tokens(now time.Time) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fill(now)
	return int(b.have / token)
}

// fill adds what has come since the last call. mu held.
func (b *TokenBucket) fill(now time.Time) {
	if b.refill == 0 {
		return
	}
	full := (time.Duration(b.size/b.refill) + 1) * time.Second // fills any bucket, and the product below fits
	passed := now.Sub(b.mark)
	switch {
	case b.mark.IsZero() || passed < -full: // the first call, or the clock was set back
		passed = 0
	case passed < 0:
		return // a caller's clock reading that is older than the last one
	}
	b.mark = now
	b.have = min(b.have+int64(min(passed, full))*int64(b.refill), int64(b.size)*token)
}

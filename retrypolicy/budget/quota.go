package budget

import (
	"math"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/internal/kit"
	"github.com/hubline-iot/hubline/transport"
)

// Bucket holds the tokens of a Quota. Its methods must be safe for concurrent use and must not
// block.
type Bucket interface {
	// Take takes n tokens and returns ok. If there are fewer, it returns the time until n are
	// available, or a negative duration if they never will be.
	Take(now time.Time, n int) (wait time.Duration, ok bool)
	// Give returns n tokens, up to the size of the bucket.
	Give(now time.Time, n int)
}

// TokenBucket is a Bucket in memory that refills over time. Fractions of a token carry over.
type TokenBucket struct {
	mu     sync.Mutex
	size   int
	tokens int
	refill int // tokens per second
	mark   time.Time
	rest   int64 // nanoseconds times refill that do not make a whole token yet
}

// NewTokenBucket returns a bucket for size tokens that starts with size-spent of them. It gains
// refill tokens per second, from the first method call on.
func NewTokenBucket(size, spent, refill int) (*TokenBucket, error) {
	if err := kit.Check("TokenBucket ",
		kit.Bad(size < 0 || size > math.MaxInt32, "size is out of range; give 0 to 2^31-1 tokens"),
		kit.Bad(spent < 0 || spent > size, "spent is out of range; give 0 to size"),
		kit.Bad(refill < 0 || refill > 1_000_000, "refill is out of range; give 0 to 1000000 tokens a second")); err != nil {
		return nil, err
	}
	return &TokenBucket{size: size, tokens: size - spent, refill: refill}, nil
}

// Take implements Bucket.
func (b *TokenBucket) Take(now time.Time, n int) (time.Duration, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fill(now)
	if n <= b.tokens {
		b.tokens -= n
		return 0, true
	}
	if b.refill == 0 || n > b.size {
		return -1, false
	}
	missing := int64(n-b.tokens)*int64(time.Second) - b.rest
	return time.Duration((missing + int64(b.refill) - 1) / int64(b.refill)), false
}

// Give implements Bucket.
func (b *TokenBucket) Give(now time.Time, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fill(now)
	b.tokens += min(max(n, 0), b.size-b.tokens)
}

// Tokens returns the number of tokens at now.
func (b *TokenBucket) Tokens(now time.Time) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fill(now)
	return b.tokens
}

func (b *TokenBucket) fill(now time.Time) {
	if b.refill == 0 {
		return
	}
	// After this time the bucket is full in any case, and the product below cannot overflow.
	enough := (time.Duration(b.size/b.refill) + 1) * time.Second
	passed := now.Sub(b.mark)
	switch {
	case b.mark.IsZero():
		passed = 0
	case passed < -enough: // the clock was set back; without this, nothing refills until it catches up
		passed = 0
	case passed < 0:
		return // a caller's clock reading that is older than the last one
	}
	b.mark = now
	if passed > enough {
		b.tokens, b.rest = b.size, 0
		return
	}
	whole, rest := int64(passed/time.Second), int64(passed%time.Second)
	b.rest += rest * int64(b.refill)
	gained := whole*int64(b.refill) + b.rest/int64(time.Second)
	b.rest %= int64(time.Second)
	if gained >= int64(b.size-b.tokens) {
		b.tokens, b.rest = b.size, 0
		return
	}
	b.tokens += int(gained)
}

// Cost is the number of tokens that a retry after one of Kinds takes from a Quota.
type Cost struct {
	// Kinds are at least one.
	Kinds retrypolicy.KindSet
	// Tokens are 0 to 65535.
	Tokens int
}

// QuotaOptions configures a Quota. The zero value is the quota of the AWS SDKs before 2026, without
// their higher cost of time-outs: 500 tokens, 5 for a retry, 1 back for a success at the first
// attempt.
type QuotaOptions struct {
	// Bucket holds the tokens. Nil: a TokenBucket of Size, Spent and Refill.
	Bucket Bucket
	// Size is the capacity in tokens. Default: 500.
	Size int
	// Spent is the number of tokens missing at the start.
	Spent int
	// Refill is the number of tokens that return each second. Default: none, tokens return only with
	// successes.
	Refill int
	// Retry is the cost of a retry for Kinds that Costs does not list. Default: 5. Negative: none.
	Retry int
	// Costs lists Kinds with other costs; the first match counts.
	Costs []Cost
	// First is the cost of a first attempt. Default: none, because a quota should not hinder
	// operations that have not failed.
	First int
	// Success is the number of tokens that return when a first attempt succeeds. Default: 1. Negative:
	// none. After a successful retry its cost returns.
	Success int
	// MinRefund is the least number of tokens that return when a retry succeeds. Default: none. The
	// SDKs for Java and JavaScript: 1.
	MinRefund int
	// ExtraRefund is the number of tokens that return in addition to the cost when a retry succeeds.
	// Default: none. aws-sdk-go-v2 before 2026: 1.
	ExtraRefund int
	// Late charges after the delay, right before the retry, instead of before the delay. So tokens
	// refilled during the delay count, and the retry may be refused after it. This is the order of
	// smithy-kotlin before May 2026.
	Late bool
	// Wait makes an attempt wait for the refill if tokens are missing, instead of refusing it. It
	// needs Refill and charges as Late does.
	Wait bool
}

// Quota limits the retries of all operations that share it: each retry costs tokens, and a success
// returns the cost of its last retry. Without tokens there are no retries. First attempts are free,
// unless First says otherwise. A policy holds at most one Quota; Validate checks this. Safe for
// concurrent use.
//
// Source: the standard mode of the AWS SDKs (smithy-kotlin StandardRetryTokenBucket, botocore
// RetryQuota).
type Quota struct {
	o QuotaOptions // with its defaults
}

// NewQuota returns a quota. o may be nil.
func NewQuota(o *QuotaOptions) (*Quota, error) {
	set := given(o)
	set.Retry, set.Success = kit.OrDefault(set.Retry, 5), kit.OrDefault(set.Success, 1)
	err := kit.Check("QuotaOptions.",
		kit.Bad(badTokens(set.Retry),
			"Retry is out of range; give 1 to 65535 tokens, 0 for 5, a negative number for none"),
		kit.Bad(badTokens(set.First), "First is out of range; give 0 to 65535 tokens"),
		kit.Bad(badTokens(set.Success),
			"Success is out of range; give 1 to 65535 tokens, 0 for 1, a negative number for none"),
		kit.Bad(badTokens(set.MinRefund), "MinRefund is out of range; give 0 to 65535 tokens"),
		kit.Bad(badTokens(set.ExtraRefund), "ExtraRefund is out of range; give 0 to 65535 tokens"),
		kit.Bad(set.Bucket != nil && (set.Size != 0 || set.Spent != 0 || set.Refill != 0),
			"Size, Spent and Refill belong to the built-in bucket; leave them 0 with a Bucket"),
		kit.Bad(set.Wait && set.Bucket == nil && set.Refill == 0, "Wait needs Refill; tokens would never come back"))
	if err != nil {
		return nil, err
	}
	for _, c := range set.Costs {
		if err := kit.Check("QuotaOptions.",
			kit.Bad(badTokens(c.Tokens), "Costs.Tokens is out of range; give 0 to 65535"),
			kit.Bad(c.Kinds == 0, "Costs has a row without Kinds; it would never apply")); err != nil {
			return nil, err
		}
	}
	if set.Bucket == nil {
		fallback(&set.Size, 500)
		b, err := NewTokenBucket(set.Size, set.Spent, set.Refill)
		if err != nil {
			return nil, err
		}
		set.Bucket = b
	}
	set.Costs = append([]Cost(nil), set.Costs...)
	return &Quota{o: set}, nil
}

func badTokens(n int) bool { return n < 0 || n > math.MaxUint16 }

// Wrap puts the quota around p: p decides first, and the quota charges only for a retry that p
// wants. A refusal is OutOfQuota and carries the retry's delay.
func (q *Quota) Wrap(p retrypolicy.Policy) retrypolicy.Policy { return wrap("Quota", q, p) }

// late reports whether a retry is charged when it begins, instead of before its delay.
func (q *Quota) late() bool { return q.o.Late || q.o.Wait }

func (q *Quota) charge(t *ticket, a retrypolicy.Attempt, d retrypolicy.Decision) retrypolicy.Decision {
	if q.late() {
		// Sets the clock of an unused bucket, so that the delay counts for its refill.
		q.o.Bucket.Give(a.Now, 0)
		return d
	}
	cost := q.cost(a.Kind)
	if _, ok := q.o.Bucket.Take(a.Now, cost); !ok {
		return retrypolicy.Decision{Reason: retrypolicy.ReasonOutOfQuota, Delay: d.Delay}
	}
	t.cost, t.pending, t.at = cost, true, a.Now
	return d
}

// release gives back the cost of a retry that has not begun.
func (q *Quota) release(t *ticket) {
	if t.pending {
		q.o.Bucket.Give(t.at, t.cost)
		t.cost, t.pending = 0, false
	}
}

// atAdmit is the cost that admit charges: that of a first attempt, and of a Late quota's retry.
func (q *Quota) atAdmit(a retrypolicy.Attempt) int {
	switch {
	case a.Retry <= 0:
		return q.o.First
	case q.late():
		return q.cost(a.Kind)
	}
	return 0
}

func (q *Quota) admit(t *ticket, a retrypolicy.Attempt) retrypolicy.Decision {
	cost := q.atAdmit(a)
	if cost > 0 {
		if wait, ok := q.o.Bucket.Take(a.Now, cost); !ok {
			if q.o.Wait && wait >= 0 {
				return retrypolicy.Decision{Retry: true, Delay: max(wait, 1)}
			}
			return stop(retrypolicy.ReasonOutOfQuota)
		}
	}
	if a.Retry > 0 && q.late() {
		t.cost = cost
	}
	return admitted
}

func (q *Quota) undo(t *ticket, a retrypolicy.Attempt) {
	q.o.Bucket.Give(a.Now, q.atAdmit(a))
	if q.late() {
		t.cost = 0
	}
}

// report gives back the cost of a retry that succeeded.
func (q *Quota) report(t *ticket, v retrypolicy.Verdict, a retrypolicy.Attempt) {
	if v == retrypolicy.VerdictSucceed {
		back := q.o.Success
		if a.Retry > 0 {
			back = max(t.cost, q.o.MinRefund) + q.o.ExtraRefund
		}
		q.o.Bucket.Give(a.Now, back)
	}
	t.cost, t.pending = 0, false
}

func (q *Quota) cost(k transport.Kind) int {
	for _, c := range q.o.Costs {
		if c.Kinds.Has(k) {
			return c.Tokens
		}
	}
	return q.o.Retry
}

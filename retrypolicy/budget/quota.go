package budget

import (
	"math"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/internal/delay"
	"github.com/hubline-iot/hubline/retrypolicy/internal/failure"
	"github.com/hubline-iot/hubline/retrypolicy/internal/wrap"
	"github.com/hubline-iot/hubline/transport"
)

// Bucket holds the tokens of a Quota. Its methods are called by many goroutines at a time and do
// not block.
type Bucket interface {
	// Take takes n tokens. Otherwise it returns how long it will be until there are so many, or a
	// negative duration if there never will be.
	Take(now time.Time, n int) (wait time.Duration, ok bool)
	// Give puts n tokens back, as far as there is room.
	Give(now time.Time, n int)
}

// TokenBucket is a Bucket in memory that is refilled with time. Fractions of a token are carried
// over.
type TokenBucket struct {
	mu     sync.Mutex
	size   int
	tokens int
	refill int // tokens a second
	mark   time.Time
	rest   int64 // nanoseconds times refill that have not made a token yet
}

// NewTokenBucket makes a bucket that holds size tokens and has all of them but spent; refill of
// them come back each second, from the first call of a method on.
func NewTokenBucket(size, spent, refill int) (*TokenBucket, error) {
	switch {
	case size < 0 || size > math.MaxInt32:
		return nil, failure.Invalid("TokenBucket size is out of range; give 0 to 2^31-1 tokens")
	case spent < 0 || spent > size:
		return nil, failure.Invalid("TokenBucket spent is out of range; give 0 to size")
	case refill < 0 || refill > 1_000_000:
		return nil, failure.Invalid("TokenBucket refill is out of range; give 0 to 1000000 tokens a second")
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

// Tokens is how many there are.
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
	// After this long the bucket is full in any case, and the product below stays far from overflow.
	enough := time.Duration(b.size/b.refill+1) * time.Second
	passed := now.Sub(b.mark)
	switch {
	case b.mark.IsZero():
		passed = 0
	case passed < -enough: // the clock was set back; otherwise nothing would be refilled until it is where it was
		passed = 0
	case passed < 0:
		return // a caller's look at the clock that is older than the last
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

// Cost is what a retry after one of Kinds takes out of a Quota.
type Cost struct {
	Kinds  retrypolicy.KindSet
	Tokens int
}

// QuotaOptions describe a Quota. The zero value makes the quota of the AWS SDKs before 2026,
// without their higher cost of time-outs: 500 tokens, 5 for a retry, 1 back for a success at the
// first attempt.
type QuotaOptions struct {
	// Bucket holds the tokens. Nil: a TokenBucket of Size, Spent and Refill.
	Bucket Bucket
	// Size is how many tokens there can be. Default: 500.
	Size int
	// Spent is how many of them are missing at the start.
	Spent int
	// Refill is how many come back each second. Default: none, they only come back with successes.
	Refill int
	// Retry is the cost of a retry that Costs does not name. Default: 5. Negative: none.
	Retry int
	// Costs name the Kinds with a cost of their own; the first that fits counts.
	Costs []Cost
	// First is the cost of a first attempt. Default: none, since a quota should not stand in the way
	// of what has not failed.
	First int
	// Success is what comes back when a first attempt succeeds. Default: 1. Negative: none. After a
	// retry the cost of that last retry comes back.
	Success int
	// LeastBack is what comes back at least when a retry succeeds, where its cost was less. Default:
	// none. The Java SDK and the one for JavaScript: 1.
	LeastBack int
	// ExtraBack is what comes back besides its cost when a retry succeeds. Default: none.
	// aws-sdk-go-v2 before 2026: 1.
	ExtraBack int
	// Late takes the cost after the delay, right before the retry, instead of before the delay. So
	// what is refilled meanwhile counts, and the retry may be refused after the delay. The order of
	// smithy-kotlin before May 2026.
	Late bool
	// Wait: where tokens are missing, the attempt waits for the refill instead of being refused. It
	// needs Refill and takes costs as Late does.
	Wait bool
}

// Quota bounds the retries of all operations that share it: each retry costs tokens, and a success
// gives back those of its own last retry. While there are none there are no retries. First attempts
// are free, unless First says otherwise. A policy holds one Quota at most, which Validate sees to.
// Safe for concurrent use.
//
// Source: the standard mode of the AWS SDKs (smithy-kotlin StandardRetryTokenBucket, botocore
// RetryQuota).
type Quota struct {
	bucket  Bucket
	retry   uint16
	costs   []Cost
	first   int
	success int
	back    int
	extra   int
	late    bool
	wait    bool
}

// NewQuota makes a quota. o may be nil.
func NewQuota(o *QuotaOptions) (*Quota, error) {
	var set QuotaOptions
	if o != nil {
		set = *o
	}
	set.Retry, set.Success = delay.OrDefault(set.Retry, 5), delay.OrDefault(set.Success, 1)
	switch {
	case badTokens(set.Retry):
		return nil, failure.Invalid("QuotaOptions.Retry is out of range; give 1 to 65535 tokens, 0 for 5, a negative " +
			"number for none")
	case badTokens(set.First):
		return nil, failure.Invalid("QuotaOptions.First is out of range; give 0 to 65535 tokens")
	case badTokens(set.Success):
		return nil, failure.Invalid("QuotaOptions.Success is out of range; give 1 to 65535 tokens, 0 for 1, a negative " +
			"number for " +
			"none")
	case badTokens(set.LeastBack):
		return nil, failure.Invalid("QuotaOptions.LeastBack is out of range; give 0 to 65535 tokens")
	case badTokens(set.ExtraBack):
		return nil, failure.Invalid("QuotaOptions.ExtraBack is out of range; give 0 to 65535 tokens")
	case set.Bucket != nil && (set.Size != 0 || set.Spent != 0 || set.Refill != 0):
		return nil, failure.Invalid("QuotaOptions.Size, Spent and Refill belong to the built-in bucket; leave them 0 with " +
			"a Bucket")
	case set.Wait && set.Bucket == nil && set.Refill == 0:
		return nil, failure.Invalid("QuotaOptions.Wait needs Refill; tokens would never come back")
	}
	for _, c := range set.Costs {
		switch {
		case badTokens(c.Tokens):
			return nil, failure.Invalid("QuotaOptions.Costs.Tokens is out of range; give 0 to 65535")
		case c.Kinds == 0:
			return nil, failure.Invalid("QuotaOptions.Costs has a row without Kinds; it would never apply")
		}
	}
	if set.Bucket == nil {
		defaults(&set.Size, 500)
		b, err := NewTokenBucket(set.Size, set.Spent, set.Refill)
		if err != nil {
			return nil, err
		}
		set.Bucket = b
	}
	return &Quota{
		bucket: set.Bucket, retry: uint16(set.Retry), costs: append([]Cost(nil), set.Costs...), first: set.First,
		success: set.Success,
		back:    set.LeastBack, extra: set.ExtraBack, late: set.Late || set.Wait, wait: set.Wait,
	}, nil
}

func defaults(n *int, value int) {
	if *n == 0 {
		*n = value
	}
}

func badTokens(n int) bool { return n < 0 || n > math.MaxUint16 }

// Wrap puts the quota around p: p decides first, and only a retry that it wants is paid for. A
// refusal is OutOfQuota and carries the delay that the retry would have had.
func (q *Quota) Wrap(p retrypolicy.Policy) retrypolicy.Policy { return charged{q, p} }

type charged struct {
	quota  *Quota
	policy retrypolicy.Policy
}

func (c charged) Decide(a retrypolicy.Attempt) retrypolicy.Decision {
	d := c.policy.Decide(a)
	switch {
	case !d.Retry:
		return d
	case tooLate(a, d):
		return wrap.Refuse(c.policy, a, d, wrap.Stop(retrypolicy.PastDeadline))
	}
	if c.quota.late {
		// lets a bucket that was never asked see the time, so that the delay counts for its refill
		c.quota.bucket.Give(a.Now, 0)
		return d
	}
	d.Cost = c.quota.cost(a.Kind)
	if _, ok := c.quota.bucket.Take(a.Now, int(d.Cost)); !ok {
		return wrap.Refuse(c.policy, a, d, retrypolicy.Decision{Reason: retrypolicy.OutOfQuota, Delay: d.Delay})
	}
	return d
}

// Withdraw gives back what the retry has cost. A Late quota charges at Admit, and a retry that was
// let in is not withdrawn.
func (c charged) Withdraw(a retrypolicy.Attempt) {
	if !c.quota.late {
		c.quota.bucket.Give(a.Now, int(a.Last.Cost))
	}
	retrypolicy.Withdraw(c.policy, a)
}

// tooLate reports whether the retry d will not be made, because the caller's deadline comes first:
// then nothing is to be paid for it.
func tooLate(a retrypolicy.Attempt, d retrypolicy.Decision) bool {
	return a.Left > 0 && d.Delay >= a.Left
}

// Admit takes what is to be paid before an attempt.
func (c charged) Admit(a retrypolicy.Attempt) retrypolicy.Decision {
	q := c.quota
	cost := uint16(q.first)
	if a.Retry > 0 {
		cost = 0
		if q.late {
			cost = q.cost(a.Kind)
		}
	}
	if cost == 0 {
		return retrypolicy.Admit(c.policy, a)
	}
	if wait, ok := q.bucket.Take(a.Now, int(cost)); !ok {
		if q.wait && wait >= 0 {
			return retrypolicy.Decision{Retry: true, Delay: max(wait, 1)}
		}
		return wrap.Stop(retrypolicy.OutOfQuota)
	}
	// The policy inside is asked last, for it may count what it lets in.
	d := retrypolicy.Admit(c.policy, a)
	switch {
	case !d.Retry || d.Delay > 0:
		q.bucket.Give(a.Now, int(cost))
	case a.Retry > 0:
		d.Cost = cost
	}
	return d
}

func (c charged) Observe(a retrypolicy.Attempt) {
	if a.Err == nil {
		back := c.quota.success * max(a.Count, 1)
		if a.Retry > 0 {
			back = max(int(a.Last.Cost), c.quota.back) + c.quota.extra
		}
		c.quota.bucket.Give(a.Now, back)
	}
	retrypolicy.Observe(c.policy, a)
}

func (c charged) Validate() error {
	if c.quota == nil {
		return failure.Invalid("Quota is nil; make one with NewQuota")
	}
	return wrap.Within("the policy that Quota.Wrap was given", c.policy)
}

func (q *Quota) cost(k transport.Kind) uint16 {
	for _, c := range q.costs {
		if c.Kinds.Has(k) {
			return uint16(c.Tokens)
		}
	}
	return q.retry
}

func (c charged) Inside() retrypolicy.Policy { return c.policy }
func (c charged) Shared() any                { return c.quota }
func (charged) Charges() bool                { return true }

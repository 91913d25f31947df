// Package retrypolicy decides whether a failed attempt is made again, and after what delay.
//
// A policy is a question and an answer: the number of the retry and the latest failure in, yes or
// no and a delay out. A function is one:
//
//	policy := retrypolicy.Func(func(retry int, last error) (bool, time.Duration) {
//		return retry <= 5, time.Duration(retry) * time.Second
//	})
//
// A device client needs none: its default, [ExponentialBackoffWithJitter], is right, and
// device.Options.RetryPolicy takes another. For an operation of your own, pass a policy to [Do].
// Without a deadline Do makes no retry after 4 minutes, unless a [MaxAttempts] or [MaxElapsed]
// decides about every failure; see Retrier.Timeout.
// The error says why there was no further attempt, and holds the last failure:
//
//	err := retrypolicy.Do(ctx, retrypolicy.MaxAttempts{Total: 4, Policy: retrypolicy.Backoff{
//		Base: 100 * time.Millisecond, Max: 10 * time.Second, Jitter: retrypolicy.JitterFull,
//	}}, func(ctx context.Context) error { return send(ctx) })
//
// There are three ideas. A [Policy] computes: it never sleeps, allocates nothing, and any number of
// callers can share it. A [Series] is what a policy remembers from one attempt to the next; only
// policies with memory have one (see [Stateful]). The caller waits: the device client, Do, or a
// loop of your own around an [Operation].
//
// A policy is a curve (ExponentialBackoffWithJitter, Backoff, Fixed, Incremental, Immediately,
// NoRetry, Func) or a curve with wrappers around it (MaxAttempts, MaxElapsed, RetryAfter, SafeOnly,
// ByKind). Policies whose state is shared by operations, such as a quota or a breaker, are in
// package [github.com/hubline-iot/hubline/retrypolicy/budget]; compat has what other systems do,
// and httpretry repeats the requests of an http.Client. The page docs/retries.md says which one to
// take.
//
// # Nesting
//
// A wrapper asks the inner policy before it commits itself, so nest from the outside in: PerKey;
// what waits (Adaptive, a Breaker or Quota with Wait); what charges (Quota, RetryBudget); what
// refuses (Breaker, Throttle, ConcurrencyBudget); limits; RetryAfter; ByKind and the curves. Retry
// at one layer only: three layers with four attempts each make 64 attempts.
//
// # A policy of your own
//
// A type sees the whole [Attempt]; its only required method is Decide. It computes from the Attempt
// alone: from its Now and not the clock, from its Rand and not a generator. Retry may be as large
// as 2^31-1, and the growth of a delay must not overflow there. Validate, which reports invalid
// parameters ([Validator]), and Begin, which begins a [Series] ([Stateful]), are optional. Unwrap()
// Policy shows Do the limits inside a wrapper. So a wrapper without memory has
//
//	func (w Mine) Unwrap() retrypolicy.Policy { return w.Policy }
//	func (w Mine) Decide(a retrypolicy.Attempt) retrypolicy.Decision { return w.decide(w.Policy, a) }
//	func (w Mine) Begin(s retrypolicy.Start) retrypolicy.Series {
//		return retrypolicy.Around(w, w.Policy, s, Mine.decide)
//	}
//	func (w Mine) decide(inner retrypolicy.Policy, a retrypolicy.Attempt) retrypolicy.Decision {
//		... inner.Decide(a) ... // and not w.Policy
//	}
//
// because without Begin it disables a budget inside.
//
// A breaker or a quota of your own has Unwrap, too. Its Series is around the inner policy's
// ([Inner]) and overrides what it is about: Admit to hold or refuse attempts, Decide to refuse or
// charge for retries, Report to learn, End to give back. In Admit it holds or refuses first and
// asks the inner series last; in Decide it asks that series first and charges after. If the inner
// series delays an attempt, Admit is called again: remember what you took for it. A breaker refuses
// with ReasonRejected, a quota with ReasonOutOfQuota, and with a Delay if it knows when to ask
// again. budget.SaysNothing reports whether what Report gets says nothing about the service. The
// example of [Stateful] is a quota. A curve with memory embeds [Free].
package retrypolicy

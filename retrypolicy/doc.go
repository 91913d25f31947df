// Package retrypolicy decides whether a failed attempt is made again, and after what delay.
//
// A policy is a question and an answer: the number of the retry and the latest failure in, yes or
// no and a delay out. A function is one:
//
//	policy := retrypolicy.Func(func(retry int, last error) (bool, time.Duration) {
//		return retry <= 5, time.Duration(retry) * time.Second
//	})
//
// A device client needs none: its default, [ExponentialBackoffWithJitter], is right. For an
// operation of your own, pass a policy to [Do]. The error says why there was no further attempt,
// and holds the last failure:
//
//	err := retrypolicy.Do(ctx, retrypolicy.MaxAttempts{Total: 4, Policy: retrypolicy.Backoff{
//		Base: 100 * time.Millisecond, Max: 10 * time.Second, Jitter: retrypolicy.JitterFull,
//	}}, func(ctx context.Context) error { return send(ctx) })
//
// There are three ideas. A [Policy] computes: it never sleeps, allocates nothing, and any number of
// callers can share it. A [Series] is what a policy remembers of one outage, message or operation;
// only policies with memory have one (see [Stateful]). The caller waits: the device client, Do, or
// a loop of your own around an [Operation].
//
// Policies whose state is shared by operations, such as a quota or a breaker, are in package
// [github.com/hubline-iot/hubline/retrypolicy/budget]. Package compat has what other SDKs and
// libraries do, and httpretry repeats the requests of an http.Client.
//
// # Which policy
//
// A [Policy] is a curve, or a curve with wrappers around it:
//
//	curve                         use it when
//	ExponentialBackoffWithJitter  you have a device: the default, which the Azure SDKs document
//	Backoff                       you choose base, factor, cap and one of the published jitters
//	Fixed                         every delay is to be the same
//	Incremental                   the delay is to grow by the same step
//	Immediately                   there is nothing to wait for; put a limit around it
//	NoRetry                       a failure is final
//	Func                          you have a function of retry number and error
//
//	wrapper                       use it when
//	MaxAttempts                   a caller waits for the result: so many attempts
//	MaxElapsed                    a caller waits for the result: so much time
//	SafeOnly                      an operation must not happen twice
//	RetryAfter                    the service says how long to wait
//	ByKind                        kinds of failures need different policies
//
// A device has one connection and retries for ever: leave the client's RetryPolicy alone, or set a
// larger Cmax if the connection is expensive. The clients of a gateway share one budget.Breaker
// with Wait around the default, so that one of them probes a service that is down; its Cooldown is
// longer than the clients' StableTime and DialTimeout together. A call of a cloud service has a
// waiting caller: three or four attempts, [JitterFull], the service's delay by [RetryAfter], and
// one budget.Quota that all calls share. The examples show the last two.
//
// A wrapper asks the inner policy before it commits itself, so nest from the outside in: PerKey;
// what waits (Adaptive, a Breaker or Quota with Wait); what charges (Quota, RetryBudget); what
// refuses (Breaker, Throttle, ConcurrencyBudget); limits; RetryAfter; ByKind and the curves. A
// budget that is nested in itself acts once. Retry at one layer only: three layers with four
// attempts each make 64 attempts.
//
// # Failures
//
// A policy sees only retryable failures. [Classify] judges failures for Do, errors of package net
// and of an http.Client among them. FromKind(neterr.Kind) as the field Classify of a [Retrier] also
// ends the retries after a certificate that does not verify. The end of a context is never
// retryable. A policy cannot know which operations may be repeated: set [Retrier].Once for one that
// must not happen twice.
//
// # Parameters
//
// A policy without state is a value: write a literal. The field comments give the meaning of zero
// fields. A budget is created by a function New..., whose options may be nil for the defaults; its
// method Wrap puts it around a policy. [Validate] reports invalid parameters; Do, a Retrier and the
// device client call it. It refuses a policy whose delays would all be 0, unless it is meant to be
// so ([Immediately]). Other delays of 0, and negative ones, show only when a policy is asked: see
// [Decide].
//
// # A policy of your own
//
// A function is a policy: [Func]. A type sees the whole [Attempt]; its only required method is
// Decide. It computes from the Attempt alone: from its Now and not the clock, from its Rand and not
// a generator. Retry may be as large as 2^31-1, and the growth of a delay must not overflow there.
// Two more methods are possible: Validate reports invalid parameters, those of a policy inside too
// ([Validator]), and Begin begins a [Series] ([Stateful]).
//
// A policy with memory keeps it in its Series. A breaker or a quota of your own is a Series around
// the inner policy's ([Inner]) that overrides what it is about: Admit to hold or refuse attempts,
// Decide to refuse or charge for retries, Report to learn, End to give back; the example of
// [Stateful] is a quota. A curve with memory embeds [Free]. A wrapper without memory returns
// [Around].
package retrypolicy

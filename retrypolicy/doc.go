// Package retrypolicy decides whether a failed attempt is made again, and after what delay.
//
// A policy is a question and an answer: the number of the retry and the latest failure in, yes or
// no and a delay out. This is one:
//
//	retrypolicy.Func(func(retry int, last error) (bool, time.Duration) {
//		return retry <= 5, time.Duration(retry) * time.Second
//	})
//
// A device client needs none: its default is right. For an operation of your own, pass a policy to
// [Do]. The error says why there was no further attempt, and holds the last failure:
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
// # Which policy
//
// A [Policy] is a curve, or a curve with wrappers around it. Curves compute the delay:
//
//	policy                        use it when
//	ExponentialBackoffWithJitter  you have a device: the default, which the Azure SDKs document
//	Backoff                       you choose base, factor, cap and one of the published jitters
//	Fixed                         every delay is to be the same
//	Incremental                   the delay is to grow by the same step
//	Immediately                   there is nothing to wait for; put a limit around it
//	NoRetry                       a failure is final
//	Func                          you have a function of retry number and error
//
// Wrappers limit or change the policy inside:
//
//	policy                        use it when
//	MaxAttempts                   a caller waits for the result: so many attempts
//	MaxElapsed                    a caller waits for the result: so much time
//	SafeOnly                      an operation must not happen twice
//	RetryAfter                    the service says how long to wait
//	ByKind                        kinds of failures need different policies
//
// Policies whose state is shared by operations are in package retrypolicy/budget:
//
//	policy                        use it when
//	budget.Quota                  retries of all calls are to cost tokens, as in the AWS SDKs
//	budget.RetryBudget            retries are to stay below a share of the requests
//	budget.ConcurrencyBudget      retries in flight are to stay below a share of the calls in flight
//	budget.Throttle               attempts are to be rejected by chance while a service refuses them
//	budget.Breaker                nothing is to be sent for a while after too many failures
//	budget.Adaptive               attempts are to be as fast as a throttling service takes them
//	budget.PerKey                 each host, tenant or device needs one of these of its own
//
// Package retrypolicy/compat has what other libraries do, each tested with its published vectors,
// and retrypolicy/httpretry repeats the requests of an http.Client.
//
// # A device, a gateway, a call of a cloud service
//
// A device has one connection, and usually no operator nearby. It retries for ever and must not
// reconnect together with the rest of the fleet. Leave the client's RetryPolicy alone: that is
// [ExponentialBackoffWithJitter], with at most 10 s between attempts, or up to 60 s while the
// service throttles or a quota is used up, or as long as the service asks for. The formula alone
// does not spread a fleet. The client's ReconnectSpread does: 2 s by default, from the second retry
// on; set 10 s for a thousand devices, and more for more. If the connection is expensive (a modem,
// a battery), set a larger Cmax.
//
// A gateway has many connections to one service, so a failure of one is useful information for the
// others. Give all clients one budget.Breaker with Wait as the connection policy around the
// default: while the service is down, one probe is sent and not a thousand. The client's Dials
// limits the number of concurrent dials. The breaker's Cooldown should be longer than the clients'
// StableTime and DialTimeout together, which are 30 s each by default: a probe may take all of
// DialTimeout, and its success is reported only after StableTime. To keep the breaker away from
// messages, set the client's MessagePolicy, which is the connection policy by default.
//
// A call of a cloud service has a waiting caller, so it should give up soon: three or four
// attempts, [JitterFull], the service's delay by [RetryAfter], and one budget.Quota that all calls
// share, so that retries do not prolong an outage:
//
//	quota.Wrap(breaker.Wrap(retrypolicy.MaxElapsed{Limit: time.Minute, LookAhead: true,
//		Policy: retrypolicy.MaxAttempts{Total: 4,
//			Policy: retrypolicy.RetryAfter{Max: 30 * time.Second,
//				Policy: retrypolicy.Backoff{
//					Base: 100 * time.Millisecond, Max: 20 * time.Second, Jitter: retrypolicy.JitterFull}}}}}))
//
// A wrapper asks the inner policy before it commits itself, so nest from the outside in: PerKey;
// what waits (Adaptive, a Breaker or Quota with Wait); what charges (Quota, RetryBudget); what
// refuses (Breaker, Throttle, ConcurrencyBudget); limits; RetryAfter; ByKind and the curves. A
// budget that is nested in itself acts once.
//
// Retry at one layer only: three layers with four attempts each make 64 attempts.
//
// # Failures
//
// A policy sees only retryable failures. [Classify] judges failures for Do, errors of package net
// and of an http.Client among them. FromKind(neterr.Kind) as the field Classify of a
// [Retrier] also ends the retries after a certificate that does not verify. The end of a context is
// never retryable. A policy cannot know which operations may be repeated: set [Retrier].Once for
// one that must not happen twice.
//
// # Parameters
//
// A policy without state is a value: write a literal. The field comments give the meaning of zero
// fields. Validate reports invalid parameters; Do, a Retrier and the device client call it. A
// budget is created by a function New..., which returns an error for invalid parameters. It takes a
// pointer to its options, nil for the defaults, or plain arguments if there are no defaults. Its
// method Wrap puts it around a policy.
//
// [Validate] refuses a policy whose delays would all be 0, unless it is meant to be so
// ([Immediately]). Other delays of 0, and negative ones, show only when a policy is asked: see
// [Decide].
//
// # A policy of your own
//
// A function is a policy: [Func]. A type sees the whole [Attempt]; its only required method is
// Decide. It computes from the Attempt alone: from its Now and not the clock, from its Rand and not
// a generator. Retry may be as large as 2^31-1, and the growth of a delay must not overflow there.
// Two more methods are possible: Validate reports invalid parameters ([Validator]), and Begin
// begins a [Series] ([Stateful]).
//
// A policy with memory keeps it in its Series. A breaker or a quota of your own is a Series around
// the inner policy's ([Inner]) that overrides what it is about: Admit to hold or refuse attempts,
// Decide to refuse or charge for retries, Report to learn, End to give back. A curve with memory
// embeds [Free]. A wrapper without memory returns [Around].
package retrypolicy

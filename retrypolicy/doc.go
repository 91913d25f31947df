// Package retrypolicy decides whether a failed attempt is made again, and after what delay.
//
// A [Policy] computes; it never sleeps and allocates nothing. The caller waits: the device client,
// [Do], or a loop of your own around a [Series]. Time and random numbers come with the question
// ([Attempt].Now, [Attempt].Rand). So a policy without state is a plain value that any number of
// clients can share, and a test can ask for the exact answer.
//
// # First use
//
//	err := retrypolicy.Do(ctx, retrypolicy.MaxAttempts{Total: 4, Policy: retrypolicy.Backoff{
//		Base: 100 * time.Millisecond, Max: 10 * time.Second, Jitter: retrypolicy.FullJitter,
//	}}, func(ctx context.Context) error { return send(ctx) })
//
// The error, if any, is an [*Error]: why there was no further attempt, and the last failure. A
// device client needs no policy: its default is right.
//
// # Which policy
//
// Curves give the delay, and retry for ever:
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
// Policies with state that operations share are in package retrypolicy/budget:
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
// What other SDKs and libraries do, held by their published test vectors, is in retrypolicy/compat
// and its packages aws, azure and grpc. What the answers of an HTTP service mean, and its headers
// for the delay, is in retrypolicy/httpretry.
//
// # A device, a gateway, a call of a cloud service
//
// A device has one connection and nobody to press a button. It tries for ever and must not come
// back together with the rest of the fleet. Leave the client's RetryPolicy alone: that is
// [ExponentialBackoffWithJitter], with at most 10 s between attempts. The formula does not spread a
// fleet by itself. Set the client's ReconnectSpread for that, to some seconds for a thousand
// devices. If the connection is expensive (a modem, a battery), set a larger Cmax.
//
// A gateway has many connections to one service, so that what one of them learns can spare the
// others. Give all clients one budget.Breaker with Wait as the connection policy around the
// default: when the service is down, one probe is sent and not a thousand. The client's Dials
// limits how many connect at a time. The breaker's Cooldown should be longer than the clients'
// StableTime and DialTimeout together, which are 30 s each by default: a probe may take all of
// DialTimeout, and its success is reported only after StableTime. Keep the breaker out of the
// messages by setting the client's MessagePolicy, which is the connection policy by default.
//
// A call of a cloud service has a caller who waits, so it gives up soon: three or four attempts,
// [FullJitter], the service's delay by [RetryAfter], and one budget.Quota that all calls share, so
// that retries do not prolong an outage. For the services of Azure and AWS take what their own SDKs
// do: azure.Azcore and aws.Standard2026. For gRPC, grpc.Policy in one grpc.Throttle for each
// server.
//
// Retry at one layer only: three layers with four attempts each make 64 attempts.
//
// # Failures
//
// Only retryable failures reach a policy. [Classify] judges them for Do; errors of package net and
// of an http.Client need no other [Classifier]. Package transport/neterr, by [FromKind], also ends
// the retries after a certificate that does not verify. The end of a context is never retryable.
//
// No policy knows what is safe to repeat. Set [Retrier].Once for an operation that must not happen
// twice, or let a Classifier say for each failure what is known ([Safe]).
//
// # How policies are made
//
// A policy without state is a value: write a literal; its zero fields have the meaning that their
// comments give. Validate reports parameters that make no sense; Do, a Retrier and the device
// client call it. A policy with state is made by a function New..., which returns an error for such
// parameters. It takes a pointer to its options, nil for the defaults, or plain arguments if there
// are no defaults; its method Wrap puts it around another policy. A function without parameters,
// such as azure.IoTOperations, returns published settings.
//
// [Validate] refuses policies whose delays would all be 0, unless they say so ([Immediately]).
//
// # What goes around what
//
// A wrapper asks the policy inside before it commits itself, so the order matters. From the outside
// in:
//
//  1. budget.PerKey.
//  2. Gates that wait: budget.Adaptive, and Breaker or Quota with Wait. They delay an attempt
//     before anything further in has counted it.
//  3. What retries are paid with: budget.Quota, budget.RetryBudget, grpc.Throttle. They charge only
//     for a retry that everything inside wants.
//  4. Gates that refuse: budget.Breaker, budget.Throttle, budget.ConcurrencyBudget.
//  5. Limits: [MaxAttempts], [MaxElapsed], [SafeOnly].
//  6. [RetryAfter], so that it changes the curve's delay and the limits see the result.
//  7. [ByKind], and the curves.
//
// A call of a cloud service with all that is useful, outermost first:
//
//	quota.Wrap(breaker.Wrap(retrypolicy.MaxElapsed{Limit: time.Minute, Mode: retrypolicy.LookAhead,
//		Policy: retrypolicy.MaxAttempts{Total: 4,
//			Policy: retrypolicy.RetryAfter{Max: 30 * time.Second,
//				Policy: retrypolicy.Backoff{
//					Base: 100 * time.Millisecond, Max: 20 * time.Second, Jitter: retrypolicy.FullJitter}}}}}))
//
// # A policy of your own
//
// A function in the shape that the Azure SDKs use is a policy. It gets the number of the retry, 1
// for the first, and the latest failure:
//
//	retrypolicy.Func(func(retry int, last error) (bool, time.Duration) {
//		return retry <= 5, time.Duration(retry) * time.Second
//	})
//
// A type of your own sees the whole question; its one method is Decide. A policy may have more
// methods, in the order in which they are called:
//
//   - [Gate]: is asked before each attempt, the first included, whether it may begin.
//   - [Observer]: is told how every attempt ended. Quotas, breakers and rate limiters learn by it.
//   - [Withdrawer]: is told of a retry that is not made after all, so that a quota gives back what
//     it charged.
//   - Validate: reports parameters that make no sense.
//   - Endless() bool: whether it retries for ever; see [Retrier].Limit.
//
// These are the rules:
//
//   - Compute from the [Attempt] alone: its Now and not the clock, its Rand and not a generator.
//     The zero [Decision] stops; a Delay of 0 is a retry at once.
//   - Retry may be as great as 2^31-1, and the doubling of a delay must not overflow there.
//   - Never sleep and never block; guard state with a short mutex. The value may be shared, so what
//     belongs to one series goes into Decision.Step, which comes back in the next question as
//     Attempt.Last.
//   - A wrapper passes all calls on to the policy inside: Decide, [Observe], [Admit], [Withdraw]
//     and [Validate].
//   - A wrapper that refuses a retry which the policy inside wanted calls [Withdraw] for it: the
//     policy inside may have charged for it.
//   - An Observer is told of each attempt once; a Gate that counts attempts relies on that.
package retrypolicy

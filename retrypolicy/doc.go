// Package retrypolicy decides whether a failed attempt is made again, and after what delay.
//
// A device client needs no policy: its default is right. For an operation of your own, pass a
// policy to [Do]:
//
//	err := retrypolicy.Do(ctx, retrypolicy.MaxAttempts{Total: 4, Policy: retrypolicy.Backoff{
//		Base: 100 * time.Millisecond, Max: 10 * time.Second, Jitter: retrypolicy.JitterFull,
//	}}, func(ctx context.Context) error { return send(ctx) })
//
// The error, if any, is an [*Error]: the reason why there was no further attempt, and the last
// failure. [DoValue] returns a value too, a [Retrier] has more settings, and poll.Until waits for a
// certain value.
//
// # Which policy
//
// A [Policy] is a curve, or a curve with wrappers around it. Curves compute the delay. NoRetry
// never retries, and Func stops when the function says so. The others retry for ever in a device
// client; Do ends them after 4 minutes (DefaultTimeout) if the context has no deadline and no
// wrapper or Retrier.Timeout limits them:
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
// The other packages, none of which a device needs:
//
//	package                       what is in it
//	retrypolicy/compat            what other libraries do, each tested with its published vectors;
//	                              the families of SDKs are in compat/aws, compat/azure, compat/grpc
//	retrypolicy/classify          for rules of your own about which failures are retried
//	retrypolicy/httpretry         such rules for the answers of HTTP services, and their Retry-After
//	retrypolicy/poll              repeats an operation until its value is the awaited one
//
// A policy only computes; it never sleeps and allocates nothing. The caller waits: the device
// client, Do, or a loop of your own around a [Series]. The caller passes in the time and random
// numbers ([Attempt].Now, [Attempt].Rand). So a policy without state is a plain value that any
// number of clients can share, and a test can check exact delays.
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
// share, so that retries do not prolong an outage. For the services of Azure and AWS use the
// policies of their own SDKs: azure.Azcore and aws.Standard2026. For gRPC use grpc.Policy inside
// one grpc.Throttle per server.
//
// Retry at one layer only: three layers with four attempts each make 64 attempts.
//
// # Failures
//
// A policy sees only retryable failures. [Classify] judges failures for Do, errors of package net
// and of an http.Client among them. classify.FromKind(neterr.Kind) as the field Classify of a
// [Retrier] also ends the retries after a certificate that does not verify. The end of a context is
// never retryable.
//
// A policy cannot know which operations may be repeated. Set [Retrier].Once for an operation that
// must not happen twice, or use a classifier that says for each failure whether a repetition is
// safe.
//
// # How to create policies
//
// A policy without state is a value: write a literal. The field comments give the meaning of zero
// fields. Validate reports invalid parameters; Do, a Retrier and the device client call it. A
// policy with state is created by a function New..., which returns an error for invalid parameters.
// It takes a pointer to its options, nil for the defaults, or plain arguments if there are no
// defaults. Its method Wrap puts it around another policy. A function without parameters, such as
// azure.IoTOperations, returns published settings.
//
// [Validate] refuses a policy whose delays would all be 0, unless it is meant to be so
// ([Immediately]). Other delays of 0, and negative ones, show only when a policy is asked: see
// [Decide].
//
// # Order of nesting
//
// A wrapper asks the inner policy before it commits itself, so the order matters. From the outside
// in:
//
//  1. budget.PerKey.
//  2. Gates that wait: budget.Adaptive, and Breaker or Quota with Wait. They delay an attempt
//     before any inner policy has counted it.
//  3. Policies that charge for retries: budget.Quota, budget.RetryBudget, grpc.Throttle. They
//     charge only for a retry that all inner policies allow.
//  4. Gates that refuse: budget.Breaker, budget.Throttle, budget.ConcurrencyBudget.
//  5. Limits: [MaxAttempts], [MaxElapsed], [SafeOnly].
//  6. [RetryAfter], so that it changes the curve's delay and the limits see the result.
//  7. [ByKind], and the curves.
//
// A call of a cloud service with all useful policies, outermost first:
//
//	quota.Wrap(breaker.Wrap(retrypolicy.MaxElapsed{Limit: time.Minute, LookAhead: true,
//		Policy: retrypolicy.MaxAttempts{Total: 4,
//			Policy: retrypolicy.RetryAfter{Max: 30 * time.Second,
//				Policy: retrypolicy.Backoff{
//					Base: 100 * time.Millisecond, Max: 20 * time.Second, Jitter: retrypolicy.JitterFull}}}}}))
//
// # A policy of your own
//
// A function in the shape that the Azure SDKs use is a policy. Its arguments are the number of the
// retry, 1 for the first, and the latest failure:
//
//	retrypolicy.Func(func(retry int, last error) (bool, time.Duration) {
//		return retry <= 5, time.Duration(retry) * time.Second
//	})
//
// A custom type sees the whole [Attempt]; its only required method is Decide. It may have more
// methods, in the order in which they are called:
//
//   - Validate: reports invalid parameters, before the first attempt.
//   - [Gate]: decides before each attempt, the first included, whether it may begin.
//   - [Observer]: receives the outcome of every attempt. Quotas, breakers and rate limiters need
//     it.
//   - [Withdrawer]: is called for a retry that is not made after all, so that a quota returns its
//     cost.
//
// Do asks Endless() bool once, after the first failure or before a gate's first wait: whether the
// policy retries for ever; see [Retrier.Timeout].
//
// Rules for a policy:
//
//   - Compute from the [Attempt] alone: use its Now and not the clock, its Rand and not a
//     generator. The zero [Decision] stops; a Delay of 0 is an immediate retry.
//   - Retry may be as large as 2^31-1, and the growth of a delay must not overflow there.
//   - Never sleep and never block; guard state with a short mutex. Because the value may be shared,
//     the state of one series belongs in Decision.Step, which comes back in the next call as
//     Attempt.Last.
//   - A wrapper forwards all calls to the inner policy: Decide, [Observe], [Admit], [Withdraw] and
//     [Validate].
//   - A wrapper that refuses a retry of the inner policy calls [Withdraw] for it, because the inner
//     policy may have charged for it.
//   - An Observer sees each attempt once; a Gate that counts attempts relies on that.
package retrypolicy

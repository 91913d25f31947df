// Package retrypolicy decides whether to try again, and after what delay.
//
// A [Policy] computes; it never sleeps, and allocates nothing. The waiting is done by the caller:
// the device client, [Do], or a loop of one's own around a [Series]. Time and random numbers come
// in with the question ([Attempt].Now, [Attempt].Rand), so a policy without state of its own is a
// plain value that any number of clients can share, and a test can ask for the exact answer.
//
// # First use
//
//	err := retrypolicy.Do(ctx, retrypolicy.MaxAttempts{Total: 4, Policy: retrypolicy.Backoff{
//		Base: 100 * time.Millisecond, Max: 10 * time.Second, Jitter: retrypolicy.FullJitter,
//	}}, func(ctx context.Context) error { return send(ctx) })
//
// The error, if any, is an [*Error]: why there was no further try, and the last failure. A device
// client needs nothing at all: its default is right.
//
// # Which policy
//
// A device has one connection and nobody to press a button. It tries for ever, and what it must not
// do is come back together with the rest of the fleet. Leave the client's RetryPolicy alone: that
// is [ExponentialBackoffWithJitter], at most 10 s between tries. The formula does not spread a
// fleet by itself; set the client's ReconnectSpread for that, to some seconds for a thousand
// devices. If the connection is dear (a modem, a battery) give a larger Cmax. Who comes from
// another SDK of Azure's finds what it really does by its name: [azure.Java], [azure.C],
// [azure.Node],
// [CSharpExponential] and others.
//
// A gateway has many connections to one service, so what one of them learns should spare the
// others. Give all clients one [Breaker] with Wait as the connection policy around the default, so
// that when the service is down a probe goes out and not a thousand, and the client's Dials to
// limit how many connect at a time. Its Cooldown should be longer than the clients' StableTime and
// DialTimeout together, which are 30 s each unless set: a probe may take all of DialTimeout, its
// success is told only after StableTime, and a probe that is not heard of within a cooldown is
// given up for lost. When the breaker closes, those who wait come within the next half of a
// Cooldown or so, not at once (Spread). Keep it out of the messages: the client's MessagePolicy is
// the connection policy unless it is set.
//
// A call of a cloud service has a caller who waits, so it gives up soon: three or four tries,
// [FullJitter], the service's wish heard with [RetryAfter], and a [Quota] that all calls share, so
// that an outage is not made worse by everybody's retries. For the services of Azure and AWS take
// what their own SDKs do, [Azcore] and [aws.Standard2026] (both a value whose documentation says
// where it comes from). For gRPC, [grpc.Policy] in a [grpc.Throttle] for each server.
//
// Errors of package net and of an http.Client need no classifier: [Classify] takes a dead service
// for what it is. Package transport/neterr, by [FromKind], also ends the retries where a
// certificate does not verify. A curve without a limit, under a context without a deadline, ends
// after [DefaultLimit].
//
// What is safe to repeat is another question, and no policy knows the answer: set [Retrier].Once
// for an operation that must not happen twice, or let a [Classifier] say for each failure what is
// known ([Safe]).
//
// # Concepts, in the order in which they come into play
//
//   - [Gate]: may a try begin, now or later? It is asked before each try, first ones included. Only
//     few policies are one.
//   - [Classifier], of the caller's: what does the failure mean? What no retry mends never reaches
//     a policy. [Classify] is asked last.
//   - [Observer]: told how every try ended. Quotas, breakers and rate limiters learn by it.
//   - [Withdrawer]: told of a retry that is not made after all, so that a quota gives back what it
//     charged.
//   - [Policy]: whether to retry, and after what delay: a curve, and wrappers around it that limit
//     it or change the delay.
//   - The wait, by the caller, ended early by its context or where the deadline would be passed.
//
// What is left out waits all the same, or is refused: [Validate] takes no policy whose delays would
// all be 0, but [Immediately], which says so.
//
// Curves: [Backoff] with every published jitter, [Fixed], [Incremental],
// [ExponentialBackoffWithJitter], [TruncatedExponential], and those of other libraries by their
// names.
//
// Limits: [MaxAttempts], [MaxElapsed], [SafeOnly]; [Retrier].Limit and TryLimit cut running tries
// short.
//
// What the service asks for: [RetryAfter]. A curve for each kind of failure: [ByKind].
//
// State that operations share, with a method Wrap that puts it around a policy:
//
//	type                 bounds                                first tries       source
//	Quota                retries, by tokens of various cost    free              AWS
//	RetryBudget          retries, as a share of requests       free              SRE book
//	ConcurrencyBudget    retries in flight, as a share         free              failsafe-go
//	grpc.Throttle        retries, by failures and successes    free              gRPC
//	Throttle             all tries, by chance                  may be rejected   SRE book, failsafe-go
//	Breaker              all tries, for a cooldown             refused or wait
//	Adaptive             the rate of all tries                 wait              AWS
//
// [PerKey] keeps one of these for each host, tenant or device.
//
// # What goes around what
//
// A wrapper asks what is inside before it commits itself, so the order matters. From the outside
// in:
//
//  1. [PerKey].
//  2. Gates that wait: [Adaptive], [Breaker] with Wait, [Quota] with Wait. They hold a try up
//     before anything further in has counted it.
//  3. What retries are paid with: [Quota], [RetryBudget], [grpc.Throttle]. They charge only for a
//     retry that everything inside wants.
//  4. Gates that refuse: [Breaker], [Throttle], [ConcurrencyBudget].
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
// Retry at one layer only: three layers with four tries each are 64 tries.
//
// # A policy of one's own
//
// A function in the shape that the Azure SDKs use, with the number of the retry (1 for the first)
// and the latest failure, is a policy:
//
//	retrypolicy.Func(func(retry int, last error) (bool, time.Duration) {
//		return retry <= 5, time.Duration(retry) * time.Second
//	})
//
// With a type of one's own all of the question is at hand; its one method is Decide. These are the
// rules:
//
//   - Compute from the [Attempt] alone: its Now and not the clock, its Rand and not a generator.
//     The zero [Decision] stops; a Delay of 0 is a retry at once.
//   - Retry may be as great as 2^31-1, and the doubling of a delay must not overflow there.
//   - Never sleep and never block; guard state with a short mutex. The value may be shared, so what
//     belongs to one series goes into Decision.Step, which comes back in the next question as
//     Attempt.Last.
//   - Parameters that can be wrong are refused by Validate.
//   - A wrapper passes all five on to the policy inside: Decide, [Observe], [Admit], [Withdraw],
//     and [Validate].
//   - A wrapper that refuses a retry which the policy inside wanted calls [Withdraw] for it: the
//     policy inside may have charged for it.
//   - An Observer is told of each try once; a Gate that counts what it lets in counts on that.
package retrypolicy

// Package budget has retry policies with state that operations share, so that the retries of one
// are bounded by what happened to all.
//
// Make one with its function New..., and put it around a policy with its method Wrap:
//
//	quota, err := budget.NewQuota(nil)
//	...
//	policy := quota.Wrap(retrypolicy.Backoff{Base: time.Second, Max: time.Minute})
//
// Give that policy to all operations that are to share the state. The values are safe for
// concurrent use, never sleep, and allocate nothing for a decision.
//
//	type               bounds                                first attempts    source
//	Quota              retries, by tokens of various cost    free              AWS
//	RetryBudget        retries, as a share of requests       free              SRE book
//	ConcurrencyBudget  retries in flight, as a share         free              failsafe-go
//	Throttle           all attempts, by chance               may be rejected   SRE book, failsafe-go
//	Breaker            all attempts, for a cooldown          refused or wait   Nygard, failsafe-go
//	Adaptive           the rate of all attempts              wait              AWS
//
// [PerKey] keeps one of these for each host, tenant or device. gRPC's own throttle is in
// retrypolicy/compat/grpc. Package retrypolicy says in what order they go around each other.
package budget

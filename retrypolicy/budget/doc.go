// Package budget has retry policies whose state is shared by operations, so that the outcomes of
// all of them limit the retries of each.
//
// Create one with its function New..., whose options may be nil and whose errors are of Kind
// Invalid, and put it around a policy with its method Wrap:
//
//	quota, err := budget.NewQuota(nil)
//	...
//	policy := quota.Wrap(retrypolicy.Backoff{Base: time.Second, Max: time.Minute})
//
// The policy inside decides first: a budget is charged only for a retry that is wanted. Give the
// policy to all operations that share the state. The values are safe for concurrent use.
//
//	type               bounds                                first attempts    source
//	Quota              retries, by tokens of various cost    free              AWS
//	RetryBudget        retries, as a share of requests       free              SRE book
//	ConcurrencyBudget  retries in flight, as a share         free              failsafe-go
//	Throttle           all attempts, by chance               may be rejected   SRE book, failsafe-go
//	Breaker            all attempts, for a cooldown          refused or wait   Nygard, failsafe-go
//	Adaptive           the rate of all attempts              wait              AWS
//
// [PerKey] keeps one of these for each host, tenant or device. RetryThrottle is gRPC's own. The
// documentation of package retrypolicy gives the order of nesting; a budget nested in itself acts
// once.
package budget

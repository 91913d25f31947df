package retrypolicy

import (
	"github.com/hubline-iot/hubline/internal/errchain"
	"github.com/hubline-iot/hubline/retrypolicy/internal/failure"
)

// wrapper is a policy of another package of this module that contains a policy. Budgets and
// breakers implement it.
type wrapper interface {
	Inside() Policy
	// Shared returns the state that operations share, a pointer.
	Shared() any
	// Charges reports whether the policy keeps its cost in Decision.Cost.
	Charges() bool
}

// holder is a policy of this package that contains policies.
type holder interface {
	// held returns the i-th inner policy, nil after the last.
	held(i int) Policy
}

func (m MaxAttempts) held(i int) Policy { return only(i, m.Policy) }
func (m MaxElapsed) held(i int) Policy  { return only(i, m.Policy) }
func (r RetryAfter) held(i int) Policy  { return only(i, r.Policy) }
func (s SafeOnly) held(i int) Policy    { return only(i, s.Policy) }

func (b ByKind) held(i int) Policy {
	if i < len(b.Rules) {
		return b.Rules[i].Policy
	}
	return only(i-len(b.Rules), b.Default)
}

// inside returns the i-th policy inside p, nil after the last.
func inside(p Policy, i int) Policy {
	switch p := p.(type) {
	case holder:
		return p.held(i)
	case wrapper:
		return only(i, p.Inside())
	}
	return nil
}

func only(i int, p Policy) Policy {
	if i > 0 {
		return nil
	}
	return p
}

// count returns how many policies match, among p and all policies inside it.
func count(p Policy, match func(Policy) bool) int {
	n := 0
	if match(p) {
		n++
	}
	for i := 0; ; i++ {
		in := inside(p, i)
		if in == nil {
			return n
		}
		n += count(in, match)
	}
}

func isByKind(p Policy) bool { _, ok := p.(ByKind); return ok }

func charges(p Policy) bool {
	w, ok := p.(wrapper)
	return ok && w.Charges()
}

// sharing returns how many policies use state, among p and all policies inside it.
func sharing(p Policy, state any) int {
	return count(p, func(p Policy) bool {
		w, ok := p.(wrapper)
		return ok && errchain.Same(w.Shared(), state)
	})
}

// twice reports whether p or a policy inside it shares its state with another policy inside root.
func twice(root, p Policy) bool {
	if w, ok := p.(wrapper); ok {
		if state := w.Shared(); state != nil && sharing(root, state) > 1 {
			return true
		}
	}
	for i := 0; ; i++ {
		in := inside(p, i)
		if in == nil {
			return false
		}
		if twice(root, in) {
			return true
		}
	}
}

// misplaced returns the error of a combination of policies inside p, each of which is valid alone.
func misplaced(p Policy) error {
	switch {
	case count(p, charges) > 1:
		return failure.Invalid("Quota: there are two in one policy, and a retry remembers the cost of one; wrap the whole " +
			"policy in one")
	case twice(p, p):
		return failure.Invalid("the same Breaker, Throttle, Adaptive or budget is in one policy twice and would count " +
			"everything twice; wrap the whole policy in it once")
	}
	return nil
}

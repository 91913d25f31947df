package retrypolicy

// holder is a policy of this package with others inside.
type holder interface {
	// held returns the i-th policy inside, nil after the last.
	held(i int) Policy
	// shares returns the state that operations share, nil if there is none.
	shares() any
}

func (m MaxAttempts) held(i int) Policy { return only(i, m.Policy) }
func (m MaxElapsed) held(i int) Policy  { return only(i, m.Policy) }
func (r RetryAfter) held(i int) Policy  { return only(i, r.Policy) }
func (s SafeOnly) held(i int) Policy    { return only(i, s.Policy) }
func (l limited) held(i int) Policy     { return only(i, l.policy) }
func (t throttled) held(i int) Policy   { return only(i, t.policy) }
func (g guarded) held(i int) Policy     { return only(i, g.policy) }
func (r ratioed) held(i int) Policy     { return only(i, r.policy) }
func (c charged) held(i int) Policy     { return only(i, c.policy) }
func (b budgeted) held(i int) Policy    { return only(i, b.policy) }
func (c crowded) held(i int) Policy     { return only(i, c.policy) }

// held of a PerKey is the policy of the empty key, which stands for all.
func (k *PerKey) held(i int) Policy {
	if k == nil {
		return nil
	}
	return only(i, k.first)
}

func (b ByKind) held(i int) Policy {
	if i < len(b.Rules) {
		return b.Rules[i].Policy
	}
	return only(i-len(b.Rules), b.Default)
}

func (MaxAttempts) shares() any { return nil }
func (MaxElapsed) shares() any  { return nil }
func (RetryAfter) shares() any  { return nil }
func (SafeOnly) shares() any    { return nil }
func (ByKind) shares() any      { return nil }
func (*PerKey) shares() any     { return nil }
func (l limited) shares() any   { return l.limiter }
func (t throttled) shares() any { return t.throttle }
func (g guarded) shares() any   { return g.breaker }
func (r ratioed) shares() any   { return r.throttle }
func (c charged) shares() any   { return c.quota }
func (b budgeted) shares() any  { return b.budget }
func (c crowded) shares() any   { return c.budget }

func only(i int, p Policy) Policy {
	if i > 0 {
		return nil
	}
	return p
}

// count is how many of p and the policies inside it is wants.
func count(p Policy, is func(Policy) bool) int {
	n := 0
	if is(p) {
		n++
	}
	if h, ok := p.(holder); ok {
		for i := 0; ; i++ {
			in := h.held(i)
			if in == nil {
				break
			}
			n += count(in, is)
		}
	}
	return n
}

func isQuota(p Policy) bool  { _, ok := p.(charged); return ok }
func isByKind(p Policy) bool { _, ok := p.(ByKind); return ok }

// sharing is how many of p and the policies inside it share state.
func sharing(p Policy, state any) int {
	h, ok := p.(holder)
	if !ok {
		return 0
	}
	n := 0
	if h.shares() == state {
		n++
	}
	for i := 0; ; i++ {
		in := h.held(i)
		if in == nil {
			return n
		}
		n += sharing(in, state)
	}
}

// twice reports whether a policy inside root, of which p is one, shares its state with another one
// there.
func twice(root, p Policy) bool {
	h, ok := p.(holder)
	if !ok {
		return false
	}
	if state := h.shares(); state != nil && sharing(root, state) > 1 {
		return true
	}
	for i := 0; ; i++ {
		in := h.held(i)
		if in == nil {
			return false
		}
		if twice(root, in) {
			return true
		}
	}
}

// misplaced says what cannot be right about the policies inside p, each of which is valid by
// itself.
func misplaced(p Policy) error {
	switch {
	case count(p, isQuota) > 1:
		return invalid("Quota: there are two in one policy, and a retry remembers the cost of one; wrap the whole policy " +
			"in one")
	case twice(p, p):
		return invalid("the same Breaker, Throttle, Adaptive or budget is in one policy twice and would count everything " +
			"twice; wrap the whole policy in it once")
	}
	return nil
}

package retrypolicy

// ByKind has a policy for each class of failure: the first rule whose Kinds include the failure's decides, or Default.
type ByKind struct {
	Rules []Rule // at most 8
	// Default decides what no rule names.
	Default Policy
}

// Rule is one row of ByKind.
type Rule struct {
	Kinds  KindSet
	Policy Policy
	// Own: the policy is told how often this rule has applied in the series, instead of how many retries there were in all. So it has a limit and a growth of its own.
	Own bool
}

// maxRules is how many counters fit into Decision.Counts.
const maxRules = 8

// Decide asks the rule's policy.
func (b ByKind) Decide(a Attempt) Decision {
	for i := range b.Rules {
		r := &b.Rules[i]
		if !r.Kinds.Has(a.Kind) {
			continue
		}
		counts := a.Last.Counts
		n := counts >> (8 * i) & 0xff
		if n < 0xff {
			counts += 1 << (8 * i)
			n++
		}
		if r.Own {
			a.Retry = int(n)
		}
		d := r.Policy.Decide(a)
		d.Counts = counts
		return d
	}
	d := b.Default.Decide(a)
	d.Counts = a.Last.Counts
	return d
}

// Observe tells every rule's policy. What several of them share belongs around ByKind, not into it.
func (b ByKind) Observe(a Attempt) {
	for i := range b.Rules {
		Observe(b.Rules[i].Policy, a)
	}
	Observe(b.Default, a)
}

// Admit asks Default alone: before a try there is no failure to choose a rule by.
func (b ByKind) Admit(a Attempt) Decision { return Admit(b.Default, a) }

// Validate reports the first parameter that makes no sense.
func (b ByKind) Validate() error {
	if len(b.Rules) > maxRules {
		return invalid("ByKind.Rules has more than 8 rows; put several Kinds into one")
	}
	for i := range b.Rules {
		if b.Rules[i].Kinds == 0 {
			return invalid("ByKind.Rules has a row without Kinds; it would never apply")
		}
		if err := within("ByKind.Rules.Policy", b.Rules[i].Policy); err != nil {
			return err
		}
	}
	return within("ByKind.Default", b.Default)
}

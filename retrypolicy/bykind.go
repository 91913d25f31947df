package retrypolicy

// ByKind has a policy for each class of failure: the first rule whose Kinds include the failure's decides, or Default.
//
// There is room for what one of them remembers (Decision.Step). Where several are curves with a memory, such as Backoff with Decorrelated, a rule that takes turns with another of them
// begins anew each time. ByKind inside ByKind does not work: the two would count in the same place.
type ByKind struct {
	Rules []Rule // at most 7
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

// maxRules is how many counters of a byte fit into Decision.Counts, beside the byte at stepOwner.
const (
	maxRules  = 7
	stepOwner = 8 * maxRules
)

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
		return decideAs(uint64(i+1), r.Policy, a, counts)
	}
	return decideAs(maxRules+1, b.Default, a, a.Last.Counts)
}

// decideAs asks p, which is number who, and hands it no Step but its own. The top byte of counts holds whose the Step is.
func decideAs(who uint64, p Policy, a Attempt, counts uint64) Decision {
	owner, step := counts>>stepOwner, a.Last.Step
	if owner != who {
		a.Last.Step = 0
	}
	d := p.Decide(a)
	if d.Step == 0 && owner != who { // p remembers nothing, so what another does is kept
		d.Step, who = step, owner
	}
	d.Counts = counts&(1<<stepOwner-1) | who<<stepOwner
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
		return invalid("ByKind.Rules has more than 7 rows; put several Kinds into one")
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

package retrypolicy

import (
	"github.com/hubline-iot/hubline/transport"

	"github.com/hubline-iot/hubline/retrypolicy/internal/failure"
)

// ByKind has a policy for each class of failure: the first rule whose Kinds include the failure's
// decides, or Default.
//
// There is room for what one of them remembers (Decision.Step). Where several are curves with a
// memory, such as Backoff with Decorrelated, a rule that takes turns with another of them begins
// anew each time. ByKind inside ByKind is refused by Validate: the two would count in the same
// place.
type ByKind struct {
	Rules []Rule // at most 7
	// Default decides what no rule names.
	Default Policy
}

// Rule is one row of ByKind.
type Rule struct {
	Kinds  KindSet
	Policy Policy
	// Own: the policy is told how often this rule has applied in the series, instead of how many
	// retries there were in all. So it has a limit and a growth of its own.
	Own bool
}

// maxRules is how many counters Decision.Counts has.
const maxRules = 7

// Decide asks the rule's policy.
func (b ByKind) Decide(a Attempt) Decision {
	i := b.rule(a.Kind)
	if i < 0 {
		return decideAs(maxRules+1, b.Default, a)
	}
	r := &b.Rules[i]
	n := min(a.Last.Counts[i], maxRetry) + 1
	if r.Own {
		a.Retry = int(n)
	}
	d := decideAs(uint8(i+1), r.Policy, a)
	d.Counts[i] = n
	return d
}

// rule is the index of the rule for k, negative where Default decides.
func (b ByKind) rule(k transport.Kind) int {
	for i := range min(len(b.Rules), maxRules) {
		if b.Rules[i].Kinds.Has(k) {
			return i
		}
	}
	return -1
}

// decideAs asks p, which is number who, and hands it no Step but its own.
func decideAs(who uint8, p Policy, a Attempt) Decision {
	owner, step := a.Last.Rule, a.Last.Step
	if owner != who {
		a.Last.Step = 0
	}
	d := p.Decide(a)
	if d.Step == 0 && owner != who { // p remembers nothing, so what another does is kept
		d.Step, who = step, owner
	}
	d.Rule, d.Counts = who, a.Last.Counts
	return d
}

// Observe tells every rule's policy. What several of them share belongs around ByKind, not into it.
func (b ByKind) Observe(a Attempt) {
	for i := range b.Rules {
		Observe(b.Rules[i].Policy, a)
	}
	Observe(b.Default, a)
}

// Withdraw tells the policy that decided: that of the failure's Kind.
func (b ByKind) Withdraw(a Attempt) {
	if i := b.rule(a.Kind); i >= 0 {
		Withdraw(b.Rules[i].Policy, a)
		return
	}
	Withdraw(b.Default, a)
}

// Admit asks Default alone: before an attempt there is no failure to choose a rule by.
func (b ByKind) Admit(a Attempt) Decision { return Admit(b.Default, a) }

// Validate reports the first parameter that makes no sense.
func (b ByKind) Validate() error {
	if len(b.Rules) > maxRules {
		return failure.Invalid("ByKind.Rules has more than 7 rows; put several Kinds into one")
	}
	for i := range b.Rules {
		if b.Rules[i].Kinds == 0 {
			return failure.Invalid("ByKind.Rules has a row without Kinds; it would never apply")
		}
		if err := b.inside("ByKind.Rules.Policy", b.Rules[i].Policy); err != nil {
			return err
		}
	}
	return b.inside("ByKind.Default", b.Default)
}

func (b ByKind) inside(field string, p Policy) error {
	if err := within(field, p); err != nil {
		return err
	}
	if count(p, isByKind) > 0 {
		return failure.Invalid(field + " holds another ByKind, and both would count in the same place; put the rows of " +
			"both into one")
	}
	return nil
}

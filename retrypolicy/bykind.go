package retrypolicy

import (
	"github.com/hubline-iot/hubline/transport"

	"github.com/hubline-iot/hubline/retrypolicy/internal/failure"
)

// ByKind selects a policy by the class of failure. The first rule whose Kinds contain the failure's
// Kind decides; Default decides if there is none.
//
// Decision.Step has room for the state of one policy. If several of the policies are curves with
// state, such as Backoff with Decorrelated, each starts again whenever another one has decided in
// between. Validate refuses a ByKind inside a ByKind, because both would count in Decision.Counts.
type ByKind struct {
	// Rules are at most 7.
	Rules []Rule
	// Default decides about Kinds that no rule names.
	Default Policy
}

// Rule is one row of ByKind.
type Rule struct {
	// Kinds are the classes of failures to which the rule applies, at least one.
	Kinds KindSet
	// Policy decides about them.
	Policy Policy
	// OwnCount numbers the retries for the policy by how often this rule has applied in the series,
	// instead of by all retries. The rule then has its own limit and growth.
	OwnCount bool
}

// maxRules is the number of counters in Decision.Counts.
const maxRules = 7

// Decide calls the policy of the matching rule.
func (b ByKind) Decide(a Attempt) Decision {
	i := b.rule(a.Kind)
	if i < 0 {
		return decideAs(maxRules+1, b.Default, a)
	}
	r := &b.Rules[i]
	n := min(a.Last.Counts[i], maxRetry) + 1
	if r.OwnCount {
		a.Retry = int(n)
	}
	d := decideAs(uint8(i+1), r.Policy, a)
	d.Counts[i] = n
	return d
}

// rule returns the index of the rule for k, or -1 if Default decides.
func (b ByKind) rule(k transport.Kind) int {
	for i := range min(len(b.Rules), maxRules) {
		if b.Rules[i].Kinds.Has(k) {
			return i
		}
	}
	return -1
}

// decideAs calls p, policy number who, and passes it Step only if p set it.
func decideAs(who uint8, p Policy, a Attempt) Decision {
	owner, step := a.Last.Rule, a.Last.Step
	if owner != who {
		a.Last.Step = 0
	}
	d := p.Decide(a)
	if d.Step == 0 && owner != who { // p keeps no state: preserve the other policy's
		d.Step, who = step, owner
	}
	d.Rule, d.Counts = who, a.Last.Counts
	return d
}

// Observe informs the policy of every rule. A policy that several rules share belongs around
// ByKind, not inside it.
func (b ByKind) Observe(a Attempt) {
	for i := range b.Rules {
		Observe(b.Rules[i].Policy, a)
	}
	Observe(b.Default, a)
}

// Withdraw informs the policy that decided, which is that of the failure's Kind.
func (b ByKind) Withdraw(a Attempt) {
	if i := b.rule(a.Kind); i >= 0 {
		Withdraw(b.Rules[i].Policy, a)
		return
	}
	Withdraw(b.Default, a)
}

// Admit asks Default only: before an attempt there is no failure to select a rule by.
func (b ByKind) Admit(a Attempt) Decision { return Admit(b.Default, a) }

// Validate reports the first invalid parameter.
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

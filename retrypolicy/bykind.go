package retrypolicy

import (
	"github.com/hubline-iot/hubline/retrypolicy/internal/kit"
	"github.com/hubline-iot/hubline/transport"
)

// ByKind selects a policy by the class of failure. The first rule whose Kinds contain the failure's
// Kind decides; Default decides if there is none.
//
// The first attempt belongs to Default, a retry to the policy that granted it: that policy admits
// the attempt and learns how it ended. What should see all attempts, such as a breaker, belongs
// around ByKind.
//
// In a device client, Throttled, Quota and ClockUnset have minimum delays besides, or PacedPolicy
// alone decides about them (device.Options).
type ByKind struct {
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
	// so the rule has its own limit and growth. Without a series, each counts as the first.
	OwnCount bool
}

// Decide calls the policy of the matching rule.
func (b ByKind) Decide(a Attempt) Decision {
	r := b.rule(b.find(a.Kind))
	if r.OwnCount {
		a.Retry = 1
	}
	return r.Policy.Decide(a)
}

// find returns the index of the rule for k.
func (b ByKind) find(k transport.Kind) int {
	for i := range b.Rules {
		if b.Rules[i].Kinds.Has(k) {
			return i
		}
	}
	return len(b.Rules)
}

// rule returns rule i; the one after the last is Default's.
func (b ByKind) rule(i int) Rule {
	if i < len(b.Rules) {
		return b.Rules[i]
	}
	return Rule{Policy: b.Default}
}

// Begin begins a series if a rule counts, or a policy has memory.
func (b ByKind) Begin(start Start) Series {
	var rows []row
	for i := range len(b.Rules) + 1 {
		r := b.rule(i)
		series := BeginSeries(r.Policy, start)
		if rows == nil && (series != nil || r.OwnCount) {
			rows = make([]row, len(b.Rules)+1)
		}
		if rows != nil {
			rows[i].series = series
		}
	}
	if rows == nil {
		return nil
	}
	for i := range rows {
		rows[i].series = orPlain(rows[i].series, b.rule(i).Policy)
	}
	return &byKind{policy: b, rows: rows, current: len(b.Rules)}
}

type byKind struct {
	policy  ByKind
	rows    []row // one for each rule, and Default's
	current int   // the row that the latest attempt belongs to
}

type row struct {
	series Series
	count  int // how often the rule has applied
}

func (s *byKind) Decide(a Attempt) Decision {
	if a.Retry <= 1 { // the caller counts anew
		for i := range s.rows {
			s.rows[i].count = 0
		}
	}
	s.current = s.policy.find(a.Kind)
	r := &s.rows[s.current]
	r.count = min(r.count, maxRetry) + 1
	if s.policy.rule(s.current).OwnCount {
		a.Retry = r.count
	}
	return r.series.Decide(a)
}

func (s *byKind) Admit(a Attempt) Decision { return s.rows[s.current].series.Admit(a) }

func (s *byKind) Report(v Verdict, a Attempt) { s.rows[s.current].series.Report(v, a) }

func (s *byKind) End() {
	for i := range s.rows {
		s.rows[i].series.End()
	}
}

// Validate reports the first invalid parameter.
func (b ByKind) Validate() error {
	for i := range b.Rules {
		if b.Rules[i].Kinds == 0 {
			return kit.Invalid("ByKind.Rules has a row without Kinds; it would never apply")
		}
		if err := within("ByKind.Rules.Policy", b.Rules[i].Policy); err != nil {
			return err
		}
	}
	return within("ByKind.Default", b.Default)
}

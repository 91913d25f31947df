package retrypolicy

import (
	"github.com/hubline-iot/hubline/transport"

	"github.com/hubline-iot/hubline/retrypolicy/internal/kit"
)

// ByKind selects a policy by the class of failure. The first rule whose Kinds contain the failure's
// Kind decides; Default decides if there is none.
//
// Each attempt belongs to one of the policies: the first attempt to Default, a retry to the policy
// that granted it. That policy admits the attempt and learns how it ended. What should see all
// attempts, such as a breaker, belongs around ByKind.
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
	// instead of by all retries. The rule then has its own limit and growth. Without a series, the
	// policy is asked about the first such retry.
	OwnCount bool
}

// Decide calls the policy of the matching rule.
func (b ByKind) Decide(a Attempt) Decision {
	i := b.rule(a.Kind)
	if i < 0 {
		return b.Default.Decide(a)
	}
	if b.Rules[i].OwnCount {
		a.Retry = 1
	}
	return b.Rules[i].Policy.Decide(a)
}

// rule returns the index of the rule for k, or -1 if Default decides.
func (b ByKind) rule(k transport.Kind) int {
	for i := range b.Rules {
		if b.Rules[i].Kinds.Has(k) {
			return i
		}
	}
	return -1
}

// Begin begins a series if a rule counts, or a policy has memory.
func (b ByKind) Begin(start Start) Series {
	def := BeginSeries(b.Default, start)
	var rows []row
	for i, r := range b.Rules {
		series := BeginSeries(r.Policy, start)
		if series == nil && !r.OwnCount {
			continue
		}
		if rows == nil {
			rows = make([]row, len(b.Rules)+1)
		}
		rows[i].series = series
	}
	if def == nil && rows == nil {
		return nil
	}
	if rows == nil {
		rows = make([]row, len(b.Rules)+1)
	}
	for i, r := range b.Rules {
		rows[i].series = orPlain(rows[i].series, r.Policy)
	}
	rows[len(b.Rules)].series = orPlain(def, b.Default)
	return &byKind{policy: b, rows: rows, current: len(b.Rules)}
}

// byKind is a series of ByKind.
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
	if s.current = s.policy.rule(a.Kind); s.current < 0 {
		s.current = len(s.policy.Rules)
		return s.rows[s.current].series.Decide(a)
	}
	r := &s.rows[s.current]
	r.count = min(r.count, maxRetry) + 1
	if s.policy.Rules[s.current].OwnCount {
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

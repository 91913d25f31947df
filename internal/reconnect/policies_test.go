package reconnect_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/reconnect"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// recorder is a policy with memory that writes down what it is asked and told.
type recorder struct {
	name  string
	calls *[]string
	admit []retrypolicy.Decision // the answers of Admit, then Retry
}

func (r *recorder) note(call string) { *r.calls = append(*r.calls, r.name+"."+call) }

func (r *recorder) Begin(retrypolicy.Start) retrypolicy.Series { return r }

func (r *recorder) Decide(retrypolicy.Attempt) retrypolicy.Decision {
	r.note("Decide")
	return retrypolicy.Decision{Retry: true, Delay: time.Minute}
}

func (r *recorder) Admit(retrypolicy.Attempt) retrypolicy.Decision {
	r.note("Admit")
	d := retrypolicy.Decision{Retry: true}
	if len(r.admit) > 0 {
		d, r.admit = r.admit[0], r.admit[1:]
	}
	return d
}

func (r *recorder) Report(v retrypolicy.Verdict, _ retrypolicy.Attempt) {
	r.note("Report " + v.String())
}
func (r *recorder) End() { r.note("End") }

// The policy sees every attempt; the paced one sees the retries that it granted, before the policy.
func TestWhoIsAskedAndTold(t *testing.T) {
	wait := retrypolicy.Decision{Retry: true, Delay: time.Second}
	normal, slow := retrypolicy.Attempt{Kind: transport.Network}, retrypolicy.Attempt{Kind: transport.Throttled}
	again := func(s *reconnect.Series, a retrypolicy.Attempt) { s.Report(retrypolicy.VerdictAgain, a) }
	for name, c := range map[string]struct {
		policy, paced []retrypolicy.Decision
		run           func(p *reconnect.Policies, s *reconnect.Series)
		want          []string
	}{
		"a first attempt": {run: func(_ *reconnect.Policies, s *reconnect.Series) {
			s.Admit(normal)
			s.Report(retrypolicy.VerdictSucceed, normal)
		}, want: []string{"policy.Admit", "policy.Report succeed"}},
		"a retry after a failure of normal pace": {run: func(p *reconnect.Policies, s *reconnect.Series) {
			p.Decide(s, &normal)
			s.Admit(normal)
			again(s, normal)
		}, want: []string{"policy.Decide", "policy.Admit", "policy.Report again"}},
		"a retry after a failure of slow pace": {run: func(p *reconnect.Policies, s *reconnect.Series) {
			p.Decide(s, &slow)
			s.Admit(slow)
			again(s, slow)
			s.Admit(normal) // of another one
			again(s, normal)
		}, want: []string{"paced.Decide", "paced.Admit", "policy.Admit", "policy.Report again", "paced.Report again",
			"policy.Admit", "policy.Report again"}},
		"both delay it": {[]retrypolicy.Decision{wait}, []retrypolicy.Decision{wait},
			func(p *reconnect.Policies, s *reconnect.Series) {
				p.Decide(s, &slow)
				require.Equal(t, wait, s.Admit(slow))
				require.Equal(t, wait, s.Admit(slow))
				require.Equal(t, retrypolicy.Decision{Retry: true}, s.Admit(slow))
				again(s, slow)
			}, []string{"paced.Decide", "paced.Admit", "paced.Admit", "policy.Admit", "policy.Admit", "policy.Report again",
				"paced.Report again"}},
		"the paced one refuses it": {nil, []retrypolicy.Decision{{}}, func(p *reconnect.Policies, s *reconnect.Series) {
			p.Decide(s, &slow)
			require.False(t, s.Admit(slow).Retry)
		}, []string{"paced.Decide", "paced.Admit"}},
		"the next failure is of normal pace": {run: func(p *reconnect.Policies, s *reconnect.Series) {
			p.Decide(s, &slow)
			p.Decide(s, &normal) // after a new policy was set, the failure is asked about again
			s.Admit(normal)
		}, want: []string{"paced.Decide", "policy.Decide", "policy.Admit"}},
	} {
		t.Run(name, func(t *testing.T) {
			var calls []string
			p := reconnect.Policies{Policy: &recorder{"policy", &calls, c.policy}, Paced: &recorder{"paced", &calls, c.paced}}
			s := p.Begin("")
			c.run(&p, s)
			s.End()
			require.Equal(t, append(c.want, "policy.End", "paced.End"), calls)
		})
	}
}

// One of them may have no memory, or there is no paced one.
func TestPoliciesWithoutMemory(t *testing.T) {
	curve := retrypolicy.Fixed{Delay: time.Second}
	for _, kind := range []transport.Kind{transport.Network, transport.Throttled} {
		for _, memory := range []string{"policy", "paced", "none", "alone"} {
			t.Run(fmt.Sprint(memory, " ", kind), func(t *testing.T) {
				var calls []string
				p := reconnect.Policies{Policy: curve, Paced: curve}
				switch memory {
				case "policy":
					p.Policy = &recorder{"policy", &calls, nil}
				case "paced":
					p.Paced = &recorder{"paced", &calls, nil}
				case "alone":
					p.Paced = nil
				}
				a := retrypolicy.Attempt{Retry: 1, Kind: kind, Err: errors.New("x")}
				s := p.Begin("")
				d := p.Decide(s, &a)
				require.True(t, d.Retry)
				if has := memory == "policy" || memory == "paced"; has != (s != nil) || has != p.Stateful() {
					t.Fatalf("a series: %v, Stateful: %v", s != nil, p.Stateful())
				}
				if s == nil {
					if want := time.Second; memory == "alone" && kind == transport.Throttled {
						require.Equal(t, max(want, reconnect.MinDelay(a)), d.Delay)
					} else {
						require.Equal(t, want, d.Delay)
					}
					require.Zero(t, testing.AllocsPerRun(10, func() { p.Begin("") }))
					return
				}
				require.True(t, s.Admit(a).Retry)
				s.Report(retrypolicy.VerdictAgain, a)
				s.End()
				asked := (memory == "paced") == (kind == transport.Throttled)
				want := []string{memory + ".Admit", memory + ".Report again", memory + ".End"}
				switch {
				case asked:
					want = append([]string{memory + ".Decide"}, want...)
				case memory == "paced":
					want = want[2:]
				}
				require.Equal(t, want, calls)
			})
		}
	}
}

package main

import (
	"slices"
	"testing"
	"time"
)

func retryCases(t testing.TB) []RetryCase {
	t.Helper()
	cases, err := RetryCases()
	if err != nil {
		t.Fatal(err)
	}
	return cases
}

// BenchmarkRetry measures a decision, or a run, of each library; compare within a task. Command
// retries prints the same as tables.
func BenchmarkRetry(b *testing.B) {
	for _, c := range retryCases(b) {
		b.Run(string(c.Task)+"/"+c.Library+"/"+c.Does, func(b *testing.B) {
			b.ReportAllocs()
			if err := c.Run(b.N); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// All cases use the same curve, with randomness.
func TestRetryCasesHaveOneCurve(t *testing.T) {
	const rounds = 2000
	for _, c := range retryCases(t) {
		if c.Curve == nil {
			continue
		}
		t.Run(string(c.Task)+"/"+c.Library+"/"+c.Does, func(t *testing.T) {
			var drawn [retries][]time.Duration
			for range rounds {
				delays, err := c.Curve()
				if err != nil || len(delays) != retries {
					t.Fatal(delays, err)
				}
				for i, d := range delays {
					drawn[i] = append(drawn[i], d)
				}
			}
			for i, draws := range drawn {
				plain := time.Duration(min(1<<i, curveMax)) * decided
				least, most := slices.Min(draws), slices.Max(draws)
				// The Azure formula grows by 3/4 of the others, and its first delay is not random.
				if least < 0 || most < plain*74/100 || most > plain*3/2+1 {
					t.Errorf("retry %d: %v to %v; the curve is at %v", i+1, least, most, plain)
				}
				if i > 0 && float64(least) > 0.9*float64(most) {
					t.Errorf("retry %d: %v to %v is hardly random", i+1, least, most)
				}
			}
		})
	}
}

// Hubline allocates nothing for a decision, nor for a run that succeeds at once, and one series for
// a retry that a quota pays for. With retries it allocates a timer, and no more than the others.
func TestRetryAllocations(t *testing.T) {
	const n = 24 // whole series
	least := map[RetryTask]float64{}
	for _, c := range retryCases(t) {
		var failure error
		allocs := testing.AllocsPerRun(20, func() { failure = c.Run(n) }) / n
		if failure != nil {
			t.Fatal(c.Task, c.Library, failure)
		}
		switch {
		case c.Library != hubline:
			if allocs < least[c.Task] {
				t.Errorf("%s: %s allocates %v times (%s), Hubline %v", c.Task, c.Library, allocs, c.Does, least[c.Task])
			}
		case c.Task == RetryTwice:
			least[c.Task] = allocs
		case c.Task == Charge && allocs == 1: // the series; a retry allocates nothing
			least[c.Task] = allocs
		case allocs != 0:
			t.Errorf("%s (%s): %v allocations", c.Task, c.Does, allocs)
		}
	}
}

package fleet_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/fleet"
	"github.com/hubline-iot/hubline/retrypolicy"
)

// late is the default policy with a random part of up to most before the second and each further
// retry, or of up to the time since the loss.
type late struct {
	most   time.Duration
	growth bool
}

func (l late) Decide(a retrypolicy.Attempt) retrypolicy.Decision {
	d := retrypolicy.ExponentialBackoffWithJitter{}.Decide(a)
	most := l.most
	if l.growth {
		most = a.Elapsed
	}
	if a.Retry > 1 {
		draw := a.Rand * 0x9E3779B97F4A7C15 // not the one of the formula
		d.Delay += time.Duration(float64(most) * float64(draw>>11) / (1 << 53))
	}
	return d
}

func lateBy(l late) fleet.Rules {
	return fleet.Rules{ReconnectSpread: -1, Policy: func() (retrypolicy.Policy, error) { return l, nil }}
}

// The page has the figures that this test prints: of single devices whose hub was away for 2 s, of
// 1,000 of them after the restart of 20 s, and of 10,000 after the outage of an hour.
func TestTheFiguresOfTheDefaultSpread(t *testing.T) {
	figures(t)
	text, err := os.ReadFile(filepath.Join("..", "docs", "fleets.md"))
	require.NoError(t, err)
	page := strings.ReplaceAll(string(text), "**", "")
	fine := &fleet.Options{Resolution: 100 * time.Millisecond}
	alone := fleet.Scenario{Devices: 10_000, Duration: 5 * time.Minute, Hub: wideOpen(),
		Faults: []fleet.Fault{{At: time.Minute, For: 2 * time.Second, Effect: fleet.EffectRefused}}}
	growing := lateBy(late{growth: true})
	for _, c := range []struct {
		name  string
		rules fleet.Rules
	}{
		{"none", fleet.Rules{ReconnectSpread: -1}},
		{"0.5 s, not before the first retry", lateBy(late{most: time.Second / 2})},
		{"1 s, not before the first retry", lateBy(late{most: time.Second})},
		{"2 s, not before the first retry", fleet.Rules{}},
		{"3 s, not before the first retry", lateBy(late{most: 3 * time.Second})},
		{"10 s, not before the first retry", lateBy(late{most: 10 * time.Second})},
		{"2 s", fleet.Rules{ReconnectSpread: 2 * time.Second}},
		{"60 s", fleet.Rules{ReconnectSpread: time.Minute}},
		{"up to the time since the loss, not before the first retry", growing},
	} {
		one, all := run(t, alone, c.rules, fine), run(t, fleet.HubRestart(1000), c.rules, fine)
		row := fmt.Sprintf("| %s | %.1f s | %.1f s | %.1f | %.2f /s | %.1f s | %.1f |", c.name, one.Back50.Seconds(),
			one.Back99.Seconds(), float64(one.Wasted)/10_000, one.Peak/10_000, all.Back99.Seconds(), float64(all.Wasted)/1000)
		t.Log(row)
		require.Contains(t, page, row)
	}
	hour := fleet.RegionalOutage(10_000)
	grown, standard := run(t, hour, growing, nil), run(t, hour, fleet.Rules{}, nil)
	claim := fmt.Sprintf("wastes %.0f instead of %.0f attempts each, but 99 %% are back after %.0f instead of %.0f "+
		"minutes", float64(grown.Wasted)/10_000, float64(standard.Wasted)/10_000, grown.Back99.Minutes(),
		standard.Back99.Minutes())
	t.Log(claim)
	require.Contains(t, page, claim)
}

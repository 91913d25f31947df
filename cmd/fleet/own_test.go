package main

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/fleet"
	"github.com/hubline-iot/hubline/retrypolicy"
)

// rowOf returns the cells after the name in the row of those rules.
func rowOf(t *testing.T, out, rules string) []string {
	t.Helper()
	for line := range strings.Lines(out) {
		if cells, ok := strings.CutPrefix(strings.TrimSpace(line), rules+" "); ok {
			return strings.Fields(cells)
		}
	}
	t.Fatalf("no row %q in\n%s", rules, out)
	return nil
}

// The flags make the same rules as those that the command has, so the rows are the same.
func TestOwnRulesAreARow(t *testing.T) {
	for _, c := range []struct {
		like string
		args []string
	}{
		{"default", []string{"-policy", "azure"}},
		{"no spread", []string{"-spread", "0"}},
		{"spread 1 min", []string{"-spread", "1m"}},
		{"recommended", []string{"-spread", "10s", "-policy", "azure:cmax=30s"}},
		{"fixed 10 s", []string{"-spread", "0", "-policy", "fixed:delay=10s,jitter=0"}},
	} {
		out := command(t, append([]string{"-devices", "500", "-rules", "breaker," + c.like}, c.args...)...)
		require.Equal(t, rowOf(t, out, c.like), rowOf(t, out, ownName), out)
		require.NotEqual(t, rowOf(t, out, "breaker"), rowOf(t, out, ownName), out)
	}
	out := command(t, "-devices", "50", "-rules", ownName, "-dials", "1")
	require.Equal(t, 1, strings.Count(out, ownName+" "), out)
}

func TestEachFlagReachesTheRules(t *testing.T) {
	s, err := parse(strings.Fields("-policy fixed:delay=3s -paced incremental -spread 2m -dial-timeout 3s "+
		"-ack-timeout 4s -stable-time 5s -outage-limit 6m -try-again-after 7m -renew-at 0.5 -max-messages 9 "+
		"-dials 10 -dial-gap 11ms"), io.Discard)
	require.NoError(t, err)
	policy, err := s.yours.Policy()
	require.NoError(t, err)
	require.Equal(t, retrypolicy.Fixed{Delay: 3 * time.Second, Jitter: 0.2}, policy)
	s.yours.Policy = nil
	require.Equal(t, &fleet.Rules{Name: ownName, ReconnectSpread: 2 * time.Minute, DialTimeout: 3 * time.Second,
		Paced:      retrypolicy.Incremental{Step: time.Second, Max: 30 * time.Second, Jitter: 0.2},
		AckTimeout: 4 * time.Second, StableTime: 5 * time.Second, OutageLimit: 6 * time.Minute,
		TryAgainAfter: 7 * time.Minute, RenewAt: 0.5, MaxMessages: 9, Dials: 10, DialGap: 11 * time.Millisecond}, s.yours)
	s, err = parse(nil, io.Discard)
	require.NoError(t, err)
	require.Nil(t, s.yours)
}

// Devices of an outage limit give up, those that try again do not.
func TestOwnRulesGiveUp(t *testing.T) {
	for _, c := range []struct {
		more   []string
		gaveUp int
	}{{nil, 100}, {[]string{"-try-again-after", "1m"}, 0}} {
		var families []family
		args := append([]string{"-devices", "100", "-scenario", "outage", "-rules", ownName, "-outage-limit", "10m",
			"-json", "-"}, c.more...)
		require.NoError(t, json.Unmarshal([]byte(command(t, args...)), &families))
		require.Equal(t, c.gaveUp, families[0].Results[0].Devices.GaveUp)
	}
}

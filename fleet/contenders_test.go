package fleet_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/fleet"
)

// Tokens of an hour that were issued together are renewed when each SDK renews them. The device
// client subtracts up to 5 % of the life at random. The others come together.
func TestEachSDKRenewsTokensAsItDoes(t *testing.T) {
	const devices = 1000
	s := fleet.SameTokens(devices)
	s.Hub = wideOpen()
	for name, at := range map[string]time.Duration{
		"Azure Java": time.Hour, "Azure C": 48 * time.Minute, "Azure Node": 45 * time.Minute,
		"Azure C# 1": 51 * time.Minute, "Azure C# 2": 51 * time.Minute,
	} {
		r := run(t, s, contender(t, name), nil)
		require.EqualValues(t, devices, sums(r.Series.Attempts)[at/time.Second+2], name)
		require.Zero(t, sums(r.Series.Attempts)[at/time.Second-1], name)
	}
	for _, name := range []string{"default", "botocore"} {
		r := run(t, s, contender(t, name), nil)
		require.Less(t, r.Peak, devices/20., name)
		require.Positive(t, sums(r.Series.Attempts)[49*60], name)
	}
}

// The limit of dials acts in gateways, where devices share it.
func TestTheDialLimitIsThatOfAGateway(t *testing.T) {
	limited := contender(t, "dial limit")
	shared := run(t, fleet.Gateways(2000), limited, nil)
	single := run(t, fleet.HubRestart(2000), limited, nil)
	require.LessOrEqual(t, shared.Peak, 20., "two gateways, ten a second each")
	require.Greater(t, single.Peak, 1000.)
	require.Equal(t, 2000, shared.Devices.Connected)
}

package fleet_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/fleet"
	"github.com/hubline-iot/hubline/transport"
)

// Each declared scenario survives JSON, with durations and names as text.
func TestScenariosInJSON(t *testing.T) {
	for _, scenario := range fleet.Scenarios() {
		want := scenario(100_000)
		want.Hub.ConnectKind, want.Hub.MessageKind = transport.Throttled, transport.Quota
		requireSameInJSON(t, want)
	}
	text, err := json.Marshal(fleet.RegionalOutage(100_000))
	require.NoError(t, err)
	for _, part := range []string{`"Duration":"2h30m0s"`, `"For":"1h0m0s"`, `"Effect":"silent"`, `"Tier":"S1"`,
		`"ConnectKind":""`} {
		require.Contains(t, string(text), part)
	}
}

func requireSameInJSON(t *testing.T, want fleet.Scenario) {
	t.Helper()
	text, err := json.Marshal(want)
	require.NoError(t, err)
	var got fleet.Scenario
	require.NoError(t, json.Unmarshal(text, &got), string(text))
	if len(want.Faults) == 0 { // nil is an empty list
		require.Empty(t, got.Faults)
		got.Faults = want.Faults
	}
	require.Equal(t, want, got)
}

func TestAScenarioByHand(t *testing.T) {
	s := fleet.Scenario{Name: "kept", Gateway: 7}
	require.NoError(t, json.Unmarshal([]byte(`{"Devices":5,"Gateway":null,"Duration":"90m","PowerOn":-1,
		"Hub":{"Tier":"s2","ConnectKind":"Throttled"},"Faults":[{"At":"5m","For":60000000000,"Effect":"Silent"}]}`), &s))
	require.Equal(t, fleet.Scenario{Name: "kept", Gateway: 7, Devices: 5, Duration: 90 * time.Minute, PowerOn: -1,
		Hub:    fleet.Hub{Tier: fleet.TierS2, ConnectKind: transport.Throttled},
		Faults: []fleet.Fault{{At: 5 * time.Minute, For: time.Minute, Effect: fleet.EffectSilent}}}, s)
}

func TestBadJSONNamesTheField(t *testing.T) {
	for _, c := range [][2]string{
		{`{"Faults":[{},{"Effect":"loud"}]}`,
			`field Faults[1].Effect: "loud" is no effect; give refused, silent, unavailable`},
		{`{"Faults":[{"Effect":1}]}`, "field Faults[0].Effect: want a string, got a number"},
		{`{"Faults":{}}`, "field Faults: want an array, got an object"},
		{`{"Faults":[` + strings.Repeat("{},", 64) + `{}]}`, "field Faults: 65 values; give at most 64"},
		{`{"Hub":{"Tier":"S9"}}`, `field Hub.Tier: "S9" is no tier; give S1, S2, S3`},
		{`{"Hub":{"MessageKind":"not found"}}`, `"not found" is no Kind that is retried; give network, timeout`},
		{`{"Hub":{"Wire":{"Silent":1.5}}}`, "field Hub.Wire.Silent: want a whole number in its range, got a number"},
		{`{"Duration":"1 h"}`, `field Duration: "1 h" is no duration; give one such as "1h30m"`},
		{`{"Duration":1e99}`, "field Duration: 1e99 is no duration"},
		{`{"Telemetry":{"Day":[1]}}`, "field Telemetry.Day: 1 values; give 24"},
		{`{"Gatway":3}`, "field Gatway: there is no such field; give one of Name, Devices, Gateway, "},
		{`[]`, "want an object, got an array"},
	} {
		text, want := c[0], c[1]
		err := json.Unmarshal([]byte(text), new(fleet.Scenario))
		require.ErrorContains(t, err, want, text)
		require.ErrorIs(t, err, transport.Invalid, text)
	}
	_, err := json.Marshal(fleet.Scenario{Hub: fleet.Hub{ConnectKind: transport.Unauthorized}})
	require.ErrorContains(t, err, "there is no text for Kind 7")
	_, err = fleet.Effect(9).MarshalText()
	require.ErrorIs(t, err, transport.Invalid)
}

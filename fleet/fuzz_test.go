package fleet_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/fleet"
	"github.com/hubline-iot/hubline/transport"
)

// FuzzScenario runs any scenario: it is refused, or it ends and conserves everything.
func FuzzScenario(f *testing.F) {
	for _, scenario := range fleet.Scenarios() {
		seed, err := json.Marshal(scenario(100))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(seed, uint64(1))
	}
	f.Add([]byte(`{"Devices":3,"Hub":{"Connects":0.001,"Messages":0.001},"Telemetry":{"Every":"1s"}}`), uint64(2))
	f.Add([]byte(`{"Devices":3,"Faults":[{"For":1,"Every":1000000000,"Cell":1,"Effect":"silent"}]}`), uint64(3))
	f.Fuzz(func(t *testing.T, text []byte, seed uint64) {
		var s fleet.Scenario
		if json.Unmarshal(text, &s) != nil {
			return
		}
		requireSameInJSON(t, s)
		s.Devices %= 200
		s.Duration %= 3 * time.Hour
		rules := fleet.Contenders()
		pick := rules[seed%uint64(len(rules))]
		pick.Dials = int(seed / 16 % 4)
		r, err := fleet.Run(context.Background(), s, pick, &fleet.Options{Seed: seed, MaxEvents: 5000})
		if err != nil {
			if transport.KindOf(err) != transport.Invalid {
				t.Fatalf("%v is not Invalid", err)
			}
			return
		}
		requireConserved(t, r)
	})
}

package fleet_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/hubline-iot/hubline/fleet"
)

// BenchmarkOutage is the outage of an hour on one worker, with attempts that are refused at once.
func BenchmarkOutage(b *testing.B) {
	for _, devices := range []int{1000, 10_000, 100_000} {
		for _, scenario := range []func(int) fleet.Scenario{fleet.RegionalOutage, fleet.RefusedOutage} {
			s := scenario(devices)
			b.Run(fmt.Sprintf("%s/%d", s.Name, devices), func(b *testing.B) {
				b.ReportAllocs()
				var events int64
				for b.Loop() {
					r, err := fleet.Run(context.Background(), s, fleet.Rules{}, &fleet.Options{Workers: 1})
					if err != nil {
						b.Fatal(err)
					}
					events += r.Events
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(events), "ns/event")
			})
		}
	}
}

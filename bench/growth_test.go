package bench

import (
	"testing"
	"time"
)

// The pictures of growth can be measured and drawn. What takes too long ends its curve.
func TestGrowthIsDrawn(t *testing.T) {
	pictures, err := Growth(limit(t), GrowthSettings{Rounds: 1, Turn: 2 * time.Millisecond, Devices: 10, Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	if len(pictures) != 4 {
		t.Errorf("%d pictures", len(pictures))
	}
	for _, p := range pictures {
		if _, err := DrawCharts(p.Rows); err != nil {
			t.Error(p.File, err)
		}
		for _, c := range p.Rows[0] {
			if len(c.Curves) < 2 || len(c.Curves[0].Points) == 0 {
				t.Errorf("%s has a chart without curves: %+v", p.File, c)
			}
		}
	}
}

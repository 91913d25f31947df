package main

import (
	"testing"
	"time"
)

// The pictures of growth can be measured and drawn. What takes too long ends its curve.
func TestGrowthIsDrawn(t *testing.T) {
	pictures, err := Growth(limit(t), GrowthSettings{Rounds: 1, Turn: 5 * time.Millisecond, Devices: 10, Log: t.Output()})
	if err != nil || len(pictures) != 4 {
		t.Fatal(len(pictures), err)
	}
	for _, p := range pictures {
		if _, err := DrawCharts(p.Rows); err != nil {
			t.Error(p.File, err)
		}
	}
}

func TestAChartMayHaveOneValueButNotNone(t *testing.T) {
	one := []Curve{{"much too slow", nil}, {"one value", []Point{{0.5, 0.5, 0.5}}}}
	for _, c := range []struct {
		curves []Curve
		drawn  bool
	}{{one, true}, {one[:1], false}} {
		_, err := DrawCharts([][]Chart{{{Title: "MQTT", Labels: []string{"10"}, Curves: c.curves}}})
		if (err == nil) != c.drawn {
			t.Error(len(c.curves), err)
		}
	}
}

package main

import (
	"bytes"
	"os"
	"testing"
)

func TestThePictureOfDelaysIsCurrent(t *testing.T) {
	committed, err := os.ReadFile("../docs/" + delayFile)
	if err != nil {
		t.Fatal(err)
	}
	drawn, err := DrawCharts(delayCharts())
	if err != nil || !bytes.Equal(committed, drawn) {
		t.Errorf("docs/%s is not what the policies do; run: go run . delays; %v", delayFile, err)
	}
}

// All delays are on the scale, and each band contains its line.
func TestDelaysFitTheScale(t *testing.T) {
	for _, row := range delayCharts() {
		for _, c := range row {
			for n, p := range c.Curves[0].Points {
				if p.Low > p.Mid || p.Mid > p.High || p.High > c.High || p.Low < c.Low {
					t.Errorf("%s, retry %d: %+v", c.Title, n+1, p)
				}
			}
		}
	}
}

package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"testing"
	"time"
)

func TestCommittedPictureIsCurrent(t *testing.T) {
	const path = "../../../docs/retry-delays.svg"
	committed, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	committed = bytes.ReplaceAll(committed, []byte("\r\n"), []byte("\n")) // a checkout may have changed them
	if !bytes.Equal(committed, draw(panels)) {
		t.Error("docs/retry-delays.svg is not what the policies do; run: go run ./internal/cmd/retryplot")
	}
}

func TestPictureIsXML(t *testing.T) {
	d := xml.NewDecoder(bytes.NewReader(draw(panels)))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// All delays are on the scale, and each band contains its line.
func TestDelaysFitTheScale(t *testing.T) {
	for _, one := range panels {
		low, mid, high := delays(one.policy, lowest), delays(one.policy, middle), delays(one.policy, highest)
		for i := range mid {
			if low[i] > mid[i] || mid[i] > high[i] || high[i] > longest || low[i] != 0 && low[i] < shortest {
				t.Errorf("%s, retry %d: %v, %v, %v", one.title, i+1, low[i], mid[i], high[i])
			}
		}
	}
}

func TestHeight(t *testing.T) {
	for _, test := range []struct {
		d    time.Duration
		want float64
	}{{0, plotHeight}, {shortest, plotHeight - foot}, {longest, 0},
		{time.Duration(math.Sqrt(float64(shortest) * float64(longest))), (plotHeight - foot) / 2}} {
		if got := height(test.d); math.Abs(got-test.want) > 1e-6 {
			t.Errorf("%v: %v, want %v", test.d, got, test.want)
		}
	}
}

func TestSpan(t *testing.T) {
	for _, test := range []struct {
		least, greatest time.Duration
		want            string
	}{
		{0, 0, "0"},
		{0, 1600 * time.Millisecond, "0–1.6 s"},
		{450 * time.Millisecond, 624999999, "450–625 ms"},
		{850 * time.Millisecond, 1225 * time.Millisecond, "850 ms–1.23 s"},
		{10 * time.Second, 9999999999, "10 s"},
		{999999999, 2 * time.Second, "1–2 s"},
	} {
		if got := span(test.least, test.greatest); got != test.want {
			t.Errorf("%v to %v: %q, want %q", test.least, test.greatest, got, test.want)
		}
	}
}

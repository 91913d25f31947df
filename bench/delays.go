package main

import (
	"flag"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/compat"
)

// delayFile is the picture of the delays, in the folder of the pages.
const delayFile = "retry-delays.svg"

// drawDelays draws the delays of the main retry policies, computed by the policies themselves.
func drawDelays(args []string) error {
	flags := flag.NewFlagSet("delays", flag.ExitOnError)
	folder := flags.String("folder", "../docs", "where the picture goes")
	_ = flags.Parse(args) // exits on an error
	svg, err := DrawCharts(delayCharts())
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(*folder, delayFile), svg, 0o644)
}

const (
	base = 100 * time.Millisecond
	most = 10 * time.Second
	// shortest is the lowest delay of the scale. Shorter ones are drawn there.
	shortest = 10 * time.Millisecond
	longest  = 200 * time.Second
	// drawnRetries is the number of delays drawn.
	drawnRetries = 10
)

// delayPanels are the panels of the picture, with formulas in docs/retries.md.
var delayPanels = []struct {
	title, settings string
	policy          retrypolicy.Policy
}{
	{"Azure, documented", "C = Cmin = 100 ms, Cmax = 10 s", retrypolicy.ExponentialBackoffWithJitter{}},
	{"Azure, throttled", "C = 5 s, Cmin = 10 s, Cmax = 60 s", retrypolicy.ExponentialBackoffWithJitter{
		C: 5 * time.Second, Cmin: 10 * time.Second, Cmax: 60 * time.Second, Jd: 0.5, Ju: 0.25}},
	{"Azure, Java SDK’s code", "Min = Delta = 100 ms, Max = 10 s", compat.AzureJava{}},
	{"Fixed", "Delay = 1 s, Jitter = 0.2", retrypolicy.Fixed{Delay: time.Second, Jitter: 0.2}},
	{"Exponential, no jitter", "Base = 100 ms, Max = 10 s", retrypolicy.Backoff{Base: base, Max: most}},
	{"Full jitter", "Base = 100 ms, Max = 10 s", retrypolicy.Backoff{Base: base, Max: most,
		Jitter: retrypolicy.JitterFull}},
	{"Equal jitter", "Base = 100 ms, Max = 10 s", retrypolicy.Backoff{Base: base, Max: most,
		Jitter: retrypolicy.JitterEqual}},
	{"Decorrelated jitter", "Base = 100 ms, Max = 10 s", retrypolicy.Backoff{Base: base, Max: most,
		Jitter: retrypolicy.JitterDecorrelated}},
}

// delayCharts returns the panels, four in a row.
func delayCharts() (rows [][]Chart) {
	for i, one := range delayPanels {
		chart := Chart{Title: one.title, X: "retry", Y: "seconds", Low: shortest.Seconds(), High: longest.Seconds(),
			Curves: []Curve{{Name: one.settings}}}
		low, mid, high := delaysOf(one.policy, 0), delaysOf(one.policy, 1<<63), delaysOf(one.policy, math.MaxUint64)
		for n := range mid {
			chart.Labels = append(chart.Labels, strconv.Itoa(n+1))
			chart.Curves[0].Points = append(chart.Curves[0].Points, Point{Low: low[n], Mid: mid[n], High: high[n]})
		}
		if i%4 == 0 {
			rows = append(rows, nil)
		}
		rows[i/4] = append(rows[i/4], chart)
	}
	return rows
}

// delaysOf returns the delays of a series in which all draws are the same, in seconds.
func delaysOf(p retrypolicy.Policy, draw uint64) []float64 {
	all := make([]float64, drawnRetries)
	series := retrypolicy.Inner(p, retrypolicy.Start{})
	defer series.End()
	for i := range all {
		all[i] = max(series.Decide(retrypolicy.Attempt{Retry: i + 1, Rand: draw}).Delay, shortest).Seconds()
	}
	return all
}

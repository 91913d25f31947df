package main

import (
	"bytes"
	"context"
	"image/color"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/hubline-iot/hubline/fleet"
)

// picture is a plot of a series over time, one curve for each of the rules.
type picture struct {
	name, title string
	log         bool
	series      func(s *fleet.Series) []int64
	rate        bool // per second
	real        bool // with the curve of the real fleet
}

var pictures = []picture{
	{"attempts", "attempts a second", true, func(s *fleet.Series) []int64 { return s.Attempts }, true, false},
	{"connected", "devices connected", false, func(s *fleet.Series) []int64 { return s.Connected }, false, false},
	{"queued", "messages waiting", false, func(s *fleet.Series) []int64 { return s.Queued }, false, false},
}

// pictures returns the plots of the family.
func (f *family) pictures() []picture {
	if f.real == nil {
		return pictures
	}
	return append(pictures[:len(pictures):len(pictures)],
		picture{"recorded", "attempts a second that reach the hub", true, answered, true, true})
}

// points is the number of points of a curve at most: each is the largest value of its time.
const points = 400

// colours are those of Okabe and Ito, which colour-blind readers can tell apart; dashes tell the
// rest.
var colours = []color.RGBA{
	{0, 114, 178, 255}, {230, 159, 0, 255}, {0, 158, 115, 255}, {204, 121, 167, 255}, {213, 94, 0, 255},
	{86, 180, 233, 255}, {0, 0, 0, 255}, {150, 140, 40, 255},
}

// curve returns the values from the given time on as points, in minutes after it.
func (p *picture) curve(r *fleet.Result, from time.Duration) plotter.XYs {
	values := p.series(&r.Series)
	first := min(int(from/r.Resolution), len(values))
	values = values[first:]
	group := (len(values) + points - 1) / points
	var xys plotter.XYs
	for i := 0; i < len(values); i += group {
		most := int64(0)
		for _, v := range values[i:min(i+group, len(values))] {
			most = max(most, v)
		}
		y := float64(most)
		if p.rate {
			y /= r.Resolution.Seconds()
		}
		if p.log {
			y = max(y, 1)
		}
		xys = append(xys, plotter.XY{X: float64(first+i) * r.Resolution.Minutes(), Y: y})
	}
	return xys
}

// draw returns the plot of a family as SVG.
func (p *picture) draw(f *family) ([]byte, error) {
	chart := plot.New()
	chart.Title.Text = f.title()
	chart.X.Label.Text = "minutes"
	chart.Y.Label.Text = p.title
	chart.Y.Min = 0
	chart.Legend.Top = true
	chart.Legend.XOffs = -vg.Points(4)
	chart.Add(plotter.NewGrid())
	for i, r := range f.Results {
		line, err := plotter.NewLine(p.curve(r, f.from()))
		if err != nil {
			return nil, err
		}
		line.Color = colours[i%len(colours)]
		line.Width = vg.Points(1.2)
		if i >= len(colours) {
			line.Dashes = []vg.Length{vg.Points(4), vg.Points(2)}
		}
		chart.Add(line)
		chart.Legend.Add(r.Rules, line)
	}
	if p.real && len(f.Results) > 0 {
		line, err := plotter.NewLine(f.real.curve(f.from(), f.Results[0].Duration))
		if err != nil {
			return nil, err
		}
		line.Width = vg.Points(2)
		chart.Add(line)
		chart.Legend.Add("real fleet", line)
	}
	if p.log {
		chart.Y.Min = 1
		chart.Y.Max = 10 * max(chart.Y.Max, 10) // room for the legend
		chart.Y.Scale, chart.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	}
	canvas := vgsvg.NewWith(vgsvg.UseWH(19*vg.Centimeter, 9*vg.Centimeter))
	chart.Draw(draw.New(canvas))
	var out bytes.Buffer
	_, err := canvas.WriteTo(&out)
	return out.Bytes(), err
}

// from returns the beginning of the plots: shortly before the last single fault.
func (f *family) from() time.Duration {
	var from time.Duration
	for _, fault := range f.Scenario.Faults {
		if fault.Every == 0 {
			from = max(from, fault.At-time.Minute)
		}
	}
	return from
}

func writePictures(folder string, families []family) error {
	for i := range families {
		for _, p := range families[i].pictures() {
			svg, err := p.draw(&families[i])
			if err != nil {
				return err
			}
			name := strings.ReplaceAll(families[i].Scenario.Name, string(filepath.Separator), "-") + "-" + p.name + ".svg"
			if err := os.WriteFile(filepath.Join(folder, name), svg, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// docsPlots are the plots of docs/fleets.md: few curves, chosen to be seen.
var docsPlots = []struct {
	file     string
	scenario func(int) fleet.Scenario
	devices  int
	picture  int
	rules    string
}{
	{"fleet-restart.svg", shortRestart, 10_000, 0, "default,fixed 10 s,full jitter,Azure C,recommended"},
	{"fleet-outage.svg", fleet.RefusedOutage, 10_000, 0, "default,full jitter,Azure C,Azure C# 2,recommended"},
	{"fleet-outage-1000.svg", fleet.RegionalOutage, 1000, 0, "default,full jitter,Azure C,Azure C# 2,recommended"},
	{"fleet-outage-1000000.svg", fleet.RegionalOutage, 1_000_000, 0, "default,recommended"},
}

// shortRestart is the restart, as long as something happens.
func shortRestart(devices int) fleet.Scenario {
	s := fleet.HubRestart(devices)
	s.Duration = 9 * time.Minute
	return s
}

// drawDocs draws the plots of fleets with up to so many devices.
func drawDocs(ctx context.Context, folder string, most int) error {
	for _, d := range docsPlots {
		if d.devices > most {
			continue
		}
		f := family{Scenario: d.scenario(d.devices)}
		rules, err := choose(allRules(d.devices), nameOf, d.rules, "rules")
		if err != nil {
			return err
		}
		for _, r := range rules {
			result, err := fleet.Run(ctx, f.Scenario, r, &fleet.Options{Seed: 1})
			if err != nil {
				return err
			}
			f.Results = append(f.Results, result)
		}
		svg, err := pictures[d.picture].draw(&f)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, d.file), svg, 0o644); err != nil {
			return err
		}
	}
	return nil
}

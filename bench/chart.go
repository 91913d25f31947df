package main

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Chart is a panel of a picture: curves over labels that are equally far apart. The scale is
// logarithmic, or linear from 0.
type Chart struct {
	Title, X, Y string
	Linear      bool
	Low, High   float64 // ends of a logarithmic scale; 0: those of the points
	Labels      []string
	Curves      []Curve // the last is the one to look at
}

// Curve has fewer points than the chart has labels if it ends early.
type Curve struct {
	Name   string
	Points []Point
}

// Point is a median with the least and the greatest value, all above 0 on a logarithmic scale.
type Point struct{ Low, Mid, High float64 }

// colours are those of Okabe and Ito, which colour-blind readers can tell apart. The shapes differ
// too. The last curve has the first.
var (
	colours = []color.RGBA{{0, 114, 178, 255}, {213, 94, 0, 255}, {0, 158, 115, 255}, {204, 121, 167, 255},
		{150, 140, 40, 255}}
	shapes = []draw.GlyphDrawer{draw.CircleGlyph{}, draw.SquareGlyph{}, draw.PyramidGlyph{}, draw.CrossGlyph{},
		draw.TriangleGlyph{}}
)

// Size of a panel.
const (
	panelWidth  = 9.4 * vg.Centimeter
	panelHeight = 7 * vg.Centimeter
)

// DrawCharts returns a picture in SVG, with rows of charts.
func DrawCharts(rows [][]Chart) ([]byte, error) {
	columns := 0
	all := make([][]*plot.Plot, len(rows))
	for i, row := range rows {
		columns = max(columns, len(row))
		for _, c := range row {
			p, err := c.plot()
			if err != nil {
				return nil, err
			}
			all[i] = append(all[i], p)
		}
	}
	canvas := vgsvg.NewWith(vgsvg.UseWH(panelWidth*vg.Length(columns), panelHeight*vg.Length(len(rows))))
	whole := draw.New(canvas)
	tiles := draw.Tiles{Rows: len(rows), Cols: columns, PadX: 3 * vg.Millimeter, PadY: 3 * vg.Millimeter,
		PadTop: vg.Millimeter, PadBottom: vg.Millimeter, PadLeft: vg.Millimeter, PadRight: 3 * vg.Millimeter}
	for i, row := range all {
		for j, p := range row {
			p.Draw(tiles.At(whole, j, i))
		}
	}
	var out bytes.Buffer
	_, err := canvas.WriteTo(&out)
	return out.Bytes(), err
}

func (c *Chart) plot() (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = c.Title, c.X, c.Y
	for _, size := range []*vg.Length{&p.X.Label.TextStyle.Font.Size, &p.Y.Label.TextStyle.Font.Size,
		&p.X.Tick.Label.Font.Size, &p.Y.Tick.Label.Font.Size, &p.Legend.TextStyle.Font.Size} {
		*size = vg.Points(8)
	}
	p.Title.TextStyle.Font.Size = vg.Points(10)
	p.Legend.Top, p.Legend.Left = true, true
	p.Add(plotter.NewGrid())
	for i := range c.Curves {
		if err := c.Curves[i].add(p, len(c.Curves)-1-i); err != nil {
			return nil, err
		}
	}
	p.NominalX(c.Labels...)
	p.X.Tick.Label.Font.Size = vg.Points(8) // which NominalX has set
	room := 1 + 0.1*float64(len(c.Curves))  // for the legend
	if c.Linear {
		p.Y.Min, p.Y.Max = 0, p.Y.Max*room
		return p, nil
	}
	switch {
	case c.High > 0:
		p.Y.Min, p.Y.Max = c.Low, c.High
	case p.Y.Min > p.Y.Max: // the library has seen no value
		return nil, fmt.Errorf("the chart %q has nothing to draw; measure for longer", c.Title)
	case p.Y.Min == p.Y.Max:
		p.Y.Min, p.Y.Max = p.Y.Min/2, 2*p.Y.Max
	}
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, decades{}
	p.Y.Max = p.Y.Max * math.Pow(p.Y.Max/p.Y.Min, room-1)
	return p, nil
}

// decades are the marks of a logarithmic scale, with short numbers.
type decades struct{}

func (decades) Ticks(least, most float64) []plot.Tick {
	all := plot.LogTicks{Prec: -1}.Ticks(least, most)
	for i := range all {
		if all[i].Label != "" {
			all[i].Label = ShortNumber(all[i].Value)
		}
	}
	return all
}

// ShortNumber formats 1024 as 1K, 10000 as 10k, 19810 as 19.8k and 1e6 as 1M.
func ShortNumber(v float64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1e6, "M"}, {1024, "K"}, {1e3, "k"}} {
		if n := v / unit.size; n >= 1 && n == math.Trunc(n) {
			return strconv.FormatFloat(n, 'f', -1, 64) + unit.name
		}
	}
	if v >= 1e4 {
		return strconv.FormatFloat(v/1e3, 'g', 3, 64) + "k"
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// add draws the curve with a band from the least to the greatest values.
func (c *Curve) add(p *plot.Plot, i int) error {
	look := colours[i%len(colours)]
	var middle, band plotter.XYs
	for x, v := range c.Points {
		middle = append(middle, plotter.XY{X: float64(x), Y: v.Mid})
		band = append(band, plotter.XY{X: float64(x), Y: v.High})
	}
	if len(middle) == 0 {
		return nil
	}
	for x, v := range slices.Backward(c.Points) {
		band = append(band, plotter.XY{X: float64(x), Y: v.Low})
	}
	area, err := plotter.NewPolygon(band)
	if err != nil {
		return err
	}
	area.Color, area.LineStyle.Width = color.NRGBA{look.R, look.G, look.B, 40}, 0
	line, points, err := plotter.NewLinePoints(middle)
	if err != nil {
		return err
	}
	line.Color, points.Color, points.Shape = look, look, shapes[i%len(shapes)]
	line.Width = vg.Points(1.2)
	p.Add(area, line, points)
	p.Legend.Add(c.Name, line, points)
	return nil
}

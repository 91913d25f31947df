package main

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"
	"time"
)

// Sizes in pixels.
const (
	width      = 960
	columns    = 4
	edge       = 20
	axis       = 44 // space for the axis labels
	gap        = 16
	plotWidth  = (width - 2*edge - axis - (columns-1)*gap) / columns
	plotHeight = 188
	header     = 62 // space for the title
	heading    = 42 // space for a panel's title
	footing    = 34 // space for the numbers of the retries
	panelSize  = heading + plotHeight + footing
	rowHeight  = 20 // of the legend
	foot       = 16 // from the lower edge of a plot, which is 0, to the shortest delay on the scale
	inset      = 12 // from the sides of a plot to the first and last retry
)

// The scale.
const (
	shortest = 10 * time.Millisecond
	longest  = 200 * time.Second
)

// labelled are the retries with labelled delays: the label of the first is below its band, where
// the curve does not go, the others are above.
var labelled = []struct {
	retry  int
	anchor string
	dx     float64
}{{1, "start", -6}, {5, "end", 0}, {retries, "end", 6}}

const style = `text{font-family:system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif;fill:#1f2328}
.title{font-size:17px;font-weight:600}
.name{font-size:13px;font-weight:600}
.small{font-size:11px;fill:#57606a}
.label{font-size:11px;font-weight:600;paint-order:stroke;stroke:#fff;stroke-width:3px;stroke-linejoin:round}
.code{font-size:11px;font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}
.formula{font-size:12px}
.key{font-size:12px;font-weight:600}
`

// draw returns the picture as SVG.
func draw(panels []panel) []byte {
	rows := (len(panels) + columns - 1) / columns
	legend := header + rows*panelSize
	height := legend + 14 + (len(panels)+1)*rowHeight + edge
	var b bytes.Buffer
	p := func(format string, values ...any) { fmt.Fprintf(&b, format+"\n", values...) }
	p(
		`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" `+
			`aria-labelledby="t d">`, width, height, width, height)
	p(`<title id="t">Delay before each retry, by policy</title>`)
	p(`<desc id="d">%s</desc>`, html.EscapeString(describe(panels)))
	p("<style>%s</style>", style)
	p(`<rect x="0.5" y="0.5" width="%d" height="%d" rx="8" fill="#fff" stroke="#d0d7de"/>`, width-1, height-1)
	p(`<text class="title" x="%d" y="32">Delay before each retry</text>`, edge)
	p(
		`<text class="small" x="%d" y="50">Logarithmic scale. Band: from the least to the greatest draw. Line: the `+
			`middle draw each time. Numbers: the band at retries 1, 5 and %d.</text>`, edge, retries)
	for i, one := range panels {
		left := float64(edge + axis + i%columns*(plotWidth+gap))
		top := float64(header + i/columns*panelSize + heading)
		one.draw(p, left, top, i%columns == 0)
	}
	for i, one := range panels {
		y := legend + 14 + i*rowHeight
		p(`<rect x="%d" y="%d" width="14" height="10" rx="2" fill="%s"/>`, edge, y, one.colour)
		p(`<text class="key" x="%d" y="%d">%s</text>`, edge+22, y+9, html.EscapeString(one.title))
		p(`<text class="code" x="%d" y="%d">%s</text>`, edge+184, y+9, html.EscapeString(one.name))
		p(`<text class="formula" x="%d" y="%d">%s</text>`, edge+412, y+9, html.EscapeString(one.formula))
	}
	p(
		`<text class="small" x="%d" y="%d">n: the number of the retry. U: a draw from 0 to 1. rand(a, b): a draw from a `+
			`to b.</text>`, edge+22, legend+14+len(panels)*rowHeight+13)
	p("</svg>")
	return b.Bytes()
}

// draw draws the panel's plot at left and top.
func (one panel) draw(p func(string, ...any), left, top float64, labels bool) {
	low, mid, high := delays(one.policy, lowest), delays(one.policy, middle), delays(one.policy, highest)
	x := func(retry int) float64 { return left + inset + float64(retry-1)*(plotWidth-2*inset)/(retries-1) }
	y := func(d time.Duration) float64 { return top + height(d) }

	p(`<text class="name" x="%.1f" y="%.1f">%s</text>`, left, top-24, html.EscapeString(one.title))
	p(`<text class="small" x="%.1f" y="%.1f">%s</text>`, left, top-9, html.EscapeString(one.settings))
	p(`<rect x="%.1f" y="%.1f" width="%d" height="%d" fill="#f6f8fa"/>`, left, top, plotWidth, plotHeight)
	for _, d := range []time.Duration{0, 10 * time.Millisecond, 100 * time.Millisecond, time.Second, 10 * time.Second,
		100 * time.Second} {
		p(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#d0d7de"/>`, left, y(d), left+plotWidth, y(d))
		if labels {
			p(`<text class="small" x="%.1f" y="%.1f" text-anchor="end">%s</text>`, left-6, y(d)+3, text(d))
		}
	}
	if labels {
		p(`<text class="small" x="%.1f" y="%.1f" text-anchor="end">retry</text>`, left-6, top+plotHeight+18)
	}
	for n := 1; n <= retries; n++ {
		p(`<text class="small" x="%.1f" y="%.1f" text-anchor="middle">%d</text>`, x(n), top+plotHeight+18, n)
	}

	var band, line []string
	for i := range mid {
		band = append(band, point(x(i+1), y(high[i])))
		line = append(line, point(x(i+1), y(mid[i])))
	}
	for i := range low {
		n := retries - i
		band = append(band, point(x(n), y(low[n-1])))
	}
	p(`<polygon points="%s" fill="%s" fill-opacity="0.25" stroke="%s" stroke-opacity="0.5"/>`, strings.Join(band, " "),
		one.colour, one.colour)
	p(`<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`, strings.Join(line, " "), one.colour)
	for i, d := range mid {
		p(`<circle cx="%.1f" cy="%.1f" r="2.6" fill="%s"/>`, x(i+1), y(d), one.colour)
	}
	at := func(retry int) string { return span(low[retry-1], high[retry-1]) }
	for i, l := range labelled {
		if i+1 < len(labelled) && at(l.retry) == at(labelled[i+1].retry) {
			continue // once is enough
		}
		line, dx := y(high[l.retry-1])-8, l.dx
		switch first := l.retry == 1; {
		case first && low[0] > 0:
			line = y(low[0]) + 17
		case first && mid[0] > 0:
			line, dx = y(mid[0])+20, 8 // within the band
		}
		p(`<text class="label" x="%.1f" y="%.1f" text-anchor="%s">%s</text>`, x(l.retry)+dx, line, l.anchor, at(l.retry))
	}
}

// height returns the distance of d from the upper edge of a plot.
func height(d time.Duration) float64 {
	if d < shortest {
		return plotHeight
	}
	return (plotHeight - foot) * math.Log(float64(longest)/float64(d)) / math.Log(float64(longest)/float64(shortest))
}

func point(x, y float64) string { return fmt.Sprintf("%.1f,%.1f", x, y) }

// text formats d with three digits.
func text(d time.Duration) string {
	switch {
	case d == 0:
		return "0"
	case d < 999500*time.Microsecond:
		return digits(float64(d)/float64(time.Millisecond)) + " ms"
	}
	return digits(d.Seconds()) + " s"
}

func digits(v float64) string { return strconv.FormatFloat(v, 'g', 3, 64) }

// span formats the range from least to greatest, with one unit if both have the same.
func span(least, greatest time.Duration) string {
	from, to := text(least), text(greatest)
	if from == to {
		return to
	}
	number, unit, _ := strings.Cut(from, " ")
	if strings.HasSuffix(to, " "+unit) {
		from = number
	}
	return from + "–" + to
}

// describe describes the picture in words, for readers who cannot see it.
func describe(panels []panel) string {
	var parts []string
	for _, one := range panels {
		low, high := delays(one.policy, lowest), delays(one.policy, highest)
		var spans []string
		for i := range low {
			spans = append(spans, span(low[i], high[i]))
		}
		parts = append(parts, one.title+" ("+one.settings+"): "+strings.Join(spans, ", "))
	}
	return strings.Join(parts, ". ") + "."
}

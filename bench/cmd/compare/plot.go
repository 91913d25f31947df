package main

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Sizes in pixels.
const (
	width      = 960
	edge       = 20
	axis       = 30  // space for the labels of the vertical axis
	header     = 100 // space for the title
	heading    = 24  // space for a panel's title
	plotHeight = 168
	footing    = 36 // space for the windows
	inset      = 12 // from the sides of a plot to the first and last window
	spacing    = 13 // of the labels at the ends of the lines
)

// line is the look of a sender.
type line struct {
	sender int
	look
}

// look is a colour that colour-blind readers can distinguish (Okabe and Ito), with different marks.
type look struct {
	colour string
	dashes string
	mark   func(x, y float64) string
}

var (
	grey = look{"#57606a", "5 4", func(x, y float64) string {
		return fmt.Sprintf("M%.1f,%.1fl4,4l-4,4l-4,-4z", x, y-4)
	}}
	orange = look{"#d55e00", "none", func(x, y float64) string {
		return fmt.Sprintf("M%.1f,%.1fh6v6h-6z", x-3, y-3)
	}}
	blue = look{"#0072b2", "none", func(x, y float64) string {
		return fmt.Sprintf("M%.1f,%.1fa3.2,3.2 0 1 0 6.4,0a3.2,3.2 0 1 0 -6.4,0z", x-3.2, y)
	}}
)

const style = `text{font-family:system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif;fill:#1f2328}
.title{font-size:17px;font-weight:600}
.name{font-size:13px;font-weight:600}
.small{font-size:11px;fill:#57606a}
.label{font-size:11px;font-weight:600}
`

// draw returns the picture: a row of panels per way, a panel per peer.
func (r *results) draw() []byte {
	ways, peers := r.ways(), r.peers()
	height := header + len(ways)*(heading+plotHeight+footing) + edge/2
	var b bytes.Buffer
	p := func(format string, values ...any) { fmt.Fprintf(&b, format+"\n", values...) }
	p(
		`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" `+
			`aria-labelledby="t d">`, width, height, width, height)
	protocol, raw := r.suite.protocol.Name, r.suite.protocol.Senders[0].Name
	p(`<title id="t">%s throughput by window, in relation to %s</title>`, protocol, raw)
	p(`<desc id="d">%s</desc>`, html.EscapeString(r.describe()))
	p("<style>%s</style>", style)
	p(`<rect x="0.5" y="0.5" width="%d" height="%d" rx="8" fill="#fff" stroke="#d0d7de"/>`, width-1, height-1)
	p(`<text class="title" x="%d" y="32">%s throughput in relation to %s</text>`, edge, protocol, raw)
	p(
		`<text class="small" x="%d" y="50">Acknowledged messages per second, as a multiple of %s’s in the same round, `+
			`by messages in flight. Line: median of %d rounds. Band: least to most.</text>`, edge, raw, r.Rounds)
	p(`<text class="small" x="%d" y="66">%s</text>`, edge, r.suite.legend)
	p(`<text class="small" x="%d" y="80">Scales are logarithmic, and each peer’s own.</text>`, edge)

	panel := (width - 2*edge) / max(len(peers), 1)
	for row, w := range ways {
		for column, peer := range peers {
			all := r.where(func(c *comparison) bool { return c.Peer == peer && w == way{c.TLS, c.Size} })
			scale := r.scale(r.where(func(c *comparison) bool { return c.Peer == peer }))
			f := frame{
				left: float64(edge + column*panel + axis), top: float64(header + row*(heading+plotHeight+footing) + heading),
				width: float64(panel-axis) - r.names(), least: scale[0], most: scale[len(scale)-1],
			}
			f.draw(p, r.suite, peer+", "+w.String(), scale, all)
		}
	}
	p("</svg>")
	return b.Bytes()
}

// names returns the space for the labels at the ends of the lines: the longest name and a number.
func (r *results) names() float64 {
	longest := 0
	for _, s := range r.suite.protocol.Senders {
		longest = max(longest, len(s.Name+" 10.0"))
	}
	return 8 + 5.6*float64(longest)
}

// scale returns the powers of two that enclose all ratios, and 1.
func (r *results) scale(all []*comparison) (ticks []float64) {
	least, most := 1.0, 2.0
	for _, c := range all {
		for _, l := range r.suite.lines {
			v := c.ratio(l.sender, rate)
			least, most = min(least, v.least()), max(most, v.most())
		}
	}
	last := int(math.Ceil(math.Log2(most)))
	for i := int(math.Floor(math.Log2(least))); i <= last; i++ {
		ticks = append(ticks, math.Exp2(float64(i)))
	}
	return ticks
}

// frame is the position of a panel's plot.
type frame struct {
	left, top, width float64
	least, most      float64 // of the vertical axis
}

func (f *frame) y(ratio float64) float64 {
	return f.top + plotHeight*math.Log(f.most/ratio)/math.Log(f.most/f.least)
}

func (f *frame) draw(p func(string, ...any), s *suite, title string, ticks []float64, all []*comparison) {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b *comparison) int { return a.Window - b.Window })
	p(`<text class="name" x="%.1f" y="%.1f">%s</text>`, f.left, f.top-8, html.EscapeString(title))
	p(`<rect x="%.1f" y="%.1f" width="%.1f" height="%d" fill="#f6f8fa"/>`, f.left, f.top, f.width, plotHeight)
	for _, t := range ticks {
		colour := "#d0d7de"
		if t == 1 {
			colour = "#1f2328"
		}
		p(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s"/>`, f.left, f.y(t), f.left+f.width, f.y(t), colour)
		p(`<text class="small" x="%.1f" y="%.1f" text-anchor="end">%s</text>`, f.left-5, f.y(t)+4, tick(t))
	}
	if len(all) == 0 {
		return
	}
	x := func(i int) float64 {
		first, last := math.Log(float64(all[0].Window)), math.Log(float64(all[len(all)-1].Window))
		if first == last {
			return f.left + f.width/2
		}
		return f.left + inset + (f.width-2*inset)*(math.Log(float64(all[i].Window))-first)/(last-first)
	}
	for i, c := range all {
		p(`<text class="small" x="%.1f" y="%.1f" text-anchor="middle">%s</text>`, x(i), f.top+plotHeight+16,
			thousands(float64(c.Window)))
	}
	labels := []label{{s.protocol.Senders[0].Name + " 1", "#1f2328", f.y(1)}}
	for _, l := range s.lines {
		var band, middle, marks []string
		for i, c := range all {
			v := c.ratio(l.sender, rate)
			band = append(band, point(x(i), f.y(v.most())))
			middle = append(middle, point(x(i), f.y(v.median())))
			marks = append(marks, l.mark(x(i), f.y(v.median())))
		}
		for i := range slices.Backward(all) {
			band = append(band, point(x(i), f.y(all[i].ratio(l.sender, rate).least())))
		}
		p(`<polygon points="%s" fill="%s" fill-opacity="0.18"/>`, strings.Join(band, " "), l.colour)
		p(`<polyline points="%s" fill="none" stroke="%s" stroke-width="2" stroke-dasharray="%s"/>`, strings.Join(middle, " "),
			l.colour, l.dashes)
		p(`<path d="%s" fill="%s"/>`, strings.Join(marks, ""), l.colour)
		last := all[len(all)-1].ratio(l.sender, rate).median()
		labels = append(labels, label{s.protocol.Senders[l.sender].Name + " " + multiple(last), l.colour, f.y(last)})
	}
	spread(labels, f.top+plotHeight+6)
	for _, l := range labels {
		p(`<text class="label" x="%.1f" y="%.1f" style="fill:%s">%s</text>`, f.left+f.width+6, l.y+4, l.colour,
			html.EscapeString(l.text))
	}
}

// label is the text at the end of a line.
type label struct {
	text, colour string
	y            float64
}

// spread sorts labels and separates them, with none below lowest.
func spread(labels []label, lowest float64) {
	slices.SortStableFunc(labels, func(a, b label) int {
		switch {
		case a.y < b.y:
			return -1
		case a.y > b.y:
			return 1
		}
		return 0
	})
	// Labels that are too close move apart from the middle of their group. Repeat, because this may
	// bring the group close to another one.
	for range len(labels) {
		for i := 1; i < len(labels); i++ {
			if lack := spacing - (labels[i].y - labels[i-1].y); lack > 0 {
				labels[i-1].y -= lack / 2
				labels[i].y += lack / 2
			}
		}
	}
	for i := len(labels) - 1; i >= 0; i-- {
		labels[i].y = min(labels[i].y, lowest)
		lowest = labels[i].y - spacing
	}
}

func point(x, y float64) string { return fmt.Sprintf("%.1f,%.1f", x, y) }

// tick formats a power of two: ½, 1, 2.
func tick(v float64) string {
	if v < 1 {
		return "1/" + strconv.FormatFloat(1/v, 'f', -1, 64)
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}

// multiple formats v with about three digits.
func multiple(v float64) string {
	if v < 10 {
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'f', 1, 64)
}

// describe describes the picture in words, for readers who cannot see it.
func (r *results) describe() string {
	var parts []string
	for _, c := range r.All {
		if c.Size == cpuSize {
			continue
		}
		text := fmt.Sprintf("%s, %s, window %d:", c.Peer, way{c.TLS, c.Size}, c.Window)
		for _, l := range r.suite.lines {
			text += " " + r.suite.protocol.Senders[l.sender].Name + " " + multiple(c.ratio(l.sender, rate).median()) + ","
		}
		parts = append(parts, strings.TrimSuffix(text, ","))
	}
	return strings.Join(parts, ". ") + "."
}

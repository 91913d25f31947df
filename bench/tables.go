package main

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// series are the values of one sender, one per round.
type series []float64

func (v series) least() float64  { return slices.Min(v) }
func (v series) median() float64 { return quantile(v, 0.5) }
func (v series) most() float64   { return slices.Max(v) }

func rate(f Figures) float64      { return f.Rate }
func cpu(f Figures) float64       { return f.CPU }
func allocated(f Figures) float64 { return f.Allocs }
func octets(f Figures) float64    { return f.Bytes }

// of returns one figure of a sender.
func (c *comparison) of(sender int, figure func(Figures) float64) (v series) {
	for _, f := range c.Senders[sender] {
		v = append(v, figure(f))
	}
	return v
}

// ratio divides a figure of a sender by the raw library's in the same round.
func (c *comparison) ratio(sender int, figure func(Figures) float64) (v series) {
	for round, f := range c.Senders[sender] {
		v = append(v, figure(f)/figure(c.Senders[0][round]))
	}
	return v
}

// goal is a goal for Hubline. The worst of all its settings counts.
type goal struct {
	about  string
	peers  []string // none: all
	window int      // and larger ones
	value  func(c *comparison) float64
	limit  float64
	most   bool // limit is an upper bound, not a lower one
}

// reached formats the worst value of some settings, in bold if it misses the goal.
func (g *goal) reached(all []*comparison) string {
	worst, n := 0.0, 0
	for _, c := range all {
		if c.Window < g.window || len(g.peers) > 0 && !slices.Contains(g.peers, c.Peer) {
			continue
		}
		v := g.value(c)
		if n++; n == 1 || g.most == (v > worst) {
			worst = v
		}
	}
	if n == 0 {
		return "–"
	}
	text := strconv.FormatFloat(worst, 'f', 2, 64)
	shown, _ := strconv.ParseFloat(text, 64)
	if g.most && shown > g.limit || !g.most && shown < g.limit {
		return "**" + text + "**"
	}
	return text
}

func (g *goal) asked() string {
	limit := strconv.FormatFloat(g.limit, 'f', -1, 64)
	switch {
	case g.limit == 0:
		return limit
	case g.most:
		return "at most " + limit
	}
	return "at least " + limit
}

// way is one kind of traffic, with a column of goals and a row of the picture.
type way struct {
	TLS  bool
	Size int
}

func (w way) String() string {
	text := octetsText(w.Size)
	if w.TLS {
		text += ", TLS"
	}
	return text
}

func octetsText(n int) string {
	if n >= 1024 && n%1024 == 0 {
		return strconv.Itoa(n/1024) + " KiB"
	}
	return strconv.Itoa(n) + " B"
}

// ways returns the ways that have more than the setting for the CPU time.
func (r *results) ways() (all []way) {
	for _, c := range r.All {
		if w := (way{c.TLS, c.Size}); c.Size != cpuSize && !slices.Contains(all, w) {
			all = append(all, w)
		}
	}
	return all
}

func (r *results) peers() (all []string) {
	for _, c := range r.All {
		if !slices.Contains(all, c.Peer) {
			all = append(all, c.Peer)
		}
	}
	return all
}

func (r *results) where(ok func(*comparison) bool) (all []*comparison) {
	for _, c := range r.All {
		if ok(c) {
			all = append(all, c)
		}
	}
	return all
}

// text formats all results as Markdown.
func (r *results) text() string {
	var b strings.Builder
	p := func(format string, values ...any) { fmt.Fprintf(&b, format+"\n", values...) }
	p("%s. %d rounds, in each of which each sender sends for about %v in turn.", r.Machine, r.Rounds, r.Length)
	p("%s", r.suite.legend)
	for _, peer := range r.Missing {
		p("\n**Left out, because not installed: %s.**", peer)
	}
	r.goals(p)
	for _, peer := range r.peers() {
		for _, secure := range []bool{false, true} {
			all := r.where(func(c *comparison) bool { return c.Peer == peer && c.TLS == secure })
			if len(all) == 0 {
				continue
			}
			p("\n<details><summary>%s</summary>\n", title(peer, secure))
			p("| body | window | sender | msg/s (median) | least to most | times %s, by round | allocations/msg | B/msg | "+
				"CPU/msg |\n|--|--|--|--|--|--|--|--|--|", r.suite.protocol.Senders[0].Name)
			for _, c := range all {
				for i, s := range r.suite.protocol.Senders {
					c.row(p, i, s.Name)
				}
			}
			p("\n</details>")
		}
	}
	return b.String()
}

func title(peer string, secure bool) string {
	if secure {
		return peer + ", TLS"
	}
	return peer + ", without TLS"
}

// goals prints the first tables.
func (r *results) goals(p func(string, ...any)) {
	ways := r.ways()
	head, line := "| goal: the worst case counts | asked |", "|--|--|"
	for _, w := range ways {
		head += " " + w.String() + " |"
		line += "--|"
	}
	p("\n%s\n%s", head, line)
	for _, g := range r.suite.goals {
		cells := ""
		for _, w := range ways {
			cells += " " + g.reached(r.where(func(c *comparison) bool { return w == way{c.TLS, c.Size} })) + " |"
		}
		p("| %s | %s |%s", g.about, g.asked(), cells)
	}
	if g := r.suite.cpu; g != nil {
		head, line, cells := "| goal | asked |", "|--|--|", ""
		for _, peer := range r.peers() {
			all := r.where(func(c *comparison) bool {
				return c.Peer == peer && c.TLS && c.Size == cpuSize && c.Window == cpuWindow
			})
			head, line, cells = head+" "+peer+" |", line+"--|", cells+" "+g.reached(all)+" |"
		}
		p("\n%s\n%s\n| %s | %s |%s", head, line, g.about, g.asked(), cells)
	}
	p("\nBold: missed.")
}

func (c *comparison) row(p func(string, ...any), i int, name string) {
	rates, ratio := c.of(i, rate), "1"
	if i > 0 {
		v := c.ratio(i, rate)
		ratio = fmt.Sprintf("%.2f (%.2f to %.2f)", v.median(), v.least(), v.most())
	}
	p("| %s | %s | %s | %s | %s to %s | %s | %.2f | %.0f | %.2f µs |", octetsText(c.Size), thousands(float64(c.Window)),
		name, thousands(rates.median()),
		thousands(rates.least()), thousands(rates.most()), ratio, c.of(i, allocated).median(), c.of(i, octets).median(),
		c.of(i, cpu).median()/1000)
}

// thousands formats v without decimals, in groups of three digits.
func thousands(v float64) string {
	s := strconv.FormatFloat(math.Round(v), 'f', 0, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// between replaces the text between two marks of a page.
func between(page []byte, begin, end, text string) ([]byte, error) {
	before, rest, ok := bytes.Cut(page, []byte(begin))
	_, after, ok2 := bytes.Cut(rest, []byte(end))
	if !ok || !ok2 {
		return nil, errors.New("the markers of the tables are missing: " + strings.TrimSpace(begin) +
			" and " + strings.TrimSpace(end))
	}
	return slices.Concat(before, []byte(begin), []byte(text), []byte(end), after), nil
}

// charts returns the panels of the picture: a row for each kind of traffic, a panel for each peer.
func (r *results) charts() (rows [][]Chart) {
	for _, w := range r.ways() {
		var row []Chart
		for _, peer := range r.peers() {
			all := r.where(func(c *comparison) bool { return c.Peer == peer && w == way{c.TLS, c.Size} })
			slices.SortFunc(all, func(a, b *comparison) int { return a.Window - b.Window })
			row = append(row, r.chart(peer+", "+w.String(), all))
		}
		rows = append(rows, row)
	}
	return rows
}

// chart shows the rates as multiples of the raw library's, by messages in flight.
func (r *results) chart(title string, all []*comparison) Chart {
	senders := r.suite.protocol.Senders
	chart := Chart{Title: title, X: "messages in flight", Y: "times " + senders[0].Name}
	for _, sender := range r.suite.curves {
		curve := Curve{Name: senders[sender].Name}
		for _, c := range all {
			v := c.ratio(sender, rate)
			curve.Points = append(curve.Points, Point{Low: v.least(), Mid: v.median(), High: v.most()})
		}
		chart.Curves = append(chart.Curves, curve)
	}
	for _, c := range all {
		chart.Labels = append(chart.Labels, thousands(float64(c.Window)))
	}
	return chart
}

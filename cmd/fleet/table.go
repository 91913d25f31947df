package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/fleet"
)

// column is a figure of a result.
type column struct {
	title string
	value func(r *fleet.Result) string
}

// columns are those of every table.
var columns = []column{
	{"rules", func(r *fleet.Result) string { return r.Rules }},
	{"50 % back", func(r *fleet.Result) string { return back(r, r.Back50) }},
	{"99 % back", func(r *fleet.Result) string { return back(r, r.Back99) }},
	{"all back", func(r *fleet.Result) string { return back(r, r.Back100) }},
	{"peak/s", func(r *fleet.Result) string { return count(r.Peak) }},
	{"peak/s after", func(r *fleet.Result) string { return after(r, count(r.PeakAfter)) }},
	{"steady/s", func(r *fleet.Result) string { return steady(r) }},
	{"wasted each", func(r *fleet.Result) string { return each(float64(r.Wasted), r) }},
	{"kB each", func(r *fleet.Result) string { return each(float64(r.Bytes)/1000, r) }},
	{"radio J each", func(r *fleet.Result) string { return count(r.Energy) }},
	{"most queued", func(r *fleet.Result) string { return count(float64(r.Messages.MostQueued)) }},
	{"lost", func(r *fleet.Result) string { return count(float64(r.Messages.Lost)) }},
	{"gave up", func(r *fleet.Result) string { return count(float64(r.Devices.GaveUp)) }},
}

// columns returns those of the family.
func (f *family) columns() []column {
	if f.real == nil {
		return columns
	}
	return append(columns[:len(columns):len(columns)], column{"distance", func(r *fleet.Result) string {
		return strconv.FormatFloat(100*f.real.distance(r), 'f', 1, 64) + " %"
	}})
}

// row returns the cells of a result.
func (f *family) row(r *fleet.Result) []string {
	var cells []string
	for _, c := range f.columns() {
		cells = append(cells, c.value(r))
	}
	return cells
}

// after prints a figure that counts from the recovery on, if there is one.
func after(r *fleet.Result, figure string) string {
	if r.Recovery == fleet.Never || r.Recovery >= r.Duration {
		return "-"
	}
	return figure
}

func back(r *fleet.Result, d time.Duration) string {
	if r.Recovery == fleet.Never {
		return "-"
	}
	return span(d)
}

func steady(r *fleet.Result) string {
	if r.Steady == fleet.NoSteady {
		return "-"
	}
	return strconv.FormatFloat(r.Steady, 'f', 1, 64)
}

// span prints a time to the second.
func span(d time.Duration) string {
	if d == fleet.Never {
		return "never"
	}
	return d.Round(time.Second).String()
}

// count prints a number with separators.
func count(n float64) string {
	digits := strconv.FormatFloat(n, 'f', 0, 64)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

func each(n float64, r *fleet.Result) string {
	return strconv.FormatFloat(n/float64(r.Devices.All), 'f', 1, 64)
}

// title says what a family is about.
func (f *family) title() string {
	hub := f.Scenario.WithDefaults().Hub
	return fmt.Sprintf("%s: %s devices, hub with %s connects/s and %s messages/s", f.Scenario.Name,
		count(float64(f.Scenario.Devices)), count(hub.Connects), count(hub.Messages))
}

// printLast prints the latest result as a row, and before the first one the title and the head.
func (f *family) printLast(out io.Writer) error {
	if len(f.Results) == 1 {
		fmt.Fprintln(out, f.title())
		var head []string
		for _, c := range f.columns() {
			head = append(head, c.title)
		}
		f.printCells(out, head)
	}
	return f.printCells(out, f.row(f.Results[len(f.Results)-1]))
}

// printCells prints a line of the table. Its widths do not depend on later rows.
func (f *family) printCells(out io.Writer, cells []string) error {
	var line strings.Builder
	for i, c := range f.columns() {
		width := max(len(c.title), len("1,000,000"))
		if i == 0 {
			for _, r := range f.rules {
				width = max(width, len(r.Name))
			}
		}
		fmt.Fprintf(&line, "  %*s", width, cells[i])
	}
	_, err := fmt.Fprintln(out, line.String())
	return err
}

package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/hubline-iot/hubline/internal/policies"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

func (t *tool) policyCommand() *cobra.Command {
	var retries int
	var plot bool
	var svg string
	c := &cobra.Command{
		Use: "policy [flags] NAME[:PARAMETER=VALUE,...]", Short: "print the delays of a retry policy",
		Long: "Prints the shortest, the middle and the longest delay before each retry. The policies are in hubline help " +
			"policies.",
		Args: arguments(1, 1), ValidArgs: policies.Names(),
		RunE: func(_ *cobra.Command, args []string) error {
			if retries < 1 || retries > 1000 {
				return usage("-retries: %d is out of range; give 1 to 1000", retries)
			}
			p, err := policies.Parse(args[0])
			if err != nil {
				return usage("%v", err)
			}
			delays := series(p, retries)
			if svg != "" {
				if err := os.WriteFile(svg, drawSVG(args[0], delays), 0o644); err != nil {
					return usage("-svg: %v", err)
				}
				return nil
			}
			return printDelays(t.out, delays, plot)
		},
	}
	c.Flags().IntVar(&retries, "retries", 10, "number of retries")
	c.Flags().BoolVar(&plot, "plot", false, "draw the delays")
	c.Flags().StringVar(&svg, "svg", "", "`FILE` for a drawing, instead of the table")
	return c
}

// delay is the wait before a retry, for the lowest, the middle and the highest random number.
type delay struct {
	low, middle, high time.Duration
	// stops: there is no such retry, for this reason.
	stops string
}

// draws are the random numbers of the three.
var draws = [3]uint64{0, 1 << 63, math.MaxUint64}

// series returns the delays of a policy whose attempts take no time.
func series(p retrypolicy.Policy, retries int) (all []delay) {
	var series [3]retrypolicy.Series
	for i := range series {
		series[i] = retrypolicy.Inner(p, retrypolicy.Start{})
		defer series[i].End()
	}
	var last [3]retrypolicy.Decision
	var elapsed [3]time.Duration
	for n := 1; n <= retries; n++ {
		var d [3]time.Duration
		for i, draw := range draws {
			last[i] = series[i].Decide(retrypolicy.Attempt{Retry: n, Rand: draw, Elapsed: elapsed[i],
				Scope: transport.ScopeConnection, Kind: transport.Network, Err: transport.Network,
				Safe: retrypolicy.SafeYes})
			d[i] = last[i].Delay
			elapsed[i] += d[i]
		}
		if !last[1].Retry {
			return append(all, delay{stops: last[1].Reason.String()})
		}
		all = append(all, delay{low: min(d[0], d[2]), middle: d[1], high: max(d[0], d[2])})
	}
	return all
}

// longest returns the longest delay, which is the width of a drawing.
func longest(delays []delay) (most time.Duration) {
	for _, d := range delays {
		most = max(most, d.high)
	}
	return most
}

const plotWidth = 40

func printDelays(w io.Writer, delays []delay, plot bool) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "retry\tshortest\tmiddle\tlongest\t")
	for i, d := range delays {
		if d.stops != "" {
			fmt.Fprintf(table, "%d\tnone: %s\t\t\t\n", i+1, d.stops)
			break
		}
		fmt.Fprintf(table, "%d\t%v\t%v\t%v\t", i+1, round(d.low), round(d.middle), round(d.high))
		if plot {
			fmt.Fprint(table, bars(d, longest(delays)))
		}
		fmt.Fprintln(table)
	}
	return table.Flush()
}

func round(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(10 * time.Millisecond)
}

// bars draws a delay: = up to the shortest, - up to the longest.
func bars(d delay, most time.Duration) string {
	if most <= 0 {
		return ""
	}
	column := func(d time.Duration) int { return int(math.Round(plotWidth * float64(d) / float64(most))) }
	return strings.Repeat("=", column(d.low)) + strings.Repeat("-", column(d.high)-column(d.low))
}

// Sizes of the drawing.
const (
	svgWidth, svgHeight, svgMargin = 640, 320, 48
)

// drawSVG draws the band between the shortest and the longest delays, and the middle ones as a
// line.
func drawSVG(title string, delays []delay) []byte {
	most := max(longest(delays), time.Millisecond)
	var high, low, middle []string
	n := 0
	for i, d := range delays {
		if d.stops != "" {
			break
		}
		n++
		x := svgMargin + (svgWidth-2*svgMargin)*float64(i)/float64(max(1, len(delays)-1))
		point := func(d time.Duration) string {
			return fmt.Sprintf("%.1f,%.1f", x, svgHeight-svgMargin-(svgHeight-2*svgMargin)*float64(d)/float64(most))
		}
		high, low = append(high, point(d.high)), append([]string{point(d.low)}, low...)
		middle = append(middle, point(d.middle))
	}
	band, line := strings.Join(append(high, low...), " "), strings.Join(middle, " ")
	return fmt.Appendf(nil, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif">
<rect width="100%%" height="100%%" fill="white"/>
<text x="%d" y="24">%s: delays before retries 1 to %d, up to %v</text>
<polygon points="%s" fill="#0072b2" fill-opacity="0.25"/>
<polyline points="%s" fill="none" stroke="#0072b2" stroke-width="2"/>
<path d="M %d %d V %d H %d" fill="none" stroke="black"/>
</svg>
`, svgWidth, svgHeight, svgMargin, title, n, round(most), band, line, svgMargin, svgMargin, svgHeight-svgMargin,
		svgWidth-svgMargin)
}

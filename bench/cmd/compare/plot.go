package main

import (
	"slices"

	"github.com/hubline-iot/hubline/bench"
)

// charts returns the panels of the picture: a row for each kind of traffic, a panel for each peer.
func (r *results) charts() (rows [][]bench.Chart) {
	for _, w := range r.ways() {
		var row []bench.Chart
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
func (r *results) chart(title string, all []*comparison) bench.Chart {
	senders := r.suite.protocol.Senders
	chart := bench.Chart{Title: title, X: "messages in flight", Y: "times " + senders[0].Name}
	for _, sender := range r.suite.curves {
		curve := bench.Curve{Name: senders[sender].Name}
		for _, c := range all {
			v := c.ratio(sender, rate)
			curve.Points = append(curve.Points, bench.Point{Low: v.least(), Mid: v.median(), High: v.most()})
		}
		chart.Curves = append(chart.Curves, curve)
	}
	for _, c := range all {
		chart.Labels = append(chart.Labels, thousands(float64(c.Window)))
	}
	return chart
}

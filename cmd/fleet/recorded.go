package main

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"

	"gonum.org/v1/plot/plotter"

	"github.com/hubline-iot/hubline/fleet"
)

// recorded is the curve of a fleet that exists: the attempts a second that its hub counted.
type recorded struct {
	rows []rate
	end  time.Duration // of the last interval
}

// rate holds from its time until that of the next row.
type rate struct {
	at    time.Duration // simulated
	value float64       // attempts a second
}

const (
	maxRecorded = 16 << 20 // bytes
	maxRate     = 1e9
	maxTime     = 7 * 24 * time.Hour // of a simulation, too
)

// readRecorded reads the curve from a file. Its first row is at the given simulated time.
func readRecorded(name string, first time.Duration) (*recorded, error) {
	if first < -maxTime || first > maxTime {
		return nil, fmt.Errorf("-recorded-at is %v; give -168h to 168h", first)
	}
	text, err := readFile(name, maxRecorded, "give one outage, or longer intervals")
	if err != nil {
		return nil, err
	}
	c, err := parseRecorded(text, first)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return c, nil
}

// parseRecorded reads rows of a time and a rate, with or without a header. Times are in RFC 3339 or
// in seconds.
func parseRecorded(text []byte, first time.Duration) (*recorded, error) {
	r := csv.NewReader(bytes.NewReader(text))
	r.FieldsPerRecord, r.ReuseRecord, r.TrimLeadingSpace = 2, true, true
	var c recorded
	var began float64
	for row := 1; ; row++ {
		fields, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%w; give rows of a time and the attempts a second", err)
		}
		at, noTime := seconds(fields[0])
		value, noRate := strconv.ParseFloat(fields[1], 64)
		switch {
		case row == 1 && noTime != nil && noRate != nil:
			continue // the header
		case noTime != nil:
			return nil, fmt.Errorf("row %d: %q is no time; give RFC 3339 or seconds", row, fields[0])
		case noRate != nil || !(value >= 0 && value <= maxRate):
			return nil, fmt.Errorf("row %d: %q is no rate; give attempts a second, 0 to 1e9", row, fields[1])
		}
		if len(c.rows) == 0 {
			began = at
		}
		since := at - began
		if !(since >= 0 && since <= maxTime.Seconds()) {
			return nil, fmt.Errorf("row %d: %s is not within 7 days after the first row; sort the rows", row, fields[0])
		}
		next := rate{first + time.Duration(since*float64(time.Second)), value}
		if n := len(c.rows); n > 0 && next.at <= c.rows[n-1].at {
			return nil, fmt.Errorf("row %d: %s is not after the row before; sort the rows", row, fields[0])
		}
		c.rows = append(c.rows, next)
	}
	n := len(c.rows)
	if n < 2 {
		return nil, errors.New("fewer than two rows; give a row for each interval")
	}
	c.end = 2*c.rows[n-1].at - c.rows[n-2].at // the last interval is as long as the one before
	return &c, nil
}

// seconds returns a time in seconds.
func seconds(text string) (float64, error) {
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return float64(t.Unix()) + float64(t.Nanosecond())/1e9, nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
		return 0, errors.New("neither RFC 3339 nor a number")
	}
	return f, nil
}

// covers reports whether a simulation of that length has a part of the curve.
func (c *recorded) covers(duration time.Duration) bool { return c.rows[0].at < duration && c.end > 0 }

// distance returns how much of both curves, of 0 to 1, has no counterpart in the same interval of
// the other one: 0 if they are equal, 1 if they have nothing in common. Only the time that both
// have counts.
func (c *recorded) distance(r *fleet.Result) float64 {
	until := cumulated(r)
	var apart, all float64
	for i, row := range c.rows {
		end := c.end
		if i+1 < len(c.rows) {
			end = c.rows[i+1].at
		}
		from, to := max(0, row.at), min(end, r.Duration)
		if from >= to {
			continue
		}
		real, simulated := row.value*(to-from).Seconds(), until(to)-until(from)
		apart += math.Abs(real - simulated)
		all += real + simulated
	}
	if all == 0 {
		return 0
	}
	return apart / all
}

// cumulated returns a function with the number of attempts that the hub answered until a time.
func cumulated(r *fleet.Result) func(time.Duration) float64 {
	sums := make([]float64, 1, len(r.Series.Attempts)+1)
	for i, n := range answered(&r.Series) {
		sums = append(sums, sums[i]+float64(n))
	}
	return func(at time.Duration) float64 {
		bin := float64(at) / float64(r.Resolution)
		i := min(int(bin), len(sums)-2)
		return sums[i] + min(bin-float64(i), 1)*(sums[i+1]-sums[i])
	}
}

// answered returns the attempts to connect that the hub answered. Its records have no others, and
// none of those to register.
func answered(s *fleet.Series) []int64 {
	sum := make([]int64, len(s.Accepted))
	for i := range sum {
		sum[i] = s.Accepted[i] + s.Rejected[i] - s.Registrations[i]
	}
	return sum
}

// curve returns the points from the given time on, in minutes, as steps.
func (c *recorded) curve(from, to time.Duration) plotter.XYs {
	var xys plotter.XYs
	for i, row := range c.rows {
		end := c.end
		if i+1 < len(c.rows) {
			end = c.rows[i+1].at
		}
		if row.at = max(row.at, from); row.at >= min(end, to) {
			continue
		}
		y := max(row.value, 1) // the scale is logarithmic
		xys = append(xys, plotter.XY{X: row.at.Minutes(), Y: y}, plotter.XY{X: min(end, to).Minutes(), Y: y})
	}
	return xys
}

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"
)

// GrowthSettings configure how long the growth of costs is measured.
type GrowthSettings struct {
	Rounds  int
	Turn    time.Duration // about how long a sender sends in a round
	Devices int           // in a process, at most
	Log     io.Writer
}

// Picture is a file with charts.
type Picture struct {
	File string
	Rows [][]Chart
}

// growing are the senders whose growth is compared: raw libraries, and Hubline as it is by default.
var (
	growingMQTT = []Contender{{"raw paho", Paho}, {"autopaho", Autopaho}, {"Hubline", OverMQTTWithIDs}}
	growingAMQP = []Contender{{"raw go-amqp", GoAMQP}, {"Hubline", OverAMQPWithIDs}}
	// growingQueues take a burst of messages before they are acknowledged.
	growingQueues = []Contender{{"raw paho, in flight", Paho}, {"autopaho, in memory", AutopahoQueue},
		{"autopaho, in files", AutopahoFiles}, {"Hubline, outbox in files", OverOutbox},
		{"Hubline, in memory", OverMQTTWithIDs}}
)

// Growth measures how throughput and costs grow, against the responder that only acknowledges.
func Growth(ctx context.Context, s GrowthSettings) ([]Picture, error) {
	sizes := []int{10, 100, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 255 << 10}
	properties := []int{0, 1, 3, 10, 30, 100}
	queues := []int{100, 1000, 10_000, 60_000}
	pictures := []Picture{{File: "growth-size.svg", Rows: make([][]Chart, 1)},
		{File: "growth-properties.svg", Rows: make([][]Chart, 1)}, {File: "growth-queue.svg", Rows: make([][]Chart, 1)}}
	for _, m := range []struct {
		picture    int
		over       *Protocol
		contenders []Contender
		x          string
		values     []int
		load       func(v int) Load
	}{
		{0, MQTT, growingMQTT, "bytes of a message", sizes, func(v int) Load { return Load{Window: 128, Size: v} }},
		{0, AMQP, growingAMQP, "bytes of a message", sizes, func(v int) Load { return Load{Window: 128, Size: v} }},
		{1, MQTT, growingMQTT, "properties of a message", properties, func(v int) Load {
			return Load{Window: 128, Size: 100, Properties: v}
		}},
		{1, AMQP, growingAMQP, "properties of a message", properties, func(v int) Load {
			return Load{Window: 128, Size: 100, Properties: v}
		}},
		{2, MQTT, growingQueues, "messages put at once", queues, func(v int) Load {
			return Load{Window: 128, Size: 100, Queue: v}
		}},
		{2, AMQP, growingAMQP, "messages put at once", queues, func(v int) Load {
			return Load{Window: 128, Size: 100, Queue: v}
		}},
	} {
		chart := Chart{Title: m.over.Name, X: m.x, Y: "messages a second"}
		for _, v := range m.values {
			chart.Labels = append(chart.Labels, ShortNumber(float64(v)))
		}
		var err error
		if chart.Curves, err = s.throughput(ctx, m.over, m.contenders, m.values, m.load); err != nil {
			return nil, err
		}
		rows := pictures[m.picture].Rows
		rows[0] = append(rows[0], chart)
	}
	devices, err := s.devices(ctx)
	return append(pictures, Picture{"growth-devices.svg", [][]Chart{devices}}), err
}

// slowest is how many times Turn a sender may take for one burst: its curve ends there.
const slowest = 20

// throughput returns messages a second. All senders have a turn at a value before the next one.
func (s *GrowthSettings) throughput(ctx context.Context, over *Protocol, contenders []Contender, values []int,
	load func(v int) Load) ([]Curve, error) {
	curves := make([]Curve, len(contenders))
	for i, c := range contenders {
		curves[i].Name = c.Name
	}
	peer, err := over.OpenPeer(ctx, "bare", false)
	if err != nil {
		return nil, err
	}
	for i, v := range values {
		rates := make([][]float64, len(contenders))
		for range s.Rounds {
			for j, c := range contenders {
				if len(curves[j].Points) < i {
					continue // was too slow
				}
				rate, err := s.turn(ctx, peer, c, load(v))
				if err != nil && !errors.Is(err, context.DeadlineExceeded) {
					return nil, errors.Join(fmt.Errorf("%s, %+v: %w", c.Name, load(v), err), peer.Close())
				}
				if err == nil {
					rates[j] = append(rates[j], rate)
				}
			}
		}
		for j, c := range contenders {
			if len(rates[j]) == s.Rounds {
				curves[j].Points = append(curves[j].Points, point(rates[j]))
				fmt.Fprintf(s.Log, "%s %s, %+v: %.0f messages a second\n", over.Name, c.Name, load(v),
					curves[j].Points[i].Mid)
			}
		}
	}
	return curves, peer.Close()
}

// turn returns the messages a second of one sender, which warms up first.
func (s *GrowthSettings) turn(ctx context.Context, peer *Peer, c Contender, l Load) (float64, error) {
	sender, err := c.Open(peer, l)
	if err != nil {
		return 0, err
	}
	defer sender.Close()
	ctx, cancel := context.WithTimeout(ctx, slowest*s.Turn)
	defer cancel()
	for n := max(l.Window, l.Queue); ; n *= 2 {
		began := time.Now()
		if err := sender.Send(ctx, n); err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx) // of which go-amqp makes another error
			}
			return 0, err
		}
		if took := time.Since(began); took > s.Turn/3 || l.Queue > 0 {
			return float64(n) / took.Seconds(), nil
		}
	}
}

func point(values []float64) Point {
	slices.Sort(values)
	return Point{values[0], values[len(values)/2], values[len(values)-1]}
}

// devices returns the costs of idle devices in a process, by their number.
func (s *GrowthSettings) devices(ctx context.Context) ([]Chart, error) {
	memory := Chart{Title: "memory", X: "devices", Y: "KB a device", Linear: true}
	goroutines := Chart{Title: "goroutines", X: "devices", Y: "goroutines a device", Linear: true}
	cpu := Chart{Title: "CPU", X: "devices", Y: "ms of CPU for a device's minute"}
	charts := []*Chart{&memory, &goroutines, &cpu}
	numbers := []int{10, 100, 1000, 10_000, 20_000}
	for i, n := range numbers {
		numbers[i] = min(n, s.Devices, openFiles()-200)
	}
	for _, n := range slices.Compact(numbers) {
		for _, c := range charts {
			c.Labels = append(c.Labels, ShortNumber(float64(n)))
		}
		for i, c := range []struct {
			name string
			IdleSettings
		}{
			{"raw paho", IdleSettings{Transport: "mqtt", Raw: true}},
			{"autopaho", IdleSettings{Transport: "autopaho", Raw: true}},
			{"raw go-amqp", IdleSettings{Transport: "amqp", Raw: true}},
			{"Hubline, AMQP", IdleSettings{Transport: "amqp"}},
			{"Hubline, MQTT", IdleSettings{Transport: "mqtt"}},
		} {
			c.Clients, c.Bare, c.Rest = n, true, 30*s.Turn
			r, err := Idle(ctx, c.IdleSettings)
			if err != nil {
				return nil, fmt.Errorf("%d idle clients, %s: %w", n, c.name, err)
			}
			used := max(float64(r.CPU)/float64(time.Millisecond), 0.01) // nothing has no place on the scale
			fmt.Fprintf(s.Log, "%d devices, %s: %.1f KB, %.1f goroutines, %.2f ms of CPU a minute\n", n, c.name, r.Anon,
				r.Goroutines, used)
			for j, v := range []float64{r.Anon, r.Goroutines, used} {
				if len(charts[j].Curves) <= i {
					charts[j].Curves = append(charts[j].Curves, Curve{Name: c.name})
				}
				curve := &charts[j].Curves[i]
				curve.Points = append(curve.Points, Point{v, v, v})
			}
			runtime.GC()
		}
	}
	return []Chart{memory, goroutines, cpu}, nil
}

// openFiles is how many files a process may have open.
func openFiles() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return int(limit.Cur)
}

// drawGrowth measures how throughput and costs grow, and draws the results.
func drawGrowth(args []string) error {
	flags := flag.NewFlagSet("plots", flag.ExitOnError)
	s := GrowthSettings{Log: os.Stdout}
	flags.IntVar(&s.Rounds, "rounds", 5, "rounds, in each of which each sender has a turn")
	flags.DurationVar(&s.Turn, "turn", 300*time.Millisecond, "about how long a turn takes; devices rest 30 times as long")
	flags.IntVar(&s.Devices, "devices", 20_000, "devices in a process, at most; the limit of open files counts, too")
	folder := flags.String("folder", "../docs", "where the pictures go")
	_ = flags.Parse(args) // exits on an error
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	pictures, err := Growth(ctx, s)
	if err != nil {
		return err
	}
	for _, p := range pictures {
		svg, err := DrawCharts(p.Rows)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(*folder, p.File), svg, 0o644); err != nil {
			return err
		}
	}
	return nil
}

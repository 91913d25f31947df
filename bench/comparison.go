package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The size and window for CPU time, over TLS only: those of the published figure of the official C
// SDK.
const (
	cpuSize   = 256
	cpuWindow = 128
)

// plan selects the measurements.
type plan struct {
	settings
	suite          *suite
	peers          []string
	ways           []bool // with or without TLS
	sizes, windows []int
	log            io.Writer
}

type settings struct {
	Rounds int
	Length time.Duration // approximate time of one sender's turn
}

// setting has the parameters that all senders share.
type setting struct {
	Peer         string
	TLS          bool
	Size, Window int
}

// comparison is one setting and the figures of each sender of the protocol, a value per round.
type comparison struct {
	setting
	Senders [][]Figures
	counts  []int // messages in a round
}

// results are all figures of a run.
type results struct {
	settings
	suite   *suite
	Machine string
	Missing []string // peers that are not installed
	All     []*comparison
}

func (p *plan) comparisons() (all []*comparison) {
	for _, peer := range p.peers {
		for _, secure := range p.ways {
			add := func(size, window int) {
				n := len(p.suite.protocol.Senders)
				all = append(all, &comparison{setting{peer, secure, size, window}, make([][]Figures, n), make([]int, n)})
			}
			for _, size := range p.sizes {
				for _, window := range p.windows {
					add(size, window)
				}
			}
			if p.suite.cpu != nil && secure && !slices.Contains(p.sizes, cpuSize) {
				add(cpuSize, cpuWindow)
			}
		}
	}
	return all
}

// measure runs all settings in each round, so that a temporary disturbance of the machine affects
// one round.
func (p *plan) measure(ctx context.Context) (*results, error) {
	r := &results{settings: p.settings, suite: p.suite,
		Machine: machine(p.suite.protocol), All: p.comparisons()}
	start := time.Now()
	for round := range p.Rounds {
		for _, c := range r.All {
			if slices.Contains(r.Missing, c.Peer) {
				continue
			}
			err := c.round(ctx, p.suite.protocol, round, p.Length)
			switch {
			case ctx.Err() != nil:
				return nil, context.Cause(ctx)
			case errors.Is(err, ErrMissing):
				fmt.Fprintf(p.log, "\n*** LEFT OUT: %v ***\n\n", err)
				r.Missing = append(r.Missing, c.Peer)
			case err != nil:
				return nil, fmt.Errorf("%+v: %w", c.setting, err)
			}
		}
		fmt.Fprintf(p.log, "round %d of %d, %v\n", round+1, p.Rounds, time.Since(start).Round(time.Second))
	}
	if l := load(); l != "" {
		r.Machine += ", load " + l + " at the end, its own of about 2 included"
	}
	r.All = slices.DeleteFunc(r.All, func(c *comparison) bool { return slices.Contains(r.Missing, c.Peer) })
	return r, nil
}

// round lets each sender send once, to a new peer, because a hub keeps its messages. The order of
// senders rotates.
func (c *comparison) round(ctx context.Context, protocol *Protocol, round int, length time.Duration) error {
	p, err := protocol.OpenPeer(ctx, c.Peer, c.TLS)
	if err != nil {
		return err
	}
	for i := range c.Senders {
		i := (i + round) % len(c.Senders)
		if err := c.turn(ctx, i, protocol.Senders[i].Open, p, length); err != nil {
			return errors.Join(fmt.Errorf("%s: %w", protocol.Senders[i].Name, err), p.Close())
		}
	}
	return p.Close()
}

// turnLimit bounds a turn: a client that keeps trying would wait for a dead peer.
const turnLimit = time.Minute

// opener opens a sender.
type opener func(p *Peer, l Load) (Sender, error)

// turn lets one sender warm up and send.
func (c *comparison) turn(ctx context.Context, i int, open opener, p *Peer, length time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, turnLimit)
	defer cancel()
	s, err := open(p, Load{Window: c.Window, Size: c.Size})
	if err != nil {
		return err
	}
	defer s.Close()
	n := &c.counts[i]
	if *n > 0 {
		if err := s.Send(ctx, max(*n/16, 2*c.Window)); err != nil {
			return err
		}
	} else if *n, err = enough(ctx, s, 2*c.Window, length); err != nil {
		return err
	}
	f, err := Measure(ctx, s, *n)
	c.Senders[i] = append(c.Senders[i], f)
	return err
}

// enough returns the number of messages that take about as long as length.
func enough(ctx context.Context, s Sender, least int, length time.Duration) (int, error) {
	for n := least; ; n *= 2 {
		start := time.Now()
		if err := s.Send(ctx, n); err != nil {
			return 0, err
		}
		if took := time.Since(start); took > length/4 {
			return max(least, int(float64(n)*float64(length)/float64(took))), nil
		}
	}
}

// machine describes the machine and the share of it that other processes use.
func machine(p *Protocol) string {
	parts := []string{runtime.Version(), fmt.Sprintf("%d CPUs", runtime.NumCPU())}
	info, _ := os.ReadFile("/proc/cpuinfo")
	if _, rest, ok := strings.Cut(string(info), "model name\t: "); ok {
		name, _, _ := strings.Cut(rest, "\n")
		parts = append(parts, name)
	}
	if v := MosquittoVersion(); v != "" && slices.Contains(p.Peers, "mosquitto") {
		parts = append(parts, v)
	}
	parts = append(parts, time.Now().Format("2 January 2006"))
	if l := load(); l != "" {
		parts = append(parts, "load "+l+" by others at the start")
	}
	return strings.Join(parts, ", ")
}

// load returns the machine's load over the last minute, empty if unknown.
func load() string {
	text, _ := os.ReadFile("/proc/loadavg")
	one, _, _ := strings.Cut(string(text), " ")
	return one
}

// compare runs the suite's senders in turns and prints the results.
func (s *suite) compare(args []string) error {
	flags := flag.NewFlagSet(s.name, flag.ExitOnError)
	p := plan{log: os.Stderr, suite: s}
	peers := flags.String("peers", "", "peers to send to; empty: all")
	windows := flags.String("windows", "1,16,128,1024", "messages in flight")
	sizes := flags.String("sizes", "100,1024", "bytes in a body")
	ways := flags.String("tls", "off,on", "without TLS, with it, or both; with it, over MQTT, also "+strconv.Itoa(cpuSize)+
		" B are measured, for their CPU time")
	flags.IntVar(&p.Rounds, "rounds", 9, "counted rounds of each")
	flags.DurationVar(&p.Length, "length", 300*time.Millisecond, "about how long a sender sends in a round")
	quick := flags.Bool("quick", false, "one short round, to check that it works")
	write := flags.Bool("write", false, "write the tables into the page in results, and the picture into ../docs")
	_ = flags.Parse(args) // exits on an error
	if flags.NArg() > 0 {
		return fmt.Errorf("%q is no flag", flags.Arg(0))
	}
	if *quick {
		p.Rounds, p.Length = 1, 30*time.Millisecond
	}
	if p.Rounds < 1 || p.Length <= 0 {
		return errors.New("-rounds and -length must be positive")
	}
	var err error
	if p.windows, err = numbers("windows", *windows, 1024); err != nil {
		return err
	}
	if p.sizes, err = numbers("sizes", *sizes, 255<<10); err != nil {
		return err
	}
	if p.peers = p.suite.protocol.Peers; *peers != "" {
		p.peers = strings.Split(*peers, ",")
	}
	for _, way := range strings.Split(*ways, ",") {
		if way != "on" && way != "off" {
			return fmt.Errorf("-tls: %q is neither on nor off", way)
		}
		p.ways = append(p.ways, way == "on")
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	r, err := p.measure(ctx)
	if err != nil {
		return err
	}
	fmt.Print(r.text())
	if !*write {
		return nil
	}
	old, err := os.ReadFile(r.suite.page)
	if err != nil {
		return err
	}
	begin, end := r.suite.marks()
	text, err := between(old, begin, end, r.text())
	if err != nil {
		return fmt.Errorf("%s: %w", r.suite.page, err)
	}
	picture, err := DrawCharts(r.charts())
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(r.suite.picture, picture, 0o644), os.WriteFile(r.suite.page, text, 0o644))
}

// numbers parses a list of numbers from 1 to most.
func numbers(flag, list string, most int) (all []int, err error) {
	for _, s := range strings.Split(list, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > most {
			return nil, fmt.Errorf("-%s: %q is no number from 1 to %d", flag, s, most)
		}
		all = append(all, n)
	}
	return all, nil
}

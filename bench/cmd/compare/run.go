package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/bench"
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
	Senders [][]bench.Figures
	counts  []int // messages in a round
}

// results are all figures of a run.
type results struct {
	settings
	Protocol string
	suite    *suite // of Protocol
	Machine  string
	Missing  []string // peers that are not installed
	All      []*comparison
}

func (p *plan) comparisons() (all []*comparison) {
	for _, peer := range p.peers {
		for _, secure := range p.ways {
			add := func(size, window int) {
				n := len(p.suite.protocol.Senders)
				all = append(all, &comparison{setting{peer, secure, size, window}, make([][]bench.Figures, n), make([]int, n)})
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
	r := &results{settings: p.settings, Protocol: p.suite.protocol.Name, suite: p.suite,
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
			case errors.Is(err, bench.ErrMissing):
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
func (c *comparison) round(ctx context.Context, protocol *bench.Protocol, round int, length time.Duration) error {
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
type opener func(p *bench.Peer, l bench.Load) (bench.Sender, error)

// turn lets one sender warm up and send.
func (c *comparison) turn(ctx context.Context, i int, open opener, p *bench.Peer, length time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, turnLimit)
	defer cancel()
	s, err := open(p, bench.Load{Window: c.Window, Size: c.Size})
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
	f, err := bench.Measure(ctx, s, *n)
	c.Senders[i] = append(c.Senders[i], f)
	return err
}

// enough returns the number of messages that take about as long as length.
func enough(ctx context.Context, s bench.Sender, least int, length time.Duration) (int, error) {
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
func machine(p *bench.Protocol) string {
	parts := []string{runtime.Version(), fmt.Sprintf("%d CPUs", runtime.NumCPU())}
	info, _ := os.ReadFile("/proc/cpuinfo")
	if _, rest, ok := strings.Cut(string(info), "model name\t: "); ok {
		name, _, _ := strings.Cut(rest, "\n")
		parts = append(parts, name)
	}
	if v := bench.MosquittoVersion(); v != "" && slices.Contains(p.Peers, "mosquitto") {
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

func (r *results) save(name string) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return os.WriteFile(name, b, 0o644)
}

func loadResults(name string) (*results, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	r := new(results)
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(r); err != nil {
		return nil, err
	}
	r.suite, err = suiteOf(r.Protocol)
	return r, err
}

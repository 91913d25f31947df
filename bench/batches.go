package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"time"
)

// batchSpeed measures telemetry over HTTPS: single requests against batches, in turns, and the cost
// of a message. It fails if batches are less than -least times as fast as single requests, in the
// median of all rounds, against the bare peer.
func batchSpeed(args []string) error {
	flags := flag.NewFlagSet("https", flag.ExitOnError)
	rounds := flags.Int("rounds", 9, "rounds, in each of which each sender has a turn")
	turn := flags.Duration("turn", 300*time.Millisecond, "about how long a turn takes")
	size := flags.Int("size", 100, "bytes of a body")
	window := flags.Int("window", 2000, "messages in flight")
	peers := flags.String("peers", strings.Join(HTTPSPeers, ","), "what requests are sent to, separated by commas")
	least := flags.Float64("least", 50, "how many times as fast as a request for each message batches must be against "+
		HTTPSPeers[0])
	_ = flags.Parse(args) // exits on an error
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	fmt.Printf("%s, %d CPUs, bodies of %d B, TLS, window %d, %d rounds of about %v for each sender in turn\n",
		runtime.Version(), runtime.NumCPU(), *size, *window, *rounds, *turn)
	var short error
	for name := range strings.SplitSeq(*peers, ",") {
		ratio, err := batches(ctx, name, *rounds, *turn, *window, *size)
		if err != nil {
			return err
		}
		if name == HTTPSPeers[0] && ratio < *least {
			short = fmt.Errorf("batches are %.1f times as fast as a request for each message, want %g", ratio, *least)
		}
	}
	return short
}

// one is a sender and its figures, a value per round.
type one struct {
	name                              string
	sender                            Sender
	calls                             *Calls
	n                                 int
	rate, cpu, allocs, reads, written []float64
}

// batches returns the median ratio of the speed of batches to that of single requests.
func batches(ctx context.Context, peer string, rounds int, turn time.Duration, window, size int) (float64, error) {
	p, err := StartHTTPSPeer(ctx, peer)
	if err != nil {
		return 0, err
	}
	defer p.Close()
	var all []*one
	for _, s := range HTTPSSenders {
		o := &one{name: s.Name, calls: new(Calls)}
		if o.sender, err = s.Open(p, window, size, o.calls); err != nil {
			return 0, fmt.Errorf("%s: %w", s.Name, err)
		}
		defer o.sender.Close()
		for o.n = 200; ; o.n *= 2 { // also warms up
			began := time.Now()
			if err := o.sender.Send(ctx, o.n); err != nil {
				return 0, fmt.Errorf("%s: %w", s.Name, err)
			}
			if took := time.Since(began); took >= turn/2 {
				o.n = max(1, int(float64(o.n)*float64(turn)/float64(took)))
				break
			}
		}
		all = append(all, o)
	}
	for range rounds {
		for _, o := range all {
			if err := o.round(ctx); err != nil {
				return 0, fmt.Errorf("%s: %w", o.name, err)
			}
		}
	}
	fmt.Printf("\n%s:\n\n| sender | msg/s (median) | least to most | times a request a message, by round | "+
		"allocations/msg | socket writes/msg | reads/msg | CPU/msg |\n|--|--|--|--|--|--|--|--|\n", peer)
	single := all[1]
	var median float64
	for _, o := range all {
		ratios := make([]float64, rounds)
		for i := range ratios {
			ratios[i] = o.rate[i] / single.rate[i]
		}
		median = quantile(ratios, 0.5)
		fmt.Printf("| %s | %.0f | %.0f to %.0f | %.2f (%.2f to %.2f) | %.2f | %.4f | %.4f | %.2f µs |\n", o.name,
			quantile(o.rate, 0.5), quantile(o.rate, 0), quantile(o.rate, 1),
			median, quantile(ratios, 0), quantile(ratios, 1), quantile(o.allocs, 0.5), quantile(o.written, 0.5),
			quantile(o.reads, 0.5), quantile(o.cpu, 0.5)/1000)
	}
	return median, nil
}

func (o *one) round(ctx context.Context) error {
	reads, writes := o.calls.Reads.Load(), o.calls.Writes.Load()
	f, err := Measure(ctx, o.sender, o.n)
	each := func(v int64) float64 { return float64(v) / float64(o.n) }
	o.rate, o.cpu, o.allocs = append(o.rate, f.Rate), append(o.cpu, f.CPU), append(o.allocs, f.Allocs)
	o.reads, o.written = append(o.reads, each(o.calls.Reads.Load()-reads)),
		append(o.written, each(o.calls.Writes.Load()-writes))
	return err
}

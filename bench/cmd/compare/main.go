// Command compare runs Hubline, on both MQTT engines, and raw paho in turns against the same peers and prints medians and their ratio.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/hubline-iot/hubline/bench"
)

func main() {
	rounds := flag.Int("rounds", 7, "counted rounds of each")
	n := flag.Int("n", 50_000, "messages in a round")
	window := flag.Int("window", 128, "messages in flight")
	size := flag.Int("size", 100, "bytes in a body")
	flag.Parse()
	if err := run(*rounds, *n, *window, *size); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

// senders are compared with the first of them.
var senders = []struct {
	name string
	open func(addr string, window int) (bench.Sender, error)
}{
	{"paho", func(addr string, _ int) (bench.Sender, error) { return bench.Paho(addr) }},
	{"hubline on paho", bench.Hubline},
	{"hubline on lean", bench.Lean},
}

// figures of one sender, a value per round.
type figures struct {
	rate, mallocs  []float64
	bytesPerOneMsg []float64
}

func run(rounds, n, window, size int) error {
	fmt.Printf("%s, %d CPUs, %d messages of %d B a round, window %d, %d rounds in turns\n\n",
		runtime.Version(), runtime.NumCPU(), n, size, window, rounds)
	fmt.Println("| peer | sender | msg/s (median) | least | most | allocations/msg | B/msg | ratio to paho (median of rounds) |")
	fmt.Println("|--|--|--|--|--|--|--|--|")
	for _, peer := range []func() (*bench.Peer, error){bench.Mochi, bench.Bare} {
		p, err := peer()
		if err != nil {
			return err
		}
		if err := compare(p, rounds, n, window, size); err != nil {
			return err
		}
		p.Close()
	}
	return nil
}

func compare(p *bench.Peer, rounds, n, window, size int) error {
	body := make([]byte, size)
	all := make([]figures, len(senders))
	for round := range rounds + 1 {
		for i := range all {
			s, err := senders[i].open(p.Addr, window)
			if err != nil {
				return err
			}
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			start := time.Now()
			err = s.Send(n, window, body)
			took := time.Since(start)
			runtime.ReadMemStats(&after)
			s.Close()
			if err != nil {
				return err
			}
			if round == 0 {
				continue // warm-up
			}
			f := &all[i]
			f.rate = append(f.rate, float64(n)/took.Seconds())
			f.mallocs = append(f.mallocs, float64(after.Mallocs-before.Mallocs)/float64(n))
			f.bytesPerOneMsg = append(f.bytesPerOneMsg, float64(after.TotalAlloc-before.TotalAlloc)/float64(n))
		}
	}
	for i, f := range all {
		ratio := "1"
		if i > 0 {
			var ratios []float64
			for round := range f.rate {
				ratios = append(ratios, f.rate[round]/all[0].rate[round])
			}
			ratio = fmt.Sprintf("%.2f (%.2f to %.2f)", median(ratios), slices.Min(ratios), slices.Max(ratios))
		}
		fmt.Printf("| %s | %s | %.0f | %.0f | %.0f | %.1f | %.0f | %s |\n", p.Name, senders[i].name,
			median(f.rate), slices.Min(f.rate), slices.Max(f.rate), median(f.mallocs), median(f.bytesPerOneMsg), ratio)
	}
	return nil
}

func median(v []float64) float64 {
	v = slices.Clone(v)
	slices.Sort(v)
	return v[len(v)/2]
}

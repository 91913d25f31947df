// Command compare runs a raw library and Hubline in turns against the same peers and prints the
// results: rates and their ratio to the raw library's, allocations, CPU time. Without -amqp it
// compares MQTT: raw paho, the limit of the wire and Hubline on both engines. With -mqtt5 it
// compares raw paho.golang, the limit and Hubline over MQTT 3.1.1 and 5, with -amqp raw go-amqp and
// Hubline.
//
//	go run ./cmd/compare -quick
//	go run ./cmd/compare -peers bare -windows 128 -sizes 100 -tls off
//	go run ./cmd/compare -amqp -write
//
// With -write, in bench/, it writes the tables to the page in results and the picture to ../docs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hubline-iot/hubline/bench"
)

func main() {
	bench.Child()
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("compare", flag.ExitOnError)
	p := plan{log: os.Stderr, suite: suites[0]}
	for _, s := range suites[1:] {
		flags.BoolFunc(s.flag, "compare over "+s.protocol.Name, func(string) error {
			p.suite = s
			return nil
		})
	}
	peers := flags.String("peers", "", "peers to send to; empty: all")
	windows := flags.String("windows", "1,16,128,1024", "messages in flight")
	sizes := flags.String("sizes", "100,1024", "bytes in a body")
	ways := flags.String("tls", "off,on", "without TLS, with it, or both; with it, over MQTT, also "+strconv.Itoa(cpuSize)+
		" B are measured, for their CPU time")
	flags.IntVar(&p.Rounds, "rounds", 9, "counted rounds of each")
	flags.DurationVar(&p.Length, "length", 300*time.Millisecond, "about how long a sender sends in a round")
	quick := flags.Bool("quick", false, "one short round, to check that it works")
	write := flags.Bool("write", false, "write the tables into the page in results, and the picture into ../docs")
	save := flags.String("save", "", "also write the results to this file")
	from := flags.String("load", "", "do not measure, take the results from this file")
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
	var r *results
	if *from != "" {
		r, err = loadResults(*from)
	} else {
		r, err = p.measure(ctx)
	}
	if err != nil {
		return err
	}
	if *save != "" {
		if err := r.save(*save); err != nil {
			return err
		}
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
	picture, err := bench.DrawCharts(r.charts())
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

// Command mutate tests the tests: it puts one plausible bug at a time into the code and runs the
// tests that must notice it. No file of the tree is changed.
//
//	go run ./internal/cmd/mutate                       all mutations
//	go run ./internal/cmd/mutate -area device          those of one area
//	go run ./internal/cmd/mutate -run limiter          those whose row matches a regular expression
//	go run ./internal/cmd/mutate -write docs/mutations.md
//
// A row has one of these results:
//
//	caught      a test failed
//	survived    all tests passed
//	equivalent  all tests passed, and the row says why no test can tell
//	broken      the row does not apply or compile, its tests do not exist, or they fail without it
//
// The command exits with status 1 when a row survived or is broken, or when a test failed for a row
// that is marked equivalent.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"sync"
	"time"
)

func main() {
	area := flag.String("area", "", "run the mutations of this area only")
	run := flag.String("run", "", "run only mutations whose row matches this regular expression")
	parallel := flag.Int("p", 2, "number of mutations at a time")
	timeout := flag.Duration("timeout", 2*time.Minute, "limit for the tests of one mutation")
	page := flag.String("write", "", "write the figures to this Markdown file; all mutations must be selected")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := mutate(ctx, *area, *run, *parallel, *timeout, *page); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		stop()
		os.Exit(1)
	}
}

func mutate(ctx context.Context, area, run string, parallel int, timeout time.Duration, page string) error {
	if page != "" && (area != "" || run != "") {
		return fmt.Errorf("-write needs all mutations: omit -area and -run")
	}
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	chosen, err := choose(area, run)
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)

	runner := &runner{root: root, scratch: scratch, timeout: timeout, sound: map[string]func() error{}}
	next := make(chan int)
	var wg sync.WaitGroup
	var mu sync.Mutex
	for range max(1, parallel) {
		wg.Go(func() {
			for i := range next {
				r := &chosen[i]
				runner.try(ctx, r, i)
				mu.Lock()
				fmt.Println(r)
				mu.Unlock()
			}
		})
	}
	for i := range chosen {
		if ctx.Err() != nil {
			break
		}
		next <- i
	}
	close(next)
	wg.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	sum := figures{}
	for i := range chosen {
		sum.add(&chosen[i])
	}
	fmt.Println(sum)
	if page != "" {
		if err := os.WriteFile(filepath.Join(root, filepath.FromSlash(page)), report(chosen), 0o644); err != nil {
			return err
		}
	}
	if bad := sum.survived + sum.broken; bad > 0 {
		return fmt.Errorf("%d of %d mutations survived or are broken", bad, sum.all)
	}
	return nil
}

// choose returns a row for each mutation of area, all areas if it is empty, that matches the
// regular expression run.
func choose(area, run string) ([]row, error) {
	pattern, err := regexp.Compile("(?i)" + run)
	if err != nil {
		return nil, err
	}
	if area != "" && tables[area] == nil {
		return nil, fmt.Errorf("no area %q; there are %v", area, areas())
	}
	var rows []row
	for _, name := range areas() {
		if area != "" && name != area {
			continue
		}
		for _, m := range tables[name] {
			if pattern.MatchString(m.File + "\n" + m.Old + "\n" + m.New + "\n" + m.Test) {
				rows = append(rows, row{area: name, mutation: m})
			}
		}
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("no mutation matches")
	}
	return rows, nil
}

// moduleRoot returns the directory of go.mod, the working directory or one above it.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", fmt.Errorf("no go.mod here or above")
		}
		dir = up
	}
}

// Command mutate tests the tests: it puts one plausible bug at a time into the code, at a random
// place, and runs the tests of that package and then those of its importers and their importers. It
// uses an overlay, so no file of the tree changes.
//
//	go run ./internal/cmd/mutate                      20 bugs anywhere in the module
//	go run ./internal/cmd/mutate -n 50 ./device       50 bugs in one package
//	go run ./internal/cmd/mutate -n 300 -write docs/mutations.md
//
// A bug is caught if a test fails that passes without it. A bug that does not compile, or that
// equivalent.txt lists, is replaced by the next one. The exit status is 1 when the tests caught
// fewer than -least percent, or fail without a bug.
package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"strings"
	"sync"
	"time"
)

// equivalents lists bugs that no test can notice, one a line, each with the reason.
//
//go:embed equivalent.txt
var equivalents string

type result struct {
	site
	caught bool
	note   string // the test that failed
}

func main() {
	n := flag.Int("n", 20, "number of bugs")
	seed := flag.Uint64("seed", 1, "seed of the places; the same seed and code give the same bugs")
	parallel := flag.Int("p", 2, "number of bugs at a time")
	least := flag.Int("least", 96, "least percentage that tests must catch")
	timeout := flag.Duration("timeout", 3*time.Minute, "limit for the tests of one package")
	page := flag.String("write", "", "write the figures to this Markdown file")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	patterns := flag.Args()
	if len(patterns) == 0 {
		patterns = []string{"./..."}
	}
	results, err := mutate(ctx, patterns, *seed, *n, *parallel, *timeout)
	caught := 0
	for _, r := range results {
		if r.caught {
			caught++
		}
	}
	fmt.Printf("seed %d: tests caught %d of %d bugs\n", *seed, caught, len(results))
	if err == nil && caught*100 < *least*len(results) {
		err = fmt.Errorf("at least %d %% must be caught", *least)
	}
	if *page != "" && ctx.Err() == nil {
		command := strings.Join(append([]string{"go run ./internal/cmd/mutate"}, os.Args[1:]...), " ")
		err = errors.Join(err, os.WriteFile(*page, report(results, command), 0o644))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		stop()
		os.Exit(1)
	}
}

// mutate tries n bugs in the packages that match patterns.
func mutate(ctx context.Context, patterns []string, seed uint64, n, parallel int, timeout time.Duration) (
	results []result, err error,
) {
	root, all, err := load(ctx, patterns)
	if err != nil {
		return nil, err
	}
	sites, err := find(root, all)
	if err != nil {
		return nil, err
	}
	rand.New(rand.NewPCG(seed, 0)).Shuffle(len(sites), func(i, k int) { sites[i], sites[k] = sites[k], sites[i] })
	scratch, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(scratch)
	x := &runner{root: root, scratch: scratch, timeout: timeout, packages: all}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex // held except while a bug is tried
	var wg sync.WaitGroup
	next, free, unsound := 0, n, 0
	for range parallel {
		wg.Go(func() {
			mu.Lock()
			defer mu.Unlock()
			for ctx.Err() == nil && free > 0 && next < len(sites) {
				s := sites[next]
				if next++; strings.Contains(equivalents, s.String()) {
					continue
				}
				free--
				began := time.Now()
				mu.Unlock()
				r, err := x.try(ctx, s)
				mu.Lock()
				switch {
				case errors.Is(err, errUnfit):
					free++
				case errors.Is(err, errUnsound) && unsound < 3: // a test that fails now and then
					fmt.Printf("%-8s %s: %v\n", "unsure", s, err)
					free++
					unsound++
				case err != nil:
					cancel(err)
				default:
					results = append(results, r)
					verdict := map[bool]string{true: "caught", false: "SURVIVED"}[r.caught]
					fmt.Printf("%-8s %s (line %d, %.0fs) %s\n", verdict, s, s.line, time.Since(began).Seconds(), r.note)
				}
			}
		})
	}
	wg.Wait()
	return results, context.Cause(ctx)
}

const pageHead = `# Mutations

A mutation is a plausible bug, put into the code at a random place to see whether a test fails. ` +
	"[internal/cmd/mutate](../internal/cmd/mutate) draws the places from the syntax trees of the module, and runs the " +
	"tests of the changed package, then those of its importers and their importers. Another seed draws other places; " +
	"without packages it draws from the whole module. It wrote this page:\n\n"

// report returns the page with the figures: a table by kind, and a list of the survivors.
func report(results []result, command string) []byte {
	tried, caught := map[string]int{}, map[string]int{}
	var survivors strings.Builder
	for _, r := range results {
		for _, kind := range []string{r.kind, "**all**"} {
			if tried[kind]++; r.caught {
				caught[kind]++
			}
		}
		if !r.caught {
			fmt.Fprintf(&survivors, "    %s\n", r.site)
		}
	}
	var b bytes.Buffer
	b.WriteString(pageHead + "    " + command + "\n\n| mutation | tried | caught | survived |\n|--|--:|--:|--:|\n")
	for _, kind := range kinds {
		fmt.Fprintf(&b, "| %s | %d | %d | %d |\n", kind, tried[kind], caught[kind], tried[kind]-caught[kind])
	}
	if survivors.Len() > 0 {
		b.WriteString("\nThe survivors, each a missing test or a difference without effect:\n\n" + survivors.String())
	}
	return b.Bytes()
}

// Command replay runs tests in fake time so that the same seed gives the same run. It is go test
// with a Go runtime whose choices inside a bubble of testing/synctest are deterministic.
//
//	go run ./internal/cmd/replay ./internal/sim -run 'TestSimulation/amqp/' -seed 4711
//	go run ./internal/cmd/replay -order 7 ./internal/sim -run 'TestSimulation/amqp/' -seed 4711
//
// All arguments but -order go to go test. Each number after -order selects another, fixed order of
// the events of one instant.
//
// In a bubble the runtime draws random numbers for the choice of a select with several ready cases,
// for the order of timers of one instant and for maps. The command replaces these draws, in copies
// of six files of the runtime that only this build sees (go test -overlay). It also lets one
// goroutine run at a time, and neither preempts it nor collects garbage: both depend on real time.
// The timers of a select start in the drawn order, not in that of their addresses, and maps that
// are made in a bubble are the same in all processes.
//
// What a package initializes at its first use draws, too: in one process, the first of two equal
// runs may differ from the second.
//
// Random numbers of package crypto/rand stay random, so with TLS the sizes of some records differ.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

func main() {
	if err := replay(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "replay:", err)
		os.Exit(1)
	}
}

// goRoot returns the directory of the Go release that go test uses.
func goRoot() (string, error) {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	return strings.TrimSpace(string(out)), err
}

func replay(args []string) error {
	order := uint64(0)
	if len(args) > 1 && args[0] == "-order" {
		n, err := strconv.ParseUint(args[1], 10, 32)
		if err != nil {
			return fmt.Errorf("-order: %w", err)
		}
		order, args = n, args[2:]
	}
	goroot, err := goRoot()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "replay")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	list, err := overlay(goroot, dir, order)
	if err != nil {
		return err
	}
	cmd := exec.Command("go", append([]string{"test", "-overlay", list, "-count=1"}, args...)...)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC=off", "GOMEMLIMIT=3GiB", "GODEBUG=asyncpreemptoff=1",
		"HUBLINE_REPLAY=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}

// change is a replacement of text in a file of the runtime.
type change struct{ file, old, new string }

// changes returns the changes of the runtime. They belong to one version of Go; overlay fails if a
// text is not found.
func changes(order uint64) []change {
	const draw = `
// bubbleDraw is a generator (SplitMix64) that begins anew in each bubble. It reports false outside
// of a bubble.
//
//go:nosplit
func bubbleDraw() (uint64, bool) {
	gp := getg().m.curg
	if gp == nil || gp.bubble == nil {
		return 0, false
	}
	gp.bubble.draws += 0x9e3779b97f4a7c15
	z := gp.bubble.draws
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31, true
}

// bubbleRand is cheaprand, but in a bubble always the same.
func bubbleRand() uint32 {
	if x, ok := bubbleDraw(); ok {
		return uint32(x)
	}
	return cheaprand()
}
`
	return []change{
		{"synctest.go", "\tactive  int // other sources of activity\n}\n",
			"\tactive  int // other sources of activity\n\tdraws   uint64\n}\n" + draw},
		{"synctest.go", "\tgp.bubble = bubble\n", fmt.Sprintf("\tbubble.draws = %d\n\tgp.bubble = bubble\n", order)},
		{"select.go", "j := cheaprandn(uint32(norder + 1))", "j := uint32(uint64(bubbleRand()) * uint64(norder+1) >> 32)"},
		{"select.go", "\t\tif c.timer != nil {\n\t\t\tblockTimerChan(c)\n\t\t}\n", ""},
		{"select.go", "\tnextp = &gp.waiting\n", "\tnextp = &gp.waiting\n\tfor _, casei := range pollorder {\n" +
			"\t\tif c := scases[casei].c; c.timer != nil {\n\t\t\tblockTimerChan(c)\n\t\t}\n\t}\n"},
		{"alg.go", "\t\tkey[i] = bootstrapRand()\n", "\t\tkey[i] = uint64(i+1) * 0x9e3779b97f4a7c15\n"},
		{"alg.go", "\t\thashkey[i] = uintptr(bootstrapRand())\n", "\t\thashkey[i] = uintptr(i+1) * 0x9e3779b9\n"},
		{"time.go", "t.rand = cheaprand()", "t.rand = bubbleRand()"},
		{"rand.go", "func rand() uint64 {\n", "func rand() uint64 {\n\tif x, ok := bubbleDraw(); ok {\n\t\treturn x\n\t}\n"},
		{"proc.go", "func preemptone(pp *p) bool {\n",
			"func preemptone(pp *p) bool {\n\tif pp != nil {\n\t\treturn false\n\t}\n"},
		{"proc.go", "if pp.schedtick%61 == 0 && !sched.runq.empty() {", "if false {"},
		// First come, first served: a woken goroutine must not run before the goroutines that already
		// wait. Otherwise two goroutines that wake each other would run for ever.
		{"proc.go", "if randomizeScheduler && next && randn(2) == 0 {", "if next {"},
	}
}

// overlay writes the changed files to dir and returns the name of the list that go test reads.
func overlay(goroot, dir string, order uint64) (string, error) {
	texts := map[string]string{}
	for _, c := range changes(order) {
		text, ok := texts[c.file]
		if !ok {
			b, err := os.ReadFile(filepath.Join(goroot, "src/runtime", c.file))
			if err != nil {
				return "", err
			}
			text = string(b)
		}
		if n := strings.Count(text, c.old); n != 1 {
			return "", fmt.Errorf("%s of this version of Go has %q %d times, not once; adapt the changes", c.file, c.old, n)
		}
		texts[c.file] = strings.Replace(text, c.old, c.new, 1)
	}
	replace := map[string]string{}
	for file, text := range texts {
		name := filepath.Join(dir, file)
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			return "", err
		}
		replace[filepath.Join(goroot, "src/runtime", file)] = name
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, list, 0o644)
}

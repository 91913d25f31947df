package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"
)

// result is the outcome of a mutation.
type result string

const (
	caught     result = "caught"
	survived   result = "survived"
	equivalent result = "equivalent"
	broken     result = "broken"
)

// row is a mutation and its result.
type row struct {
	mutation
	area   string
	line   int
	result result
	note   string // what failed, or why the row is broken
	bare   bool   // the only failure was the time-out of go test, which gives no reason
	took   time.Duration
}

func (r *row) String() string {
	return fmt.Sprintf("%-10s %-11s %s:%d (%.1fs) %s", r.result, r.area, r.File, r.line, r.took.Seconds(), r.note)
}

// runner runs the tests of mutations. Its methods are safe for concurrent use.
type runner struct {
	root, scratch string
	timeout       time.Duration

	mu    sync.Mutex
	sound map[string]func() error // by arguments: returns an error if the tests fail without a mutation; runs them once
}

// try runs r's tests with its mutation and sets its result. number is unique per row.
func (x *runner) try(ctx context.Context, r *row, number int) {
	began := time.Now()
	defer func() { r.took = time.Since(began) }()
	text, line, err := r.apply(x.root)
	if err != nil {
		r.result, r.note = broken, err.Error()
		return
	}
	r.line = line
	overlay, err := x.overlay(&r.mutation, text, number)
	if err != nil {
		r.result, r.note = broken, err.Error()
		return
	}
	if err := x.baseline(ctx, r.arguments()); err != nil {
		r.result, r.note = broken, err.Error()
		return
	}
	args := append([]string{"-overlay", overlay, "-count=1"}, r.arguments()...)
	out, err := x.test(ctx, args)
	switch {
	case !compiled(out):
		r.result, r.note = broken, "does not compile: "+firstLine(out, "")
	case err == nil && r.Equivalent != "":
		r.result, r.note = equivalent, r.Equivalent
	case err == nil:
		r.result, r.note = survived, fmt.Sprintf("%q became %q", r.Old, r.New)
	case r.Equivalent != "":
		r.result, r.note = broken, "marked equivalent, but a test failed: "+failure(out)
	default:
		r.result, r.note = caught, failure(out)
		r.bare = strings.Contains(out, "panic: test timed out after")
	}
}

// overlay writes the mutated copy of m's file, and the overlay list for go test, whose name it
// returns.
func (x *runner) overlay(m *mutation, text string, number int) (string, error) {
	changed := filepath.Join(x.scratch, fmt.Sprintf("%d.go", number))
	if err := os.WriteFile(changed, []byte(text), 0o644); err != nil {
		return "", err
	}
	list, err := json.Marshal(map[string]map[string]string{
		"Replace": {filepath.Join(x.root, filepath.FromSlash(m.File)): changed},
	})
	if err != nil {
		return "", err
	}
	name := filepath.Join(x.scratch, fmt.Sprintf("%d.json", number))
	return name, os.WriteFile(name, list, 0o644)
}

// baseline returns an error unless the tests exist and pass without a mutation. The go command
// caches the results of passed tests, so a second run of this command is fast.
func (x *runner) baseline(ctx context.Context, args []string) error {
	key := strings.Join(args, " ")
	x.mu.Lock()
	check := x.sound[key]
	if check == nil {
		check = sync.OnceValue(func() error {
			out, err := x.test(ctx, args)
			switch {
			case err != nil:
				return fmt.Errorf("the tests fail without the mutation: %s", failure(out))
			case nothingRan(out):
				return errors.New("no test has the name")
			}
			return nil
		})
		x.sound[key] = check
	}
	x.mu.Unlock()
	return check()
}

// test runs go test with args and returns its output.
func (x *runner) test(ctx context.Context, args []string) (string, error) {
	args = append([]string{"test", "-vet=off", "-failfast", "-timeout", x.timeout.String()}, args...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = x.root
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// compiled reports whether out is the output of tests, not of a failed build.
func compiled(out string) bool {
	return !strings.Contains(out, "[build failed]") && !strings.Contains(out, "[setup failed]") &&
		(strings.Contains(out, "ok  \t") || strings.Contains(out, "FAIL\t"))
}

// nothingRan reports whether no package of out had a test to run.
func nothingRan(out string) bool {
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "ok  \t") && !strings.Contains(line, "[no tests to run]") {
			return false
		}
	}
	return true
}

var failedTest = regexp.MustCompile(`(?m)^--- FAIL: (\S+)`)

// failure returns the name of the failed test in the output of go test.
func failure(out string) string {
	if m := failedTest.FindStringSubmatch(out); m != nil {
		return m[1]
	}
	if line := firstLine(out, "panic: "); line != "" {
		return line
	}
	if line := firstLine(out, "fatal error: "); line != "" {
		return line
	}
	return firstLine(out, "")
}

// firstLine returns the first line of out that begins with prefix and is not a comment of the go
// command.
func firstLine(out, prefix string) string {
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, prefix) && !strings.HasPrefix(line, "#") {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

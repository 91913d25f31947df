package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

// goPackage is what go list says about a package of the module.
type goPackage struct {
	Dir, ImportPath, Name              string
	GoFiles, TestGoFiles, XTestGoFiles []string
	Imports, TestImports, XTestImports []string

	chosen    bool     // bugs are put into it
	importers []string // packages that import it, or whose tests do
}

func (p *goPackage) tested() bool { return len(p.TestGoFiles)+len(p.XTestGoFiles) > 0 }

// load returns the directory of the module, and its packages; those that match patterns are chosen.
func load(ctx context.Context, patterns []string) (root string, all map[string]*goPackage, err error) {
	run := func(args ...string) (out string) {
		if err == nil {
			out, err = goTool(ctx, root, os.Getenv("GOFLAGS"), args...)
		}
		return out
	}
	chosen := strings.Fields(run(append([]string{"list"}, patterns...)...))
	root = filepath.Dir(strings.TrimSpace(run("env", "GOMOD")))
	packages := json.NewDecoder(strings.NewReader(run("list", "-json", "./...")))
	all = map[string]*goPackage{}
	for err == nil {
		p := &goPackage{}
		if err = packages.Decode(p); err == nil {
			all[p.ImportPath], p.chosen = p, slices.Contains(chosen, p.ImportPath)
		}
	}
	if !errors.Is(err, io.EOF) {
		return "", nil, err
	}
	for _, path := range sortedKeys(all) {
		for _, i := range slices.Concat(all[path].Imports, all[path].TestImports, all[path].XTestImports) {
			if p := all[i]; p != nil {
				p.importers = append(p.importers, path)
			}
		}
	}
	return root, all, nil
}

// testers returns the packages whose tests try a bug in path: itself, its importers, and those that
// import one of these. Code below a front is often tested through the package above it.
func testers(all map[string]*goPackage, path string) (found []string) {
	seen := map[string]bool{}
	level := []string{path}
	for range 3 {
		var next []string
		for _, name := range level {
			if seen[name] {
				continue
			}
			seen[name] = true
			if all[name].tested() {
				found = append(found, name)
			}
			next = append(next, all[name].importers...)
		}
		level = next
	}
	return found
}

// runner runs the tests of bugs. Its methods are safe for concurrent use.
type runner struct {
	root, scratch string
	timeout       time.Duration
	packages      map[string]*goPackage
}

var (
	errUnfit   = errors.New("does not compile")
	errUnsound = errors.New("the tests fail without a bug")
)

// try runs the tests for one bug, one package after the other until a test fails.
func (x *runner) try(ctx context.Context, s site) (result, error) {
	overlay, err := x.overlay(s)
	if err != nil {
		return result{}, err
	}
	// In GOFLAGS, it holds for programs that tests build as well.
	flags := strings.TrimSpace(os.Getenv("GOFLAGS") + " -overlay=" + overlay)
	if _, err := goTool(ctx, x.root, flags, "build", "-o", os.DevNull, s.pkg); err != nil {
		return result{}, errUnfit
	}
	for _, path := range testers(x.packages, s.pkg) {
		args := []string{"test", "-vet=off", "-failfast", "-count=1", "-timeout", x.timeout.String()}
		if runtime.GOOS == "linux" { // a bug may allocate without end
			args = append(args, "-exec", `sh -c 'ulimit -v 16000000; exec "$0" "$@"'`)
		}
		out, err := goTool(ctx, x.root, flags, append(args, path)...)
		if err == nil {
			continue
		}
		// Without the bug, the go command knows the result of tests that passed. After a time-out they
		// run again, because the machine may be too slow for the limit.
		without := []string{"test", path}
		if strings.Contains(out, "panic: test timed out") {
			without = []string{"test", "-count=1", "-timeout", x.timeout.String(), path}
		}
		if out, err := goTool(ctx, x.root, os.Getenv("GOFLAGS"), without...); err != nil {
			return result{}, fmt.Errorf("%w: %s in %s", errUnsound, failure(out), path)
		}
		return result{site: s, caught: true, note: failure(out) + " in " + path}, nil
	}
	return result{site: s}, ctx.Err()
}

// overlay writes the changed copy of s's file, and the list for the go command, whose name it
// returns.
func (x *runner) overlay(s site) (string, error) {
	original := filepath.Join(x.root, s.file)
	source, err := os.ReadFile(original)
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(x.scratch, "")
	if err != nil {
		return "", err
	}
	changed, list := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
	text := string(source[:s.begin]) + s.text + string(source[s.end:])
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {original: changed}})
	return list, errors.Join(err, os.WriteFile(changed, []byte(text), 0o644), os.WriteFile(list, replace, 0o644))
}

// goTool runs a go command and returns its output.
func goTool(ctx context.Context, dir, flags string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOFLAGS="+flags)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return string(out), err
}

var failed = regexp.MustCompile(`(?m)^(?:--- FAIL: (\S+)|(?:panic|fatal error): .*)`)

// failure returns the name of the failed test in the output of go test, or else what failed.
func failure(out string) string {
	m := failed.FindStringSubmatch(out)
	switch {
	case m == nil:
		return strings.TrimSpace(out)
	case m[1] != "":
		return m[1]
	}
	return m[0]
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// Command lint checks rules of this repository that no common linter covers:
//
//	go run ./internal/cmd/lint            all modules of the tree
//	go run ./internal/cmd/lint -known     writes the list of known faults anew; it may only shrink
//
// The rules:
//
//	width    code has at most 120 columns, comments have at most 100; a tab counts as one
//	locked   a function unlocks only what it locked, and one whose name ends in Locked does not
//	         lock a mutex of its receiver
//	sleep    tests sleep in fake time only, except in the packages that use real sockets
//	order    no list of operands has a variable and a call that changes it: return x, f(&x)
//	length   a test function has at most 120 lines
//	files    a folder has at most 40 Go files, tests not counted
//
// Faults that are in known.txt, as "rule folder count", are not reported.
package main

import (
	"bufio"
	"cmp"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

const knownFile = "internal/cmd/lint/known.txt"

// fault is one place that breaks a rule.
type fault struct {
	rule, file string
	line       int
	text       string
}

// group is the key by which known.txt counts faults.
type group struct{ rule, dir string }

func main() {
	write := flag.Bool("known", false, "write "+knownFile+" anew")
	flag.Parse()
	ok, err := run(*write)
	if err != nil {
		fmt.Fprintln(os.Stderr, "lint:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// run checks the tree below the working directory and reports whether it follows the rules.
func run(write bool) (bool, error) {
	faults, err := checkTree(".")
	if err != nil {
		return false, err
	}
	counts := map[group]int{}
	for _, f := range faults {
		counts[f.group()]++
	}
	if write {
		return true, writeKnown(counts)
	}
	known, err := readKnown()
	if err != nil {
		return false, err
	}
	ok := true
	for _, f := range faults {
		if counts[f.group()] > known[f.group()] {
			fmt.Printf("%s:%d: %s: %s\n", f.file, f.line, f.rule, f.text)
			ok = false
		}
	}
	for g, n := range known {
		if counts[g] < n {
			fmt.Printf("%s: %s %s has %d faults left: write that number\n", knownFile, g.rule, g.dir, counts[g])
			ok = false
		}
	}
	return ok, nil
}

func (f fault) group() group { return group{f.rule, path.Dir(f.file)} }

// checkTree checks every Go file below root, except test data.
func checkTree(root string) (faults []fault, err error) {
	folders := map[string]map[string][]byte{}
	err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		switch hidden := len(d.Name()) > 1 && d.Name()[0] == '.'; {
		case err != nil:
			return err
		case d.IsDir() && (hidden || d.Name() == "testdata" || d.Name() == "node_modules"):
			return fs.SkipDir
		case d.IsDir() || filepath.Ext(name) != ".go":
			return nil
		}
		source, err := os.ReadFile(name)
		name = filepath.ToSlash(name)
		dir := path.Dir(name)
		if folders[dir] == nil {
			folders[dir] = map[string][]byte{}
		}
		folders[dir][name] = source
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, dir := range slices.Sorted(maps.Keys(folders)) {
		found, err := checkFolder(folders[dir])
		if err != nil {
			return nil, err
		}
		faults = append(faults, found...)
	}
	return faults, nil
}

func readKnown() (map[group]int, error) {
	f, err := os.Open(knownFile)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	known := map[group]int{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var g group
		var n int
		if text := lines.Text(); text == "" || text[0] == '#' {
			continue
		} else if _, err := fmt.Sscan(text, &g.rule, &g.dir, &n); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", knownFile, text, err)
		}
		known[g] = n
	}
	return known, lines.Err()
}

func writeKnown(counts map[group]int) error {
	var b strings.Builder
	b.WriteString("# Faults that are still there, as rule, folder, count; see main.go. Numbers only go down.\n")
	for _, g := range slices.SortedFunc(maps.Keys(counts), func(a, b group) int {
		return cmp.Or(cmp.Compare(a.rule, b.rule), cmp.Compare(a.dir, b.dir))
	}) {
		fmt.Fprintln(&b, g.rule, g.dir, counts[g])
	}
	return os.WriteFile(knownFile, []byte(b.String()), 0o644)
}

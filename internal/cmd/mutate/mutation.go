package main

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// mutation is one plausible bug, written as a replacement of text in one file.
type mutation struct {
	File string // path from the module's root, with slashes
	Old  string // occurs exactly once in File
	New  string // replaces it
	// arguments of go test that must fail, for example "./device -run TestDialLimiter"; empty: all
	// tests of File's package
	Test string
	// Equivalent says why no test can detect the difference. It is empty for a real bug, which a test
	// must detect.
	Equivalent string
}

// tables are the mutations by area, one file per area.
var tables = map[string][]mutation{}

// countOnce returns an error unless old occurs exactly once in text.
func countOnce(text, old string) error {
	if n := strings.Count(text, old); n != 1 {
		return fmt.Errorf("stands %d times, not once", n)
	}
	return nil
}

// arguments returns the arguments for go test.
func (m *mutation) arguments() []string {
	if m.Test == "" {
		return []string{"./" + path.Dir(m.File)}
	}
	return strings.Fields(m.Test)
}

// apply returns the mutated text of m's file under root, and the line of the change.
func (m *mutation) apply(root string) (text string, line int, err error) {
	if m.Old == m.New {
		return "", 0, errors.New("changes nothing")
	}
	b, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(m.File)))
	if err != nil {
		return "", 0, err
	}
	text = string(b)
	if err := countOnce(text, m.Old); err != nil {
		return "", 0, fmt.Errorf("%q %w", m.Old, err)
	}
	before, after, _ := strings.Cut(text, m.Old)
	return before + m.New + after, strings.Count(before, "\n") + 1, nil
}

// areas returns the names of the tables in alphabetical order.
func areas() []string {
	var names []string
	for name := range tables {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

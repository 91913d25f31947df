package main

import (
	"fmt"
	"strings"
)

// A mutation is one plausible bug, written as a replacement of text in one file.
type mutation struct {
	File string // path from the module's root, with slashes
	Old  string // stands exactly once in File
	New  string // replaces it
	Test string // arguments of go test that must fail, for example "./device -run TestDialLimiter"; empty: all tests of File's package
	// Equivalent says why no test can tell the difference. It is empty for a real bug, and then a test has to fail.
	Equivalent string
}

// tables are the mutations by area. Each area has a file of its own.
var tables = map[string][]mutation{}

// countOnce returns an error unless old stands exactly once in text.
func countOnce(text, old string) error {
	if n := strings.Count(text, old); n != 1 {
		return fmt.Errorf("stands %d times, not once", n)
	}
	return nil
}

// Command mutate tests the tests: it puts one plausible bug at a time into the code and runs the tests that must notice it.
//
//	go run ./internal/cmd/mutate
package main

import (
	"fmt"
	"os"
)

func main() {
	bad := 0
	for area, rows := range tables {
		for _, m := range rows {
			text, err := os.ReadFile(m.File)
			if err != nil || countOnce(string(text), m.Old) != nil {
				fmt.Fprintf(os.Stderr, "mutate: %s: %s: does not apply\n", area, m.File)
				bad++
			}
		}
	}
	if bad > 0 {
		os.Exit(1)
	}
}

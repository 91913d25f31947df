// Command retryplot draws docs/retry-delays.svg: the delays of the main retry policies, computed by
// the policies themselves. Run it in the module's root:
//
//	go run ./internal/cmd/retryplot
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	out := flag.String("o", "docs/retry-delays.svg", "the file to write")
	flag.Parse()
	if err := os.WriteFile(*out, draw(panels), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, "retryplot:", err)
		os.Exit(1)
	}
}

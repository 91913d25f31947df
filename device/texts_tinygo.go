//go:build tinygo

package device

import "github.com/hubline-iot/hubline/internal/texts"

// quoted returns the beginning of a name that a peer chose: a board's program does not link package
// scrub.
func quoted(name string) string { return texts.Quote(name[:min(len(name), 64)]) }

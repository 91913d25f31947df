//go:build !tinygo

package device

import (
	"github.com/hubline-iot/hubline/internal/scrub"
	"github.com/hubline-iot/hubline/internal/texts"
)

// quoted returns a name that a peer chose as an error may show it.
func quoted(name string) string { return scrub.Peer(texts.Quote(name)) }

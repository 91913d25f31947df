//go:build !tinygo

package agent

import "github.com/hubline-iot/hubline/internal/scrub"

// peerText returns a text of a peer or a handler as an error or a report may show it.
func peerText(text string) string { return scrub.Peer(text) }

//go:build !tinygo

package statuscode

import "github.com/hubline-iot/hubline/internal/scrub"

// PeerText makes a peer's text safe for an error, and bounds it. On boards it drops the text.
func PeerText(s string) string { return scrub.Peer(s) }

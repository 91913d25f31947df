package statuscode

import "github.com/hubline-iot/hubline/internal/scrub"

// PeerText makes a peer's text safe for an error, and bounds it.
func PeerText(s string) string { return scrub.Peer(s) }

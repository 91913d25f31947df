//go:build !tinygo

package provisioning

import "github.com/hubline-iot/hubline/internal/scrub"

// peerText returns a text of the service as an error may show it.
func peerText(text string) string { return scrub.Peer(text) }

//go:build !tinygo

package status

import "github.com/hubline-iot/hubline/internal/scrub"

func peerText(s string) string { return scrub.Peer(s) }

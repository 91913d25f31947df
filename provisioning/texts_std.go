//go:build !tinygo

package provisioning

import (
	"github.com/hubline-iot/hubline/internal/ascii"
	"github.com/hubline-iot/hubline/internal/scrub"
)

// peerText returns a text of the service as an error may show it.
func peerText(text string) string { return scrub.Peer(text) }

// maxName bounds a name of the service in a text.
const maxName = 100

// quoted returns a text with a name of the service.
func quoted(text, name string) string {
	return peerText(text + ascii.Quote(name[:min(len(name), maxName)]))
}

// hint returns text, which says what may help.
func hint(text string) string { return text }

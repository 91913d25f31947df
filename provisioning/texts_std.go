//go:build !tinygo

package provisioning

import (
	"github.com/hubline-iot/hubline/internal/scrub"
	"github.com/hubline-iot/hubline/internal/texts"
)

// peerText returns a text of the service as an error may show it.
func peerText(text string) string { return scrub.Peer(text) }

// maxName bounds a name of the service in a text.
const maxName = 100

// quoted returns a text with a name of the service.
func quoted(text, name string) string {
	whole := peerText(text + texts.Quote(name)) // a secret cut in two might not be recognized
	if most := len(text) + maxName; len(whole) > most {
		return whole[:most] + `..."`
	}
	return whole
}

// hint returns text, which says what may help.
func hint(text string) string { return text }

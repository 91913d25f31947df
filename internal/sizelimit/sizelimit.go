// Package sizelimit has the text for a message that is too large.
package sizelimit

import (
	"errors"

	"github.com/hubline-iot/hubline/internal/ascii"
)

// Error returns the cause of a TooLarge error for a message of size bytes, body of them its body.
// At most limit are allowed.
func Error(size, body, limit int) error {
	over := " over the limit of " + ascii.Itoa(limit)
	if rest := size - body; rest > body {
		return errors.New("message of " + ascii.Itoa(size) + " bytes, " + ascii.Itoa(rest) + " of them in properties, is" +
			over + "; send fewer or shorter properties")
	}
	return errors.New("message of " + ascii.Itoa(size) + " bytes is" + over + "; split it or upload it as a file")
}

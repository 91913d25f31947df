// Package sizelimit has the text for a message that is too large.
package sizelimit

import (
	"errors"

	"github.com/hubline-iot/hubline/internal/ascii"
)

// Error returns the cause of a TooLarge error for a message of size bytes, of which at most limit
// are allowed.
func Error(size, limit int) error {
	return errors.New("message of " + ascii.Itoa(size) + " bytes is over the limit of " + ascii.Itoa(limit) +
		"; split it or upload it as a file")
}

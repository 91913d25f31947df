// Package sizelimit has the text for a message that is too large.
package sizelimit

import (
	"errors"
	"strconv"
)

// Error is the cause of a TooLarge for a message of size bytes where limit is the most.
func Error(size, limit int) error {
	return errors.New("message of " + strconv.Itoa(size) + " bytes is over the limit of " + strconv.Itoa(limit) +
		"; split it or upload it as a file")
}

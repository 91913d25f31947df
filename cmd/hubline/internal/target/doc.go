// Package target finds out which device the tool is, where its service is, and over what to reach
// it: from a file, the environment or a prompt, and never from the command line where other users
// of the machine read it.
package target

import "errors"

// UsageError is a mistake in the command line or in what belongs to it. Its text has no secret.
type UsageError struct{ Text string }

// Error returns the text.
func (e *UsageError) Error() string { return e.Text }

// IsUsage reports whether err is or wraps a UsageError.
func IsUsage(err error) bool { return errors.As(err, new(*UsageError)) }

func usage(text string) error { return &UsageError{text} }

//go:build !tinygo

package scrub

import (
	"errors"

	"github.com/hubline-iot/hubline/internal/errchain"
)

// Cause returns err if its text is safe for an error, else an error that wraps err with a safe
// text. If a method of err or of an error in its chain panics, as those of a nil pointer may, it
// returns an error with the text alone. On boards it returns err.
func Cause(err error) error {
	if err == nil {
		return nil
	}
	text, ok := inspect(err)
	switch fit := Peer(text); {
	case !ok:
		return errors.New(fit)
	case fit != text:
		return &cause{err, fit}
	}
	return err
}

// inspect returns the text of err, and whether its methods and those of its chain returned.
func inspect(err error) (text string, ok bool) {
	defer func() {
		if !ok {
			recover()
			if text == "" {
				text = "an error whose Error method panics"
			} else {
				text += " (an error whose methods panic)"
			}
		}
	}()
	text = err.Error()
	_, _ = errors.Is(err, new(cause)), errors.As(err, new(*cause)) // call the methods of the chain
	errchain.Any(err, func(err error) bool {
		timeout, ok := err.(interface{ Timeout() bool })
		return ok && timeout.Timeout()
	})
	return text, true
}

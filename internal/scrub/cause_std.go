//go:build !tinygo

package scrub

// Cause returns err if its text is safe for an error, else an error that wraps err with a safe
// text: also when its own Error method panics, as one with a nil receiver may. On boards it returns
// err.
func Cause(err error) error {
	if err == nil {
		return nil
	}
	text, ok := textOf(err)
	if fit := Peer(text); fit != text || !ok {
		return &cause{err, fit}
	}
	return err
}

// textOf returns the text of err, and whether its Error method returned.
func textOf(err error) (text string, ok bool) {
	defer func() {
		if !ok {
			recover()
			text = "an error whose Error method panics"
		}
	}()
	return err.Error(), true
}

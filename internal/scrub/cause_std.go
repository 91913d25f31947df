//go:build !tinygo

package scrub

// Cause returns err if its text is safe for an error, else an error that wraps err with a safe
// text. On boards it returns err.
func Cause(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if fit := Peer(text); fit != text {
		return &cause{err, fit}
	}
	return err
}

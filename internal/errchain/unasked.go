package errchain

// Unasked marks the error of an attempt that ended before the hub was asked: the key did not sign,
// or the provisioning service gave no hub or no certificate. The hub has refused nothing then.
type Unasked struct{ Err error }

func (e Unasked) Error() string { return e.Err.Error() }

// Unwrap returns the error without the mark.
func (e Unasked) Unwrap() error { return e.Err }

// IsUnasked reports whether err or an error that it wraps has the mark.
func IsUnasked(err error) bool {
	return Any(err, func(e error) bool { _, ok := e.(Unasked); return ok })
}

// Package errchain walks the chain of an error, asking several things of each link.
package errchain

// Any reports whether visit returns true for err or an error that it wraps, including several
// causes (Unwrap() []error). It visits depth first, as errors.Is does, and stops at the first true.
func Any(err error, visit func(error) bool) bool { return First(err, visit) != nil }

// First returns the first error in the order of Any for which wanted returns true, nil if there is
// none.
func First(err error, wanted func(error) bool) error {
	for err != nil {
		if wanted(err) {
			return err
		}
		switch u := err.(type) {
		case interface{ Unwrap() error }:
			err = u.Unwrap()
		case interface{ Unwrap() []error }:
			for _, cause := range u.Unwrap() {
				if found := First(cause, wanted); found != nil {
					return found
				}
			}
			return nil
		default:
			return nil
		}
	}
	return nil
}

// Has reports whether target is err or an error that it wraps. Unlike errors.Is it asks no method
// Is: errors of package net match the errors of contexts by theirs.
func Has(err, target error) bool {
	return Any(err, func(e error) bool { return e == target }) //nolint:errorlint // Any walks
}

//go:build !tinygo

package errchain

// Same reports whether err is target, which is a package's error variable: a pointer, as
// errors.New makes it, or a value without fields.
func Same(err, target error) bool { return err == target }

//go:build !tinygo

package errchain

// Same reports whether v is target, which is a pointer or a value without fields, such as a
// package's error variable, made by errors.New or not.
func Same(v, target any) bool { return v == target }

//go:build tinygo

package errchain

import "unsafe"

// Same reports whether err is target, which is a package's error variable: a pointer, as
// errors.New makes it, or a value without fields.
//
// An interface is its type and a pointer, so two words are compared. The operator == would link 4
// KB of reflection, because it also compares structs and strings.
func Same(err, target error) bool {
	return *(*[2]uintptr)(unsafe.Pointer(&err)) == *(*[2]uintptr)(unsafe.Pointer(&target))
}

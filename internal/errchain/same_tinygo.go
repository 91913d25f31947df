//go:build tinygo

package errchain

import "unsafe"

// Same reports whether v is target, which is a pointer or a value without fields, such as a
// package's error variable, made by errors.New or not.
//
// An interface is its type and a pointer, so two words are compared. The operator == would link 4
// KB of reflection, because it also compares structs and strings.
func Same(v, target any) bool {
	return *(*[2]uintptr)(unsafe.Pointer(&v)) == *(*[2]uintptr)(unsafe.Pointer(&target))
}

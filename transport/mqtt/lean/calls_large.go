//go:build !tinygo

package lean

var defaultCalls = AllCalls

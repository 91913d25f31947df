//go:build tinygo

package linked

const all = false

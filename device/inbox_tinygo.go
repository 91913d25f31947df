//go:build tinygo

package device

// reuseDeliveries is whether a message gets the memory of an earlier one: garbage of messages would
// fragment the small heap of a board.
const reuseDeliveries = true

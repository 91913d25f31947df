//go:build !tinygo

package device

// reuseDeliveries is whether a message gets the memory of an earlier one. Here each has its own, so
// a handler that sends Message.Body on without a copy does not change a message in the outbox.
const reuseDeliveries = false

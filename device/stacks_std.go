//go:build !tinygo

package device

// freshStacks has what waits begin on a new goroutine when what dials has ended: dialing needs a
// large stack, which a goroutine keeps for good, and a client spends its life waiting.
const freshStacks = true

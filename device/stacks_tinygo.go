//go:build tinygo

package device

// freshStacks would cost a board memory: all stacks have one size there, and one that is left stays
// until the collector runs, or longer if some word looks like its address.
const freshStacks = false

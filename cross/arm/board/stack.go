package board

// StackSize is the stack that a goroutine of the firmware needs, in bytes: TinyGo's flag
// -stack-size=4kb. The default of most boards is 2 KB, and a stack that overflows destroys other
// memory. New returns an error if there is less.
//
// The deepest goroutine, the client's, takes 2.6 KB. Callbacks of Config run on the same stacks: a
// driver that goes deeper than 1 KB in Dial, Sign or Command needs more.
const StackSize = 4 << 10

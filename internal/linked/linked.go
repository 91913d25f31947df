// Package linked has marks that optional parts of a board's program set when they are used. Code
// that only those parts need is protected by such a mark. The compiler for boards sees the whole
// program. So it knows when nothing sets the mark of a part, and drops the code.
package linked

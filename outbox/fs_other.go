//go:build (!unix || aix) && !windows

package outbox

// Open refuses these systems, since they have no lock; the functions are for the compiler.

func (f osFile) Linked() (bool, error) { return true, nil }

func isFull(error) bool       { return false }
func isUnreadable(error) bool { return false }

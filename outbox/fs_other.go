//go:build (!unix || aix) && !windows

package outbox

// Open refuses these systems because they lack locks. These functions only make the package
// compile.

func (f osFile) Linked() (bool, error) { return true, nil }

func isFull(error) bool       { return false }
func isUnreadable(error) bool { return false }

//go:build unix && !solaris && !illumos && !aix

package outbox

import (
	"os"
	"syscall"
)

// lockFile takes the lock. It ends when the file is closed or the process ends.
func lockFile(f *os.File) error {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}

//go:build unix && !solaris && !illumos && !aix

package outbox

import (
	"os"
	"syscall"
)

// lockFile takes the lock, which ends with the file or the process.
func lockFile(f *os.File) error {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}

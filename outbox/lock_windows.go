package outbox

import (
	"os"
	"syscall"
	"unsafe"
)

var lockFileEx = syscall.NewLazyDLL("kernel32.dll").NewProc("LockFileEx")

const (
	lockfileFailImmediately = 1
	lockfileExclusiveLock   = 2
)

// lockFile takes a lock on the whole file. It ends when the file is closed or the process ends.
func lockFile(f *os.File) error {
	var at syscall.Overlapped
	const all = ^uintptr(0) & 0xffffffff
	ok, _, err := lockFileEx.Call(f.Fd(), lockfileExclusiveLock|lockfileFailImmediately, 0, all, all,
		uintptr(unsafe.Pointer(&at)))
	if ok == 0 {
		return err
	}
	return nil
}

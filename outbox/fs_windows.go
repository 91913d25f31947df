package outbox

import (
	"errors"
	"syscall"
)

// Linked returns true: Windows neither deletes nor renames a file that is open without
// FILE_SHARE_DELETE, nor its folder.
func (f osFile) Linked() (bool, error) { return true, nil }

// The numbers are from winerror.h; package syscall lacks them.
const (
	errorCRC            syscall.Errno = 23
	errorSectorNotFound syscall.Errno = 27
	errorReadFault      syscall.Errno = 30
	errorHandleDiskFull syscall.Errno = 39
	errorDiskFull       syscall.Errno = 112
	errorDiskQuota      syscall.Errno = 1295
)

// isFull reports whether err means that the disk, or the user's quota, is full.
func isFull(err error) bool {
	return errors.Is(err, errorDiskFull) || errors.Is(err, errorHandleDiskFull) || errors.Is(err, errorDiskQuota)
}

// isUnreadable reports whether err concerns the sectors being read, not the file.
func isUnreadable(err error) bool {
	return errors.Is(err, errorCRC) || errors.Is(err, errorSectorNotFound) || errors.Is(err, errorReadFault)
}

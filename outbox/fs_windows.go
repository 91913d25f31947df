package outbox

import (
	"errors"
	"syscall"
)

// Linked returns true: Windows deletes no file that is open without FILE_SHARE_DELETE.
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

// isFull reports whether err says that the disk, or the user's share of it, is full.
func isFull(err error) bool {
	return errors.Is(err, errorDiskFull) || errors.Is(err, errorHandleDiskFull) || errors.Is(err, errorDiskQuota)
}

// isUnreadable reports whether err is about the sectors that were read, not about the file.
func isUnreadable(err error) bool {
	return errors.Is(err, errorCRC) || errors.Is(err, errorSectorNotFound) || errors.Is(err, errorReadFault)
}

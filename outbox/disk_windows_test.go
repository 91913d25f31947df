package outbox_test

import "syscall"

// What a full disk and an unreadable sector are called in winerror.h.
const (
	errDiskFull   = syscall.Errno(112) // ERROR_DISK_FULL
	errUnreadable = syscall.Errno(23)  // ERROR_CRC
)

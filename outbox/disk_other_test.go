//go:build !windows

package outbox_test

import "syscall"

const (
	errDiskFull   = syscall.ENOSPC
	errUnreadable = syscall.EIO
)

//go:build !windows && !tinygo

package retrypolicy_test

import "syscall"

func native(n syscall.Errno) syscall.Errno { return n }

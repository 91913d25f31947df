//go:build unix && !aix

package outbox

import (
	"errors"
	"os"
	"syscall"
)

// openNoFollow opens a file without following symbolic links. O_NONBLOCK keeps the open of a named
// pipe from waiting for a peer; it has no effect on regular files.
func openNoFollow(path string, flag int) (*os.File, error) {
	return os.OpenFile(path, flag|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
}

func (f osFile) Linked() (bool, error) {
	var named syscall.Stat_t
	switch err := syscall.Lstat(f.Name(), &named); {
	case errors.Is(err, os.ErrNotExist):
		return false, nil
	case err != nil:
		return false, &os.PathError{Op: "lstat", Path: f.Name(), Err: err}
	}
	opened := f.info.Sys().(*syscall.Stat_t)
	return named.Dev == opened.Dev && named.Ino == opened.Ino, nil
}

// isFull reports whether err means that the disk, or the user's quota, is full.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// isUnreadable reports whether err concerns the sectors being read, not the file.
func isUnreadable(err error) bool {
	return errors.Is(err, syscall.EIO) || errors.Is(err, syscall.EBADMSG)
}

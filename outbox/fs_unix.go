//go:build unix && !aix

package outbox

import (
	"errors"
	"os"
	"syscall"
)

// openNoFollow opens a file. O_NONBLOCK is for a named pipe in the file's place, whose open would
// wait for a peer; it changes nothing for regular files.
func openNoFollow(path string, flag int) (*os.File, error) {
	return os.OpenFile(path, flag|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
}

func (f osFile) Linked() (bool, error) {
	var st syscall.Stat_t
	if err := syscall.Fstat(int(f.Fd()), &st); err != nil {
		return false, &os.PathError{Op: "fstat", Path: f.Name(), Err: err}
	}
	return st.Nlink > 0, nil
}

// isFull reports whether err says that the disk, or the user's share of it, is full.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// isUnreadable reports whether err is about the sectors that were read, not about the file.
func isUnreadable(err error) bool {
	return errors.Is(err, syscall.EIO) || errors.Is(err, syscall.EBADMSG)
}

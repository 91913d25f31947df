//go:build !unix || aix

package outbox

import (
	"io/fs"
	"os"
)

// openNoFollow checks path before it opens it, for systems without O_NOFOLLOW.
func openNoFollow(path string, flag int) (*os.File, error) {
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "open", Path: path, Err: errNotRegular}
	}
	return os.OpenFile(path, flag, 0o600)
}

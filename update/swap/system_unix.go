//go:build unix

package swap

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
)

// giveTo gives a file the owner in info. It needs root if that is another one.
func giveTo(f *os.File, info fs.FileInfo) {
	if owner, ok := info.Sys().(*syscall.Stat_t); ok {
		_ = f.Chown(int(owner.Uid), int(owner.Gid))
	}
}

// endWithChildren makes the end of c's context kill what c has started, too.
func endWithChildren(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
}

// flush writes the names in a folder to the disk.
func flush(folder string) error {
	f, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

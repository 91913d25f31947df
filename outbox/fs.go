package outbox

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// fileSystem is the part of the operating system that the queue uses. Tests replace it by one that
// fails, stalls or loses power.
type fileSystem interface {
	// Open opens a regular file. It follows no symbolic link at the end of path.
	Open(path string, flag int) (file, error)
	Remove(path string) error
	Rename(from, to string) error
	// List returns the entries of a folder, sorted by name.
	List(folder string) ([]entry, error)
	Exists(path string) bool
	Mkdir(path string) error
	// SyncFolder makes the names in a folder durable.
	SyncFolder(path string) error
	// Lock takes an exclusive lock on f. It ends when f is closed or the process ends.
	Lock(f file) error
}

// file is an open file.
type file interface {
	io.ReaderAt
	io.WriterAt
	Truncate(size int64) error
	Sync() error
	Close() error
	Size() (int64, error)
	// Linked reports whether the file still has the name by which it was opened. A file that was
	// deleted, or moved with its folder, accepts data that the next Open does not find.
	Linked() (bool, error)
}

// entry is a name in a folder.
type entry struct {
	Name    string
	Regular bool // not a folder, a symbolic link or a device
}

// makeFolder is os.MkdirAll for an absolute path, and makes the names of the new folders durable.
func makeFolder(fs fileSystem, folder string) error {
	parent := filepath.Dir(folder)
	if fs.Exists(folder) {
		// A killed process may have made the folder without syncing its name. Errors are ignored, because
		// this user may not be allowed to read the parent.
		_ = fs.SyncFolder(parent)
		return nil
	}
	if parent != folder {
		if err := makeFolder(fs, parent); err != nil {
			return err
		}
	}
	if err := fs.Mkdir(folder); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return fs.SyncFolder(parent)
}

// osFS is the operating system's file system.
type osFS struct{}

func (osFS) Open(path string, flag int) (file, error) {
	f, err := openNoFollow(path, flag)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: path, Err: errNotRegular}
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return osFile{f, info}, nil
}

func (osFS) Remove(path string) error     { return os.Remove(path) }
func (osFS) Rename(from, to string) error { return os.Rename(from, to) }
func (osFS) Mkdir(path string) error      { return os.Mkdir(path, 0o700) }
func (osFS) Lock(f file) error            { return lockFile(f.(osFile).File) }

func (osFS) Exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func (osFS) List(folder string) ([]entry, error) {
	found, err := os.ReadDir(folder)
	entries := make([]entry, len(found))
	for i, e := range found {
		entries[i] = entry{e.Name(), e.Type().IsRegular()}
	}
	return entries, err
}

// SyncFolder does nothing on Windows, which has no fsync of folders: FlushFileBuffers fails on
// them.
func (osFS) SyncFolder(path string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

type osFile struct {
	*os.File
	info os.FileInfo // of the open file
}

func (f osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

var errNotRegular = errors.New("not a regular file; remove it")

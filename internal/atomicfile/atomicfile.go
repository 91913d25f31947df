// Package atomicfile replaces a file as a whole or not at all.
package atomicfile

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Read returns at most limit bytes of a file, nil if it does not exist.
func Read(path string, limit int64) ([]byte, error) {
	in, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer in.Close()
	return io.ReadAll(io.LimitReader(in, limit))
}

// Target returns the file that a symbolic link names, there or not, and path if it is no link.
func Target(path string) string {
	if file, err := filepath.EvalSymlinks(path); err == nil {
		return file
	}
	file, err := os.Readlink(path)
	switch {
	case err != nil:
		return path
	case filepath.IsAbs(file):
		return file
	}
	return filepath.Join(filepath.Dir(path), file)
}

// Write writes a new file with mode 0600, flushes it to the disk and renames it, so that a power
// failure leaves the old file or the new one. The folder must exist. A symbolic link stays, and the
// file that it names is replaced: it may lead to another disk.
func Write(path string, text []byte) (err error) {
	path = Target(path)
	folder := filepath.Dir(path)
	out, err := os.CreateTemp(folder, "."+filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = out.Close()
			_ = os.Remove(out.Name())
		}
	}()
	if _, err = out.Write(text); err != nil {
		return err
	}
	if err = out.Sync(); err != nil {
		return err
	}
	if err = out.Close(); err != nil {
		return err
	}
	if err = os.Rename(out.Name(), path); err != nil {
		return err
	}
	FlushFolder(folder)
	return nil
}

// FlushFolder writes the names of files in a folder to the disk. Not every system can do that, so
// there is no error.
func FlushFolder(path string) {
	if d, err := os.Open(path); err == nil {
		_ = d.Sync()
		_ = d.Close()
	}
}

// JSON is a file that contains a T.
type JSON[T any] struct {
	Path    string
	Limit   int64 // of the bytes that Load reads
	Damaged error // what Load returns for a file that contains none
}

// Load returns the value in the file, nil if the file does not exist.
func (f JSON[T]) Load() (*T, error) {
	text, err := Read(f.Path, f.Limit)
	if text == nil || err != nil {
		return nil, err
	}
	var v T
	if json.Unmarshal(text, &v) != nil {
		return nil, f.Damaged
	}
	return &v, nil
}

// Save replaces the file.
func (f JSON[T]) Save(v *T) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return Write(f.Path, text)
}

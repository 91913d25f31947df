package dpstransport

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hubline-iot/hubline/provisioning"
)

// Record is a stored assignment.
type Record struct {
	// Registration names the registration that the assignment is for; another device ignores it.
	Registration string
	Assignment   provisioning.Assignment
}

// A Store keeps a Record over restarts. The goroutine that connects calls it.
type Store interface {
	// Load returns the stored Record, nil if there is none.
	Load() (*Record, error)
	// Save replaces the stored Record, as a whole or not at all.
	Save(r *Record) error
}

// File returns a Store that is a file with mode 0600. Save writes a new file, flushes it to the
// disk and renames it, so that a power failure leaves the old file or the new one. The folder must
// exist.
func File(path string) Store { return file(path) }

type file string

// maxFile bounds the file that Load reads.
const maxFile = 256 << 10

var errDamaged = errors.New("the stored assignment is damaged; it will be replaced")

func (f file) Load() (*Record, error) {
	in, err := os.Open(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer in.Close()
	text, err := io.ReadAll(io.LimitReader(in, maxFile))
	if err != nil {
		return nil, err
	}
	var r Record
	if json.Unmarshal(text, &r) != nil {
		return nil, errDamaged
	}
	return &r, nil
}

func (f file) Save(r *Record) (err error) {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	folder := filepath.Dir(string(f))
	out, err := os.CreateTemp(folder, "."+filepath.Base(string(f))+".*") // mode 0600
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
	if err = os.Rename(out.Name(), string(f)); err != nil {
		return err
	}
	if d, openErr := os.Open(folder); openErr == nil { // not on every system
		_ = d.Sync()
		_ = d.Close()
	}
	return nil
}

package dpstransport

import (
	"errors"

	"github.com/hubline-iot/hubline/internal/atomicfile"
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
func File(path string) Store {
	return atomicfile.JSON[Record]{Path: path, Limit: maxFile, Damaged: errDamaged}
}

// maxFile bounds the file that Load reads.
const maxFile = 256 << 10

var errDamaged = errors.New("the stored assignment is damaged; it will be replaced")

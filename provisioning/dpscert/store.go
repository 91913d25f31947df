package dpscert

import (
	"errors"

	"github.com/hubline-iot/hubline/internal/atomicfile"
)

// Record has the certificates of a device, the newest first. There are at most two: the second one
// is used if the hub refuses the first.
type Record struct {
	Certificates []Issued
}

// Issued is an issued certificate.
type Issued struct {
	// Chain is the certificate with its intermediate certificates, each in DER.
	Chain [][]byte
	// Key is the name of its key, as Options.NewKey returned it. Empty: the key given to New.
	Key string
}

// A Store keeps a Record over restarts. It contains no private key. One goroutine at a time calls
// it.
type Store interface {
	// Load returns the stored Record, nil if there is none or it is lost for good. After an error the
	// connection is tried again later, and nothing is saved before Load has succeeded. With a
	// Registrar that lasts ten minutes.
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
const maxFile = 1 << 20

var errDamaged = errors.New("the stored certificates are damaged; they will be replaced")

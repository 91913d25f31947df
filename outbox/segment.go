package outbox

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// A segment is a file of records. Its name is the number of its first record, in 16 hexadecimal
// digits, and its salt, in 8. The Queue's mutex guards all fields, but not the file's contents.
type segment struct {
	path   string
	salt   uint32
	first  uint64 // number of the first record
	next   uint64 // number behind the last
	synced uint64 // records below are durable
	named  bool   // its name is durable
	size   int64  // bytes of the records
	file   file   // nil once the segment is not written to any more
	lost   error  // the error of a failed fsync: it is unknown which records the disk has
}

const suffix = ".messages"

// maxNumber is the maximum number in a name. Only foreign files have larger ones, which would
// overflow and hide messages.
const maxNumber = 1 << 62

func segmentName(first uint64, salt uint32) string {
	return digits(first, 16) + "-" + digits(uint64(salt), 8) + suffix
}

func digits(n uint64, width int) string {
	s := strconv.FormatUint(n, 16)
	return strings.Repeat("0", width-len(s)) + s
}

// parseName parses a segment's name.
func parseName(name string) (first uint64, salt uint32, ok bool) {
	left, ok := strings.CutSuffix(name, suffix)
	if !ok || len(left) != 16+1+8 || left[16] != '-' {
		return 0, 0, false
	}
	first, err := strconv.ParseUint(left[:16], 16, 64)
	if err != nil || first > maxNumber {
		return 0, 0, false
	}
	low, err := strconv.ParseUint(left[17:], 16, 32)
	return first, uint32(low), err == nil
}

// createSegment makes an empty segment for records from number first on.
func createSegment(fs fileSystem, folder string, first uint64) (*segment, error) {
	salt := rand.Uint32()
	path := filepath.Join(folder, segmentName(first, salt))
	f, err := fs.Open(path, os.O_CREATE|os.O_EXCL|os.O_RDWR)
	if err != nil {
		return nil, err
	}
	return &segment{path: path, salt: salt, first: first, next: first, synced: first, file: f}, nil
}

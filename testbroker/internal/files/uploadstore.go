package files

import (
	"math"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// Container is the name of the store's container for uploads.
const Container = "uploads"

// maxUploadBytes is how many bytes all uploads may have, with their staged blocks. They count as
// those of containers do.
const maxUploadBytes = 512 << 20

// uploadStore is the container of the uploads. A file has an entry from the beginning of its upload
// on, and only then.
type uploadStore struct {
	*BlobContainer
	Keys blobKeys
}

// init makes the container. With digest contents are not kept, so they need no room.
func (s *uploadStore) init(now func() time.Time, tags *blobTags, digest bool) {
	most := int64(maxUploadBytes)
	if digest {
		most = math.MaxInt64 / 2
	}
	of := new(Containers)
	of.init(now, tags, most, blobUploadsFull)
	s.BlobContainer = &BlobContainer{Name: Container, of: of, named: true, blobs: make(map[string]*storedBlob)}
	s.Keys.init()
}

// Names returns the names of all files, sorted.
func (s *uploadStore) Names() []string {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	return slices.Clone(s.files)
}

// expect makes an entry for the file of an upload.
func (s *uploadStore) expect(name, upload string) {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	b := s.blobs[name]
	if b == nil {
		b = &storedBlob{staged: make(map[string]hubdata.BlobBlock)}
		s.blobs[name] = b
		s.of.used += b.cost(name)
		s.of.blobs++
	}
	b.upload = upload
}

// forget drops the content of an upload, unless a newer upload has the same name.
func (s *uploadStore) forget(name, upload string) {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	if b := s.blobs[name]; b != nil && b.upload == upload {
		s.dropLocked(name)
	}
}

func (s *uploadStore) clear() {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.emptyLocked()
}

// SetMetadata refuses: the metadata of an upload come with its content.
func (s *uploadStore) SetMetadata(string, map[string]string, BlobCheck) (hubdata.Blob, *BlobError) {
	return hubdata.Blob{}, BlobNoRight
}

// Delete refuses: the hub forgets the uploads itself.
func (s *uploadStore) Delete(string, BlobCheck) *BlobError { return BlobNoRight }

// List refuses: Names has the names.
func (s *uploadStore) List(string, string, string, int) ([]BlobEntry, string, *BlobError) {
	return nil, "", BlobNoRight
}

// ValidBlobName reports whether name is a valid blob name. Control characters are not valid: a line
// break would separate fields of the text that a SAS signs.
func ValidBlobName(name string) bool {
	segments := strings.Split(name, "/")
	for _, s := range segments {
		if s == "" || s == "." || s == ".." {
			return false
		}
	}
	return utf8.ValidString(name) && utf8.RuneCountInString(name) <= 1024 && len(segments) <= 254 &&
		!strings.HasSuffix(name, ".") && !strings.ContainsFunc(name, unicode.IsControl)
}

// IsXML reports whether XML, and so a list of blobs, can hold a text as it is.
func IsXML(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0xFFFE || r == 0xFFFF })
}

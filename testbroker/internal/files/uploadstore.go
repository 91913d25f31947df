package files

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// Container is the name of the store's container for uploads.
const Container = "uploads"

// uploadStore is the container of the uploads. A file has an entry from the beginning of its upload
// on, and only then.
type uploadStore struct {
	Keys   blobKeys
	tags   *blobTags
	digest bool // contents are not kept, so they need no room

	mu       sync.Mutex
	blobs    map[string]*storedBlob
	used     int64 // bytes
	reserved int64 // bytes of requests that run
}

// maxUploadBytes is how many bytes all uploads may have, with their staged blocks. They count as
// those of containers do.
const maxUploadBytes = 512 << 20

func (s *uploadStore) Get(name string) (hubdata.Blob, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.blobs[name].get()
}

// Names returns the names of all files, sorted.
func (s *uploadStore) Names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s.blobs)),
		func(name string) bool { return s.blobs[name].file == nil })
}

func (s *uploadStore) size(name string) (int64, bool) {
	b, ok := s.Get(name)
	return b.Size, ok
}

// expect makes an entry for the file of an upload.
func (s *uploadStore) expect(name, upload string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.blobs[name]
	if b == nil {
		b = &storedBlob{staged: make(map[string]hubdata.BlobBlock)}
		s.blobs[name] = b
		s.used += b.cost(name)
	}
	b.upload = upload
}

// forget drops the content of an upload, unless a newer upload has the same name.
func (s *uploadStore) forget(name, upload string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.blobs[name]; b != nil && b.upload == upload {
		s.used -= b.cost(name)
		delete(s.blobs, name)
	}
}

func (s *uploadStore) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.blobs)
	s.used = 0
}

// Reserve keeps room for a change of at most n bytes until release.
func (s *uploadStore) Reserve(n int64) (release func(), bad *BlobError) {
	if s.digest {
		return func() {}, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used+s.reserved+n > maxUploadBytes {
		return nil, blobUploadsFull
	}
	s.reserved += n
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.reserved -= n
	}, nil
}

// change lets do change the entry of a name, if the condition holds, and returns the file.
func (s *uploadStore) change(name string, when BlobCheck, do func(*storedBlob) *BlobError) (hubdata.Blob, *BlobError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.blobs[name]
	if b == nil {
		return hubdata.Blob{}, BlobExpired // the URI expired while the body arrived
	}
	before := b.cost(name)
	bad := when(b.file)
	if bad == nil {
		bad = do(b)
	}
	s.used += b.cost(name) - before
	file, _ := b.get()
	return file, bad
}

// Put stores a file sent in a single request. Staged blocks are dropped.
func (s *uploadStore) Put(file hubdata.Blob, when BlobCheck) (hubdata.Blob, *BlobError) {
	return s.change(file.Name, when, func(b *storedBlob) *BlobError {
		b.replace(file, s.tags.next())
		return nil
	})
}

// Stage keeps a block for a later Commit and replaces a staged block with the same ID.
func (s *uploadStore) Stage(name string, part hubdata.BlobBlock) *BlobError {
	_, bad := s.change(name, Anyway, func(b *storedBlob) *BlobError { return b.stage(part) })
	return bad
}

// Commit makes a file of blocks. Staged blocks that are not in the list are dropped. A block may be
// in a file several times: the size of the file counts.
func (s *uploadStore) Commit(file hubdata.Blob, list []ListedBlock, when BlobCheck) (hubdata.Blob, *BlobError) {
	return s.change(file.Name, when, func(b *storedBlob) *BlobError {
		if bad := b.assemble(&file, list); bad != nil {
			return bad
		}
		size := int64(0)
		for _, part := range file.Blocks {
			size += part.Size
		}
		if !s.digest && s.used-b.cost(file.Name)+size > maxUploadBytes {
			return blobUploadsFull
		}
		b.replace(file, s.tags.next())
		return nil
	})
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

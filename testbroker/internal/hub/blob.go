package hub

import (
	"slices"
	"sync"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// blobStore is one container of a blob store.
type blobStore struct {
	Keys blobKeys

	mu    sync.Mutex
	blobs map[string]*storedBlob
}

// A storedBlob is the store's entry for a name for which there was an upload. It has a file, staged
// blocks that may become one, both, or neither.
type storedBlob struct {
	upload string // correlation id of the newest upload of that name
	file   *hubdata.Blob
	staged map[string]hubdata.BlobBlock // by ID
}

// maxStaged is how many staged blocks one file may have.
const maxStaged = 100_000

func (s *blobStore) Get(name string) (hubdata.Blob, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.blobs[name]
	if b == nil || b.file == nil {
		return hubdata.Blob{}, false
	}
	out := *b.file
	out.Blocks, out.MD5 = slices.Clone(out.Blocks), slices.Clone(out.MD5)
	return out, true
}

func (s *blobStore) size(name string) (int64, bool) {
	b, ok := s.Get(name)
	return b.Size, ok
}

// expect makes an entry for the file of an upload.
func (s *blobStore) expect(name, upload string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.blobs[name]
	if b == nil {
		b = &storedBlob{staged: make(map[string]hubdata.BlobBlock)}
		s.blobs[name] = b
	}
	b.upload = upload
}

// forget drops the content of an upload, unless a newer upload has the same name.
func (s *blobStore) forget(name, upload string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.blobs[name]; b != nil && b.upload == upload {
		delete(s.blobs, name)
	}
}

// Put stores a file sent in a single request. Staged blocks are dropped.
func (s *blobStore) Put(file hubdata.Blob) *BlobError {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.blobs[file.Name]
	if b == nil {
		return BlobExpired // the URI expired while the body arrived
	}
	s.replaceLocked(b, file)
	return nil
}

func (s *blobStore) replaceLocked(b *storedBlob, file hubdata.Blob) {
	if b.file != nil {
		file.Version = b.file.Version
	}
	file.Version++
	for _, part := range file.Blocks {
		file.Size += part.Size
	}
	b.file = &file
	clear(b.staged)
}

// Stage keeps a block for a later Commit and replaces a staged block with the same ID.
func (s *blobStore) Stage(name string, part hubdata.BlobBlock) *BlobError {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.blobs[name]
	if b == nil {
		return BlobExpired
	}
	for id := range b.staged {
		if len(id) != len(part.ID) {
			return blobInvalidBlock
		}
		break // all other IDs have the same length
	}
	if _, again := b.staged[part.ID]; !again && len(b.staged) >= maxStaged {
		return blobTooManyStaged
	}
	b.staged[part.ID] = part
	return nil
}

// A ListedBlock is an entry of a block list.
type ListedBlock struct {
	ID                   string
	Staged, Stored, Both bool // where the block is looked up; both: staged blocks first
}

// Commit makes a file of blocks. Staged blocks that are not in the list are dropped.
func (s *blobStore) Commit(file hubdata.Blob, list []ListedBlock) *BlobError {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.blobs[file.Name]
	if b == nil {
		return BlobExpired
	}
	old := make(map[string]hubdata.BlobBlock)
	if b.file != nil {
		for _, part := range b.file.Blocks {
			old[part.ID] = part
		}
	}
	for _, entry := range list {
		part, ok := b.staged[entry.ID]
		if entry.Stored || entry.Both && !ok {
			part, ok = old[entry.ID]
		}
		if !ok || entry.ID == "" {
			return blobUnknownBlock
		}
		file.Blocks = append(file.Blocks, part)
	}
	s.replaceLocked(b, file)
	return nil
}

// A BlobError is the store's refusal of a request. Source: the pages "Common REST API error codes"
// and "Blob service error codes" of the storage services' REST reference.
type BlobError struct {
	Status  int
	Code    string
	Message string
}

var (
	BlobNoAuthentication = &BlobError{401, "NoAuthenticationInformation",
		"Server failed to authenticate the request. Please refer to the information in the www-authenticate header."}
	BlobBadSignature = &BlobError{403, "AuthenticationFailed",
		"Server failed to authenticate the request. Make sure the value of Authorization header is formed correctly " +
			"including the signature."}
	BlobExpired = BlobBadSignature // the service gives the reason only in a detail
	blobNoRight = &BlobError{403, "AuthorizationPermissionMismatch",
		"This request is not authorized to perform this operation using this permission."}
	blobInvalidBlock  = &BlobError{400, "InvalidBlobOrBlock", "The specified blob or block content is invalid."}
	blobUnknownBlock  = &BlobError{400, "InvalidBlockList", "The specified block list is invalid."}
	blobTooManyStaged = &BlobError{409, "BlockCountExceedsLimit",
		"The uncommitted block count cannot exceed the maximum limit of 100,000 blocks."}
)

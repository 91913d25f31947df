package hub

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

// Blob is a file in the store.
type Blob struct {
	// Name is the name in the container: the device id, a slash, and the rest.
	Name string
	// Size is the size of the whole file in bytes.
	Size int64
	// Blocks are the parts of the file, in order. A file stored by a single request has one.
	Blocks []BlobBlock
	// MD5 is the hash of the whole file that the device stated; nil if it stated none. The store does
	// not check it.
	MD5 []byte
	// ContentType is the content type that the device stated.
	ContentType string
	// Stored is when this version of the file was stored. Version counts how often a file of this name
	// was stored.
	Stored  time.Time
	Version int

	keeps bool
}

// BlobBlock is a part of a file.
type BlobBlock struct {
	// ID is the base64 name that the device gave the block; empty for a file stored by a single
	// request.
	ID string
	// Size is the size in bytes.
	Size int64
	// SHA256 is the hash of the content.
	SHA256 [sha256.Size]byte

	body []byte // nil with UploadOptions.Digest
}

// Bytes returns the content. It fails if the store keeps only hashes.
func (b Blob) Bytes() ([]byte, error) {
	if !b.keeps {
		return nil, errors.New("testbroker: UploadOptions.Digest is set, so the store has no content")
	}
	out := make([]byte, 0, b.Size)
	for _, part := range b.Blocks {
		out = append(out, part.body...)
	}
	return out, nil
}

// Matches compares the file with the content of r, block by block, and returns nil if they are
// equal.
func (b Blob) Matches(r io.Reader) error {
	var at int64
	for i, part := range b.Blocks {
		sum := sha256.New()
		n, err := io.CopyN(sum, r, part.Size)
		if err != nil {
			return fmt.Errorf("testbroker: block %d of %s: at byte %d: %w", i, b.Name, at+n, err)
		}
		if !bytes.Equal(sum.Sum(nil), part.SHA256[:]) {
			return fmt.Errorf("testbroker: block %d of %s, bytes %d to %d: other content", i, b.Name, at, at+n)
		}
		at += n
	}
	switch n, err := io.Copy(io.Discard, r); {
	case err != nil:
		return fmt.Errorf("testbroker: after %s: %w", b.Name, err)
	case n > 0:
		return fmt.Errorf("testbroker: %s has %d bytes, %d too few", b.Name, b.Size, n)
	}
	return nil
}

// blobStore is one container of a blob store.
type blobStore struct {
	Keys   blobKeys
	digest bool // keep only hashes

	mu    sync.Mutex
	blobs map[string]*storedBlob
}

// A storedBlob is the store's entry for a name for which there was an upload. It has a file, staged
// blocks that may become one, both, or neither.
type storedBlob struct {
	upload string // correlation id of the newest upload of that name
	file   *Blob
	staged map[string]BlobBlock // by ID
}

// maxStaged is how many staged blocks one file may have.
const maxStaged = 100_000

func (s *blobStore) Get(name string) (Blob, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.blobs[name]
	if b == nil || b.file == nil {
		return Blob{}, false
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
		b = &storedBlob{staged: make(map[string]BlobBlock)}
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
func (s *blobStore) Put(file Blob) *BlobError {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.blobs[file.Name]
	if b == nil {
		return BlobExpired // the URI expired while the body arrived
	}
	s.replaceLocked(b, file)
	return nil
}

func (s *blobStore) replaceLocked(b *storedBlob, file Blob) {
	if b.file != nil {
		file.Version = b.file.Version
	}
	file.Version++
	for _, part := range file.Blocks {
		file.Size += part.Size
	}
	file.keeps = !s.digest
	b.file = &file
	clear(b.staged)
}

// Stage keeps a block for a later Commit and replaces a staged block with the same ID.
func (s *blobStore) Stage(name string, part BlobBlock) *BlobError {
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
func (s *blobStore) Commit(file Blob, list []ListedBlock) *BlobError {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.blobs[file.Name]
	if b == nil {
		return BlobExpired
	}
	old := make(map[string]BlobBlock)
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

// NewBlock returns a block of a file. Its content is nil in a store that keeps only hashes.
func NewBlock(id string, size int64, sum [sha256.Size]byte, content []byte) BlobBlock {
	return BlobBlock{ID: id, Size: size, SHA256: sum, body: content}
}

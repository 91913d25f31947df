package files

import (
	"fmt"
	"maps"
	"slices"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// A storedBlob is a store's entry for a name. It has a file, staged blocks that may become one,
// both, or neither. The store's lock guards it.
type storedBlob struct {
	upload string // of the store of uploads: correlation id of the newest upload of that name
	file   *hubdata.Blob
	staged map[string]hubdata.BlobBlock // by ID
	waits  int64                        // bytes of the staged blocks, with their IDs
	ids    int64                        // bytes of the IDs of the file's blocks
}

// maxStaged is how many staged blocks one file may have.
const maxStaged = 100_000

// A BlobCheck is the condition of a change: it gets the present file, nil if there is none, and
// returns the refusal.
type BlobCheck func(old *hubdata.Blob) *BlobError

// Anyway is the condition of a change without one.
func Anyway(*hubdata.Blob) *BlobError { return nil }

// get returns a copy of the file; false if there is none. b may be nil.
func (b *storedBlob) get() (hubdata.Blob, bool) {
	if b == nil || b.file == nil {
		return hubdata.Blob{}, false
	}
	out := *b.file
	out.Blocks, out.MD5, out.Metadata = slices.Clone(out.Blocks), slices.Clone(out.MD5), maps.Clone(out.Metadata)
	return out, true
}

// tag returns the ETag of the file; empty if there is none.
func (b *storedBlob) tag() string {
	if b.file == nil {
		return ""
	}
	return b.file.ETag
}

// replace stores a file. Staged blocks are dropped.
func (b *storedBlob) replace(file hubdata.Blob, etag string) {
	if b.file != nil {
		file.Version = b.file.Version
	}
	file.Version++
	file.ETag, file.Size = etag, 0
	b.ids = 0
	for _, part := range file.Blocks {
		file.Size += part.Size
		b.ids += int64(len(part.ID))
	}
	b.file, b.waits = &file, 0
	clear(b.staged)
}

// stage keeps a block for a later commit and replaces a staged block with the same ID.
func (b *storedBlob) stage(part hubdata.BlobBlock) *BlobError {
	for id := range b.staged {
		if len(id) != len(part.ID) {
			return blobInvalidBlock
		}
		break // all other IDs have the same length
	}
	old, again := b.staged[part.ID]
	if !again && len(b.staged) >= maxStaged {
		return blobTooManyStaged
	}
	b.staged[part.ID] = part
	b.waits += part.Size + int64(len(part.ID)) - old.Size - int64(len(old.ID))
	return nil
}

// A ListedBlock is an entry of a block list.
type ListedBlock struct {
	ID                   string
	Staged, Stored, Both bool // where the block is looked up; both: staged blocks first
}

// assemble adds the blocks of a list to a file.
func (b *storedBlob) assemble(file *hubdata.Blob, list []ListedBlock) *BlobError {
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
	BlobNoRight = &BlobError{403, "AuthorizationPermissionMismatch",
		"This request is not authorized to perform this operation using this permission."}
	blobWrongProtocol = &BlobError{403, "AuthorizationProtocolMismatch",
		"This request is not authorized to perform this operation using this protocol."}
	BlobNotFound      = &BlobError{404, "BlobNotFound", "The specified blob does not exist."}
	blobInvalidBlock  = &BlobError{400, "InvalidBlobOrBlock", "The specified blob or block content is invalid."}
	blobUnknownBlock  = &BlobError{400, "InvalidBlockList", "The specified block list is invalid."}
	blobTooManyStaged = &BlobError{409, "BlockCountExceedsLimit",
		"The uncommitted block count cannot exceed the maximum limit of 100,000 blocks."}
	BlobNoContainer     = &BlobError{404, "ContainerNotFound", "The specified container does not exist."}
	blobContainerExists = &BlobError{409, "ContainerAlreadyExists", "The specified container already exists."}
	blobStoreFull       = &BlobError{413, "RequestBodyTooLarge", fmt.Sprintf(
		"The containers of this hub hold at most %d containers, %d blobs and %d bytes; delete some.",
		maxContainers, maxContainerBlobs, maxContainerBytes)}
	blobUploadsFull = &BlobError{413, "RequestBodyTooLarge", fmt.Sprintf("The uploads of this hub hold at most %d bytes; "+
		"set UploadOptions.Digest to keep hashes only.", maxUploadBytes)}
)

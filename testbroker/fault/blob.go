package fault

import (
	"fmt"
)

// BlobOperation is the operation of a request to the store.
type BlobOperation uint8

const (
	// BlobAny means all operations.
	BlobAny BlobOperation = iota
	// PutBlob stores a file in a single request.
	PutBlob
	// PutBlock stores a block that may become part of a file.
	PutBlock
	// PutBlockList makes a file of blocks.
	PutBlockList
	// GetBlob reads a file or its properties.
	GetBlob
)

var blobOperationNames = [...]string{"any", "Put Blob", "Put Block", "Put Block List", "Get Blob"}

// String returns the name in the service's documents.
func (o BlobOperation) String() string {
	if int(o) < len(blobOperationNames) {
		return blobOperationNames[o]
	}
	return fmt.Sprintf("BlobOperation(%d)", uint8(o))
}

package hub

import "fmt"

// Faults of requests to the store, over HTTP, whose upload URI was found good. Those of requests
// over HTTP happen there too; [Fault.Blob] chooses for both.
const (
	// CutBlobBody cuts the connection by RST when half of the body was read. Nothing is stored. It
	// happens to files and blocks.
	CutBlobBody FaultKind = iota + 230
	// SlowBlob goes on with the request only after Delay. Until then its body is not read.
	SlowBlob
	// DamageBlob changes a byte of the body on its way. It happens to files and blocks.
	DamageBlob
	// ExpireUpload ends the time of the upload at this request, which is refused.
	ExpireUpload
)

// BlobOperation is what a request wants of the store.
type BlobOperation uint8

const (
	// BlobAny stands for all.
	BlobAny BlobOperation = iota
	// PutBlob stores a file in one go.
	PutBlob
	// PutBlock stores a block that may become part of a file.
	PutBlock
	// PutBlockList makes a file of blocks.
	PutBlockList
	// GetBlob reads a file, or what is known of it.
	GetBlob
)

var blobOperationNames = [...]string{"any", "Put Blob", "Put Block", "Put Block List", "Get Blob"}

// String gives the name that the service's documents use.
func (o BlobOperation) String() string {
	if int(o) < len(blobOperationNames) {
		return blobOperationNames[o]
	}
	return fmt.Sprintf("BlobOperation(%d)", uint8(o))
}

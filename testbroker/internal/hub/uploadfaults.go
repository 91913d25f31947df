package hub

import "fmt"

// Faults of HTTP requests to the store whose upload URI is valid. The faults of HTTP requests
// happen there too; [Fault.Blob] selects the operation for both.
const (
	CutBlobBody FaultKind = iota + 230
	SlowBlob
	DamageBlob
	ExpireUpload
)

// BlobOperation is the operation of a request to the store.
type BlobOperation uint8

const (
	BlobAny BlobOperation = iota
	PutBlob
	PutBlock
	PutBlockList
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

package hub

import "fmt"

// Faults of requests to the store, over HTTP, whose upload URI was found good. Those of requests
// over HTTP happen there too; [Fault.Blob] chooses for both.
const (
	CutBlobBody FaultKind = iota + 230
	SlowBlob
	DamageBlob
	ExpireUpload
)

// BlobOperation is what a request wants of the store.
type BlobOperation uint8

const (
	BlobAny BlobOperation = iota
	PutBlob
	PutBlock
	PutBlockList
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

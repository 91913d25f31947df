package hubdata

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"time"
)

// MaxUploads is how many uploads of a device may run at a time.
const MaxUploads = 10

// UploadState is the state of an upload.
type UploadState uint8

const (
	// UploadRunning: the device has received the upload URI, and has not reported the result.
	UploadRunning UploadState = iota
	// UploadSucceeded: the device has reported success.
	UploadSucceeded
	// UploadFailed: the device has reported failure.
	UploadFailed
	// UploadExpired: its time limit has passed.
	UploadExpired
)

var uploadStateNames = [...]string{"running", "succeeded", "failed", "expired"}

// String returns the name of the state.
func (s UploadState) String() string {
	if int(s) < len(uploadStateNames) {
		return uploadStateNames[s]
	}
	return fmt.Sprintf("UploadState(%d)", uint8(s))
}

// Upload is the hub's record of an upload.
type Upload struct {
	// DeviceID is the device that uploads.
	DeviceID string
	// Blob is the file's name in the store: the device id, a slash, and the name that the device
	// requested.
	Blob string
	// CorrelationID is the hub's id of the upload.
	CorrelationID string
	// Started and Expires are times of the hub's clock.
	Started, Expires time.Time

	State UploadState
	// Ended is when the device reported the result. StatusCode and StatusDescription are that report,
	// and Size is the file's size at that time. A back end is notified of successful uploads.
	Ended             time.Time
	StatusCode        int
	StatusDescription string
	Size              int64
}

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
	// ContentType, ContentEncoding, ContentLanguage, ContentDisposition and CacheControl are what the
	// writer stated for these headers of HTTP. The store gives them back.
	ContentType, ContentEncoding, ContentLanguage, ContentDisposition, CacheControl string
	// Stored is when this version of the file was stored. Version counts how often a file of this name
	// was stored.
	Stored  time.Time
	Version int
	// ETag changes with each change of the file or of its metadata.
	ETag string
	// Metadata is what the writer stated about the file, by names in lower case.
	Metadata map[string]string
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
	// Content is nil if [UploadOptions.Digest] is set.
	Content []byte
}

// Bytes returns the content. It fails if the store keeps only hashes.
func (b Blob) Bytes() ([]byte, error) {
	out := make([]byte, 0, b.Size)
	for _, part := range b.Blocks {
		if part.Content == nil && part.Size > 0 {
			return nil, errors.New("testbroker: UploadOptions.Digest is set, so the store has no content")
		}
		out = append(out, part.Content...)
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

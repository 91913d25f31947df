package testbroker

import (
	"context"

	"github.com/hubline-iot/hubline/testbroker/internal/hub"
)

// MaxUploads is how many uploads of a device may run at a time.
const MaxUploads = hub.MaxUploads

// UploadState says how far an upload is.
type UploadState = hub.UploadState

const (
	// UploadRunning: the device was told where to put the file, and has not said how that went.
	UploadRunning = hub.UploadRunning
	// UploadSucceeded: the device said that the file is in the store.
	UploadSucceeded = hub.UploadSucceeded
	// UploadFailed: the device said that it gave up.
	UploadFailed = hub.UploadFailed
	// UploadExpired: its time is over.
	UploadExpired = hub.UploadExpired
)

// Upload is the hub's record of an upload.
type Upload = hub.Upload

// Uploads returns the uploads, in the order in which they were begun.
func (h *Hub) Uploads() []Upload { return h.hub.Uploads() }

// WaitUploads waits until devices have told the end of at least n uploads, good or bad. It fails
// when the context ends or the hub is closed.
func (h *Hub) WaitUploads(ctx context.Context, n int) error { return h.hub.WaitUploads(ctx, n) }

// ExpireUploads ends the time of all uploads of a device that are running; empty means of all
// devices. Upload URIs given out until now are worth nothing any more. It returns how many that
// were.
func (h *Hub) ExpireUploads(device string) int { return h.hub.ExpireUploads(device) }

// Blob returns a file of the store. It goes when the last upload of its name is forgotten: see
// [Options.Keep].
func (h *Hub) Blob(name string) (Blob, bool) { return h.hub.Blob(name) }

// Blobs returns the names of all files in the store, sorted.
func (h *Hub) Blobs() []string { return h.hub.Blobs() }

// Blob is a file in the store.
type Blob = hub.Blob

// BlobBlock is a part of a file.
type BlobBlock = hub.BlobBlock

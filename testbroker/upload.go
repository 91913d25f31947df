package testbroker

import (
	"context"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// Uploads returns the uploads, in the order in which they began.
func (h *Hub) Uploads() []hubdata.Upload { return h.hub.Files.Uploads.List() }

// WaitUploads waits until devices have reported the end of at least n uploads, success or failure.
// It fails when the context ends or the hub is closed.
func (h *Hub) WaitUploads(ctx context.Context, n int) error {
	return h.hub.Until(ctx, func() bool { return h.hub.Files.Uploads.Reported() >= n })
}

// ExpireUploads makes all running uploads of a device expire, and their upload URIs invalid; empty
// means all devices. It returns the number of uploads.
func (h *Hub) ExpireUploads(device string) int { return h.hub.Files.Uploads.ExpireAll(device) }

// Blob returns a file of the store. The hub drops it when it forgets the last upload of its name:
// see [Options.Keep].
func (h *Hub) Blob(name string) (hubdata.Blob, bool) { return h.hub.Files.Uploads.Store.Get(name) }

// Blobs returns the names of all files in the store, sorted.
func (h *Hub) Blobs() []string { return h.hub.Files.Uploads.Store.Names() }

package hub

import (
	"net/url"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/document"
	"github.com/hubline-iot/hubline/testbroker/internal/files"
	"github.com/hubline-iot/hubline/testbroker/internal/keep"
)

// feedbackRecord is the outcome of a C2D message as back ends get it.
type feedbackRecord struct {
	OriginalMessageID  string `json:"originalMessageId"`
	Description        string `json:"description"`
	DeviceGenerationID string `json:"deviceGenerationId"`
	DeviceID           string `json:"deviceId"`
	ModuleID           string `json:"moduleId,omitempty"`
	EnqueuedTimeUTC    string `json:"enqueuedTimeUtc"`
	StatusCode         string `json:"statusCode"`
}

// feedback adds the outcome of a C2D message to the queue for back ends.
func (h *Hub) feedback(e *QueuedC2D) {
	h.notices[Feedback].add(keep.MustJSON([]feedbackRecord{{
		OriginalMessageID: e.C2D.MessageID, Description: e.Feedback, StatusCode: e.Feedback,
		DeviceGenerationID: e.generation, DeviceID: e.DeviceID, ModuleID: e.ModuleID,
		EnqueuedTimeUTC: document.TimeText(e.Ended),
	}}))
}

// fileNotification is an upload as back ends get it.
type fileNotification struct {
	DeviceID        string `json:"deviceId"`
	BlobURI         string `json:"blobUri"`
	BlobName        string `json:"blobName"`
	LastUpdatedTime string `json:"lastUpdatedTime"`
	BlobSizeInBytes int64  `json:"blobSizeInBytes"`
	EnqueuedTimeUTC string `json:"enqueuedTimeUtc"`
}

// NotifyUpload notifies back ends of an upload if it has succeeded. host is the name of the store.
func (h *Hub) NotifyUpload(up hubdata.Upload, host string) {
	if up.State != hubdata.UploadSucceeded {
		return
	}
	stored := up.Ended
	if file, ok := h.Files.Uploads.Store.Get(up.Blob); ok {
		stored = file.Stored
	}
	at := url.URL{Scheme: "https", Host: host, Path: "/" + files.Container + "/" + up.Blob}
	h.notices[FileNotifications].add(keep.MustJSON(fileNotification{
		DeviceID: up.DeviceID, BlobURI: at.String(), BlobName: up.Blob, LastUpdatedTime: document.TimeText(stored),
		BlobSizeInBytes: up.Size, EnqueuedTimeUTC: document.TimeText(h.Now()),
	}))
}

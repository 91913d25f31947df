package hub

import (
	"fmt"
	"net/url"
	"time"

	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/document"
	"github.com/hubline-iot/hubline/testbroker/internal/files"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
	"github.com/hubline-iot/hubline/testbroker/internal/keep"
	"github.com/hubline-iot/hubline/testbroker/internal/notices"
	"github.com/hubline-iot/hubline/testbroker/internal/telemetry"
)

// notify adds a notice with a document to the telemetry. Any lock but that of the telemetry may be
// held.
func (h *Hub) notify(source hubdata.EventSource, id identity.Identity, schema, operation string, body document.Tree) {
	h.Telemetry.Notify(telemetry.Notice{Source: source, ID: id, Schema: schema, Operation: operation,
		Body: document.JSON(body)})
}

// originLocked returns what events tell of a sender at present. The hub is locked.
func (h *Hub) originLocked(id identity.Identity) telemetry.Origin {
	var from telemetry.Origin
	if r := h.registry[id]; r != nil {
		from.Generation, from.X509 = r.Generation, r.X509
	}
	if t := h.twinOf[id]; t != nil {
		t.mu.Lock()
		from.Model = t.Model
		t.mu.Unlock()
	}
	return from
}

func (h *Hub) originOf(id identity.Identity) telemetry.Origin {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.originLocked(id)
}

// connectionNotices maps the kinds of events to the operations of their notices, by whether a
// module is concerned.
var connectionNotices = map[event.Kind]map[bool]string{
	event.Connected:    {false: "deviceConnected", true: "moduleConnected"},
	event.Disconnected: {false: "deviceDisconnected", true: "moduleDisconnected"},
}

// notifyConnection makes the notice of a connection that has begun or ended. Requests over HTTP
// connect nobody.
func (h *Hub) notifyConnection(kind event.Kind, id identity.Identity, c *Conn) {
	operation := connectionNotices[kind][id.Module != ""]
	if operation == "" || id.Device == "" || !h.Telemetry.Notifies(hubdata.EventSourceDeviceConnectionState) {
		return
	}
	h.mu.Lock()
	stays := c.speaks != hubdata.HTTP
	h.mu.Unlock()
	if !stays {
		return
	}
	// The number grows over restarts of the hub too.
	number := fmt.Sprintf("%048X%016X", h.Now().UnixNano(), h.connects.Add(1))
	h.notify(hubdata.EventSourceDeviceConnectionState, id, "deviceConnectionStateNotification", operation,
		document.Tree{"sequenceNumber": number})
}

// A lifecycle is the schema and the operations of the notices of a registry's entries.
type lifecycle struct{ schema, created, removed string }

// lifecycles are those of devices and of modules.
var lifecycles = map[bool]lifecycle{
	false: {"deviceLifecycleNotification", "createDeviceIdentity", "deleteDeviceIdentity"},
	true:  {"moduleLifecycleNotification", "createModuleIdentity", "deleteModuleIdentity"},
}

// notifyCreatedLocked and notifyRemovedLocked make the notices of an identity that was registered,
// or is about to be removed. The hub is locked.
func (h *Hub) notifyCreatedLocked(id identity.Identity) {
	kind := lifecycles[id.Module != ""]
	h.notifyIdentityLocked(id, kind.schema, kind.created)
}

func (h *Hub) notifyRemovedLocked(id identity.Identity) {
	kind := lifecycles[id.Module != ""]
	h.notifyIdentityLocked(id, kind.schema, kind.removed)
}

func (h *Hub) notifyIdentityLocked(id identity.Identity, schema, operation string) {
	if !h.Telemetry.Notifies(hubdata.EventSourceDeviceLifecycle) {
		return
	}
	t := h.twinOf[id]
	if t == nil {
		t = h.newTwin(id)
	}
	t.mu.Lock()
	doc := t.noticeLocked(false)
	t.mu.Unlock()
	h.notify(hubdata.EventSourceDeviceLifecycle, id, schema, operation, doc)
}

// noticeLocked returns the whole twin as notices have it.
func (t *TwinState) noticeLocked(tags bool) document.Tree {
	whole := func(s document.Section, versions bool) document.Tree {
		doc := s.Document()
		doc["$metadata"] = s.Stamp.Metadata(versions)
		return doc
	}
	doc := document.Tree{
		"deviceId": t.id.Device, "etag": EtagOf(t.Etag), "version": t.Version,
		"properties": document.Tree{"desired": whole(t.Desired, true), "reported": whole(t.Reported, false)},
	}
	if t.id.Module != "" {
		doc["moduleId"] = t.id.Module
	}
	if tags {
		doc["tags"] = t.Tags.Tree
	}
	return doc
}

const twinSchema = "twinChangeNotification"

// notifyUpdateLocked makes the notice of a back end's change. The twin is locked, so that notices
// are in the order of versions.
func (h *Hub) notifyUpdateLocked(t *TwinState, u TwinUpdate) {
	switch {
	case !h.Telemetry.Notifies(hubdata.EventSourceTwinChange):
	case u.Replace:
		h.notify(hubdata.EventSourceTwinChange, t.id, twinSchema, "replaceTwin", t.noticeLocked(true))
	default:
		doc := document.Tree{"version": t.Version}
		if u.Desired != nil {
			doc["properties"] = document.Tree{"desired": t.Desired.Change(u.Desired, true)}
		}
		if u.ChangesTags() {
			doc["tags"] = u.Tags
		}
		h.notify(hubdata.EventSourceTwinChange, t.id, twinSchema, "updateTwin", doc)
	}
}

// notifyReportedLocked makes the notice of a client's patch. The twin is locked.
func (h *Hub) notifyReportedLocked(t *TwinState, patch document.Tree) {
	if h.Telemetry.Notifies(hubdata.EventSourceTwinChange) {
		h.notify(hubdata.EventSourceTwinChange, t.id, twinSchema, "updateTwin", document.Tree{
			"version": t.Version, "properties": document.Tree{"reported": t.Reported.Change(patch, false)},
		})
	}
}

// notifyDigitalTwinLocked makes the notice of a change of a device's digital twin: the JSON patch
// that makes the new digital twin of the old one. The twin is locked. Source: the page "Understand
// IoT Plug and Play digital twins".
func (h *Hub) notifyDigitalTwinLocked(t *TwinState, before document.View) {
	if t.id.Module != "" || !h.Telemetry.Notifies(hubdata.EventSourceDigitalTwinChange) {
		return
	}
	steps := document.Steps("", document.DigitalTwin(t.id.Device, before),
		document.DigitalTwin(t.id.Device, t.stateLocked()))
	if len(steps) > 0 {
		h.Telemetry.Notify(telemetry.Notice{Source: hubdata.EventSourceDigitalTwinChange, ID: t.id,
			Schema: "digitalTwinChangeNotification", ContentType: "application/json-patch+json", Body: keep.MustJSON(steps)})
	}
}

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
	h.notices[notices.Feedback].Add(keep.MustJSON([]feedbackRecord{{
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
	h.notices[notices.FileNotifications].Add(keep.MustJSON(fileNotification{
		DeviceID: up.DeviceID, BlobURI: at.String(), BlobName: up.Blob, LastUpdatedTime: document.TimeText(stored),
		BlobSizeInBytes: up.Size, EnqueuedTimeUTC: document.TimeText(h.Now()),
	}))
}

// Notices returns the queue of a kind.
func (h *Hub) Notices(kind notices.Kind) *notices.Queue { return &h.notices[kind] }

// A noticeHost is the hub as the queues of notices see it.
type noticeHost struct{ *Hub }

func (h noticeHost) Now() time.Time { return h.Hub.Now() }
func (h noticeHost) Leave()         { h.Wg.Done() }

package hub

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// MaxUploads is how many uploads of a device may run at a time.
const MaxUploads = 10

// Container is the name of the store's container for uploads.
const Container = "uploads"

// UploadOptions are the settings of file uploads. The zero value of each field means its default.
type UploadOptions struct {
	// Host is the store's host name for devices, with an optional port. The hub is also the store, on
	// all its HTTP ports. Default: the address at which the device reached the hub; for in-memory
	// connections "store." and the hub's name, which the hub's certificate covers too.
	Host string
	// Life is the time limit of an upload. Default: 1 hour, as in the service, which allows 1 minute
	// to 24 hours.
	Life time.Duration
	// NoStore makes a hub that has no store configured.
	NoStore bool
	// Digest makes the store keep size and hash of each block instead of its bytes, for files larger
	// than memory: see [Blob.Matches]. Such files cannot be downloaded.
	Digest bool
	// MaxBlocks is how many blocks a file may have. Default: 50,000, as in the service.
	MaxBlocks int
}

func (o UploadOptions) withDefaults() UploadOptions {
	o.Life = cmp.Or(max(o.Life, 0), time.Hour)
	o.MaxBlocks = cmp.Or(max(o.MaxBlocks, 0), 50_000)
	return o
}

// UploadState is the state of an upload.
type UploadState uint8

const (
	UploadRunning UploadState = iota
	UploadSucceeded
	UploadFailed
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

// UploadTable holds the hub's uploads.
type UploadTable struct {
	Opt   UploadOptions
	Store blobStore

	mu   sync.Mutex
	all  history[*Upload]
	made int // uploads so far, also before a Reset, so that correlation ids are unique
	told int // ends that devices have reported
}

func (u *UploadTable) init(o UploadOptions, keep int) {
	u.Opt = o.withDefaults()
	u.all.keep = keep
	u.Store.blobs = make(map[string]*storedBlob)
	u.Store.digest = u.Opt.Digest
	u.Store.Keys.init()
}

// Uploads implements testbroker.Hub.Uploads.
func (h *Hub) Uploads() []Upload {
	u, now := &h.UploadTable, h.Now()
	u.mu.Lock()
	defer u.mu.Unlock()
	out := make([]Upload, len(u.all.entries))
	for i, up := range u.all.entries {
		u.ageLocked(up, now)
		out[i] = *up
	}
	return out
}

// WaitUploads implements testbroker.Hub.WaitUploads.
func (h *Hub) WaitUploads(ctx context.Context, n int) error {
	return h.until(ctx, func() bool {
		h.UploadTable.mu.Lock()
		defer h.UploadTable.mu.Unlock()
		return h.UploadTable.told >= n
	})
}

// ExpireUploads implements testbroker.Hub.ExpireUploads.
func (h *Hub) ExpireUploads(device string) int {
	n := 0
	for _, up := range h.Uploads() {
		if up.State == UploadRunning && (Identity{Device: up.DeviceID}).Matches(device) && h.ExpireUpload(up.CorrelationID) {
			n++
		}
	}
	return n
}

func (h *Hub) ExpireUpload(correlation string) bool {
	up, ok := h.UploadTable.expire(correlation, h.Now())
	if ok {
		h.Event(up.Event(), nil)
	}
	return ok
}

// expire makes an upload expire; false when it is not running.
func (u *UploadTable) expire(correlation string, now time.Time) (Upload, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, up := range u.all.entries {
		if up.CorrelationID == correlation && up.State == UploadRunning {
			up.State = UploadExpired
			up.Expires = now
			u.Store.Keys.revoke(up.CorrelationID)
			return *up, true
		}
	}
	return Upload{}, false
}

// ageLocked marks a running upload as expired once its time has passed.
func (u *UploadTable) ageLocked(up *Upload, now time.Time) {
	if up.State == UploadRunning && !now.Before(up.Expires) {
		up.State = UploadExpired
	}
}

// Begin adds an upload of a device. It returns nil when the device has too many running.
func (u *UploadTable) Begin(device, name string, now time.Time) *Upload {
	u.mu.Lock()
	defer u.mu.Unlock()
	running := 0
	for _, up := range u.all.entries {
		if u.ageLocked(up, now); up.DeviceID == device && up.State == UploadRunning {
			running++
		}
	}
	if running >= MaxUploads {
		return nil
	}
	u.made++
	up := &Upload{
		DeviceID: device, Blob: device + "/" + name, Started: now, Expires: now.Add(u.Opt.Life),
		CorrelationID: base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "%s_%d", now.UTC().Format("200601021504"), u.made)),
	}
	u.Store.expect(up.Blob, up.CorrelationID)
	u.Store.Keys.allow(up.CorrelationID)
	if old, forgot := u.all.add(up); forgot {
		u.Store.Keys.revoke(old.CorrelationID)
		u.Store.forget(old.Blob, old.CorrelationID)
	}
	own := *up
	return &own
}

// Event returns the event for the upload's state.
func (up Upload) Event() Event {
	return Event{Kind: UploadChanged, DeviceID: up.DeviceID, Name: up.Blob, Detail: up.State.String()}
}

// End records the result that a device reports for its upload, and returns the updated upload. code
// is the error code, 0 on success.
func (u *UploadTable) End(device, correlation string, success bool, status int, description string,
	now time.Time) (ended Upload, code int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	i := slices.IndexFunc(u.all.entries,
		func(up *Upload) bool { return up.DeviceID == device && up.CorrelationID == correlation })
	if i < 0 {
		return Upload{}, 400015
	}
	up := u.all.entries[i]
	u.ageLocked(up, now)
	switch up.State {
	case UploadExpired:
		return Upload{}, 400016
	case UploadSucceeded, UploadFailed:
		return Upload{}, 400015
	case UploadRunning:
	}
	size, stored := u.Store.size(up.Blob)
	if success && !stored {
		return Upload{}, 400020
	}
	up.State, up.Ended, up.StatusCode, up.StatusDescription = UploadFailed, now, status, description
	if success {
		up.State, up.Size = UploadSucceeded, size
	}
	u.told++
	return *up, 0
}

// Blob implements testbroker.Hub.Blob.
func (h *Hub) Blob(name string) (Blob, bool) { return h.UploadTable.Store.Get(name) }

// Blobs implements testbroker.Hub.Blobs.
func (h *Hub) Blobs() []string {
	s := &h.UploadTable.Store
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s.blobs)),
		func(name string) bool { return s.blobs[name].file == nil })
}

// ValidBlobName reports whether name is a valid blob name.
func ValidBlobName(name string) bool {
	segments := strings.Split(name, "/")
	for _, s := range segments {
		if s == "" || s == "." || s == ".." {
			return false
		}
	}
	return utf8.ValidString(name) && utf8.RuneCountInString(name) <= 1024 && len(segments) <= 254 &&
		!strings.HasSuffix(name,
			".")
}

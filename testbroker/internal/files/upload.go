package files

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/keep"
)

func uploadDefaults(o hubdata.UploadOptions) hubdata.UploadOptions {
	o.Life = cmp.Or(max(o.Life, 0), time.Hour)
	o.MaxBlocks = cmp.Or(max(o.MaxBlocks, 0), 50_000)
	return o
}

// UploadTable holds the hub's uploads.
type UploadTable struct {
	Opt   hubdata.UploadOptions
	Store uploadStore
	now   func() time.Time
	event func(event.Event)

	mu       sync.Mutex
	all      keep.History[*hubdata.Upload]
	made     int // uploads so far, also before a Reset, so that correlation ids are unique
	reported int // ends that devices have reported
}

func (u *UploadTable) init(o hubdata.UploadOptions, keep int, tags *blobTags) {
	u.Opt = uploadDefaults(o)
	u.all.Keep = keep
	u.Store.init(u.now, tags, o.Digest)
}

// List returns the uploads, in the order in which they began.
func (u *UploadTable) List() []hubdata.Upload {
	now := u.now()
	u.mu.Lock()
	defer u.mu.Unlock()
	out := make([]hubdata.Upload, len(u.all.Entries))
	for i, up := range u.all.Entries {
		u.ageLocked(up, now)
		out[i] = *up
	}
	return out
}

// Reported returns how many ends devices have reported, success or failure.
func (u *UploadTable) Reported() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.reported
}

// ExpireAll makes all running uploads of a device expire; empty means all devices.
func (u *UploadTable) ExpireAll(device string) int {
	n := 0
	for _, up := range u.List() {
		if up.State == hubdata.UploadRunning && (device == "" || device == up.DeviceID) && u.Expire(up.CorrelationID) {
			n++
		}
	}
	return n
}

// Expire makes an upload expire; false when it is not running.
func (u *UploadTable) Expire(correlation string) bool {
	up, ok := u.expire(correlation, u.now())
	if ok {
		u.event(UploadEvent(up))
	}
	return ok
}

// expire makes an upload expire; false when it is not running.
func (u *UploadTable) expire(correlation string, now time.Time) (hubdata.Upload, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, up := range u.all.Entries {
		if up.CorrelationID == correlation && up.State == hubdata.UploadRunning {
			up.State = hubdata.UploadExpired
			up.Expires = now
			u.Store.Keys.revoke(up.CorrelationID)
			return *up, true
		}
	}
	return hubdata.Upload{}, false
}

// ageLocked marks a running upload as expired once its time has passed.
func (u *UploadTable) ageLocked(up *hubdata.Upload, now time.Time) {
	if up.State == hubdata.UploadRunning && !now.Before(up.Expires) {
		up.State = hubdata.UploadExpired
	}
}

// Begin adds an upload of a device. It returns nil when the device has too many running.
func (u *UploadTable) Begin(device, name string, now time.Time) *hubdata.Upload {
	u.mu.Lock()
	defer u.mu.Unlock()
	running := 0
	for _, up := range u.all.Entries {
		if u.ageLocked(up, now); up.DeviceID == device && up.State == hubdata.UploadRunning {
			running++
		}
	}
	if running >= hubdata.MaxUploads {
		return nil
	}
	u.made++
	up := &hubdata.Upload{
		DeviceID: device, Blob: device + "/" + name, Started: now, Expires: now.Add(u.Opt.Life),
		CorrelationID: base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "%s_%d", now.UTC().Format("200601021504"), u.made)),
	}
	u.Store.expect(up.Blob, up.CorrelationID)
	u.Store.Keys.allow(up.CorrelationID)
	if old, forgot := u.all.Add(up); forgot {
		u.Store.Keys.revoke(old.CorrelationID)
		u.Store.forget(old.Blob, old.CorrelationID)
	}
	own := *up
	return &own
}

// UploadEvent returns the event for the upload's state.
func UploadEvent(up hubdata.Upload) event.Event {
	return event.Event{Kind: event.UploadChanged, DeviceID: up.DeviceID, Name: up.Blob, Detail: up.State.String()}
}

// End records the result that a device reports for its upload, and returns the updated upload. code
// is the error code, 0 on success.
func (u *UploadTable) End(device, correlation string, success bool, status int, description string,
	now time.Time) (ended hubdata.Upload, code int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	i := slices.IndexFunc(u.all.Entries,
		func(up *hubdata.Upload) bool { return up.DeviceID == device && up.CorrelationID == correlation })
	if i < 0 {
		return hubdata.Upload{}, 400015
	}
	up := u.all.Entries[i]
	u.ageLocked(up, now)
	switch up.State {
	case hubdata.UploadExpired:
		return hubdata.Upload{}, 400016
	case hubdata.UploadSucceeded, hubdata.UploadFailed:
		return hubdata.Upload{}, 400015
	case hubdata.UploadRunning:
	}
	file, stored := u.Store.Get(up.Blob)
	if success && !stored {
		return hubdata.Upload{}, 400020
	}
	up.State, up.Ended, up.StatusCode, up.StatusDescription = hubdata.UploadFailed, now, status, description
	if success {
		up.State, up.Size = hubdata.UploadSucceeded, file.Size
	}
	u.reported++
	return *up, 0
}

// Held returns the numbers of uploads, of their valid URIs and of their files.
func (u *UploadTable) Held() (uploads, uris, files int) {
	u.mu.Lock()
	uploads = len(u.all.Entries)
	u.mu.Unlock()
	u.Store.Keys.mu.Lock()
	uris = len(u.Store.Keys.good)
	u.Store.Keys.mu.Unlock()
	u.Store.of.mu.Lock()
	defer u.Store.of.mu.Unlock()
	return uploads, uris, len(u.Store.blobs)
}

// clear forgets all uploads and files. Their upload URIs become invalid.
func (u *UploadTable) clear() {
	u.mu.Lock()
	u.all.Clear()
	u.reported = 0
	u.mu.Unlock()
	k := &u.Store.Keys
	k.mu.Lock()
	clear(k.good)
	k.mu.Unlock()
	u.Store.clear()
}

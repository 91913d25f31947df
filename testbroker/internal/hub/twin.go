package hub

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"slices"
	"sync"

	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/document"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
	"github.com/hubline-iot/hubline/testbroker/internal/keep"
)

// A TwinState is the twin of one identity. Changes are sent to the listeners in order, by the first
// goroutine that finds no other one sending.
type TwinState struct {
	id identity.Identity

	mu                sync.Mutex // guards the fields below; never held over a write or an event
	Desired, Reported document.Section
	Tags              document.Section
	Version           int64
	Etag              uint64
	Model             string
	apart             *twinCopy // of an off-line gateway; otherwise nil
	requests          keep.History[*hubdata.TwinRequest]
	changes           keep.Relay[Change] // of desired properties, in order
}

// A Change is a change of desired properties, as sent to clients.
type Change struct {
	Version int64
	Body    []byte        // the patch or the new document, with the version
	Patch   document.Tree // the patch; of a new document, what makes it of the previous one
}

// TwinState returns the twin of a registered identity.
func (h *Hub) TwinState(id identity.Identity) (*TwinState, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.registry[id] != nil:
	case id.Module != "" && h.registry[identity.Identity{Device: id.Device}] != nil:
		return nil, h.ServiceError(codeModuleNotFound, "%s is not registered", id)
	default:
		return nil, h.ServiceError(CodeDeviceNotFound, "%s is not registered", id)
	}
	t := h.twinOf[id]
	if t == nil {
		t = h.newTwin(id)
		if h.Offline() {
			t.leaveHub()
		}
		h.twinOf[id] = t
		h.touchTwin(t)
	}
	return t, nil
}

func (h *Hub) newTwin(id identity.Identity) *TwinState {
	now := h.Now()
	return &TwinState{
		id:      id,
		Desired: document.NewSection(now, document.MaxSection), Reported: document.NewSection(now, document.MaxSection),
		Tags:    document.NewSection(now, document.MaxTags),
		Version: 2, Etag: 1, requests: keep.History[*hubdata.TwinRequest]{Keep: h.Keep},
	}
}

func (h *Hub) forgetTwinLocked(id identity.Identity) {
	if _, ok := h.twinOf[id]; ok {
		delete(h.twinOf, id)
		h.Records.Touch(tableTwins, id.String())
	}
}

// Twin returns the twin of a device.
func (h *Hub) Twin(id string) (hubdata.Twin, error) {
	t, err := h.TwinState(identity.SplitIdentity(id))
	if err != nil {
		return hubdata.Twin{}, err
	}
	return t.copy(), nil
}

func (t *TwinState) copy() hubdata.Twin {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.copyLocked()
}

func (t *TwinState) copyLocked() hubdata.Twin {
	return hubdata.Twin{
		DeviceID: t.id.Device, ModuleID: t.id.Module,
		Desired: document.JSON(t.Desired.Tree), Reported: document.JSON(t.Reported.Tree), Tags: document.JSON(t.Tags.Tree),
		DesiredMetadata:  document.JSON(t.Desired.Stamp.Metadata(true)),
		ReportedMetadata: document.JSON(t.Reported.Stamp.Metadata(false)),
		DesiredVersion:   t.Desired.Version, ReportedVersion: t.Reported.Version, Version: t.Version, ETag: EtagOf(t.Etag),
		ModelID: t.Model,
	}
}

// AnnounceModel records the model that a client announces. An empty model changes nothing.
func (h *Hub) AnnounceModel(id identity.Identity, model string) {
	if model == "" {
		return
	}
	if t, err := h.TwinState(id); err == nil { // it may have been removed meanwhile
		t.mu.Lock()
		defer t.mu.Unlock()
		t.Model = model
		h.touchTwin(t)
	}
}

func EtagOf(n uint64) string {
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint64(nil, n))
}

// ChangeDesired merges a patch into the desired properties, or replaces them.
func (h *Hub) ChangeDesired(id, text string, replace bool) (int64, error) {
	desired, err := document.Parse([]byte(text))
	if err != nil {
		return 0, h.ServiceError(CodeArgumentInvalid, "desired properties: %v", err)
	}
	t, err := h.Update(identity.SplitIdentity(id), TwinUpdate{Desired: desired, Replace: replace})
	return t.DesiredVersion, err
}

// PatchTags merges a patch, a JSON object, into the tags of a twin.
func (h *Hub) PatchTags(id, patch string) error {
	tags, err := document.Parse([]byte(patch))
	if err != nil {
		return h.ServiceError(CodeArgumentInvalid, "tags: %v", err)
	}
	_, err = h.Update(identity.SplitIdentity(id), TwinUpdate{Tags: tags})
	return err
}

// ChangeTwin changes the desired properties, the tags or both of a device, completely or not at
// all, and returns the twin after the change.
func (h *Hub) ChangeTwin(id string, c hubdata.TwinChange) (hubdata.Twin, error) {
	u := TwinUpdate{Replace: c.Replace, Etag: c.ETag}
	for _, part := range []struct {
		name, text string
		into       *document.Tree
	}{{"desired properties", c.Desired, &u.Desired}, {"tags", c.Tags, &u.Tags}} {
		if part.text == "" {
			continue
		}
		tree, err := document.Parse([]byte(part.text))
		if err != nil {
			return hubdata.Twin{}, h.ServiceError(CodeArgumentInvalid, "%s: %v", part.name, err)
		}
		*part.into = tree
	}
	return h.Update(identity.SplitIdentity(id), u)
}

// A TwinUpdate is a back end's change of a twin. Nil parts stay unchanged.
type TwinUpdate struct {
	Desired, Tags document.Tree
	Replace       bool
	Etag          string // required ETag of the twin; empty or "*" = any
}

// ChangesTags reports whether the update writes tags. A patch of tags without members writes none,
// whereas an empty patch of desired properties still makes a version.
func (u TwinUpdate) ChangesTags() bool { return u.Tags != nil && (u.Replace || len(u.Tags) > 0) }

// Update changes a twin completely or not at all, and notifies the listeners.
func (h *Hub) Update(id identity.Identity, u TwinUpdate) (hubdata.Twin, error) {
	t, err := h.TwinState(id)
	if err != nil {
		return hubdata.Twin{}, err
	}
	if err := document.Check(u.Desired); err != nil {
		return hubdata.Twin{}, h.ServiceError(CodeArgumentInvalid, "desired properties: %v", err)
	}
	if err := document.Check(u.Tags); err != nil {
		return hubdata.Twin{}, h.ServiceError(CodeArgumentInvalid, "tags: %v", err)
	}
	if err := h.updateTwin(t, u); err != nil {
		return hubdata.Twin{}, err
	}
	copied := t.copy()
	changed := event.Event{Kind: event.TwinChanged, DeviceID: id.Device, ModuleID: id.Module}
	if u.Desired != nil {
		changed.Detail, changed.Version = "desired", copied.DesiredVersion
		h.Event(changed, nil)
	}
	if u.ChangesTags() {
		changed.Detail, changed.Version = "tags", 0
		h.Event(changed, nil)
	}
	h.announce(t)
	h.plug.Changed()
	h.Changed.Wake()
	h.Records.Saved()
	return copied, nil
}

func (h *Hub) updateTwin(t *TwinState, u TwinUpdate) error {
	now := h.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if u.Etag != "" && u.Etag != "*" && u.Etag != EtagOf(t.Etag) {
		return h.ServiceError(CodePreconditionFailed, "the twin of %s has the etag %s", t.id, EtagOf(t.Etag))
	}
	desired, err := t.Desired.Merge(u.Desired, u.Replace, now)
	if err != nil {
		return h.ServiceError(CodeArgumentInvalid, "desired properties: %v", err)
	}
	tags, err := t.Tags.Merge(u.Tags, u.Replace, now)
	if err != nil {
		return h.ServiceError(CodeArgumentInvalid, "tags: %v", err)
	}
	if u.Desired == nil && !u.ChangesTags() {
		return nil
	}
	before := t.stateLocked()
	t.Desired, t.Tags = desired, tags
	t.Version++
	t.Etag++
	h.touchTwin(t)
	if u.Desired != nil && t.apart == nil {
		patch := u.Desired
		if u.Replace {
			patch = document.Difference(before.Desired.Tree, desired.Tree)
		}
		t.changes.Add(Change{desired.Version, desired.Notification(u.Desired, u.Replace), patch})
	}
	h.watchedLocked(t)
	h.notifyUpdateLocked(t, u)
	h.notifyDigitalTwinLocked(t, before)
	return nil
}

// WatchTwins sets a function that is called with each twin after a change, in order, possibly with
// locks of the hub held.
func (h *Hub) WatchTwins(changed func(hubdata.Twin)) { h.twinWatch.Store(&changed) }

func (h *Hub) watchedLocked(t *TwinState) {
	if changed := h.twinWatch.Load(); changed != nil {
		(*changed)(t.copyLocked())
	}
}

// report changes the reported properties for a client. base is the version that the client expects,
// or zero.
func (h *Hub) report(t *TwinState, body []byte, base int64) (version int64, err error) {
	patch, err := document.Parse(body)
	if err == nil {
		err = document.Check(patch)
	}
	if err != nil {
		return 0, h.ServiceError(CodeArgumentInvalid, "reported properties: %v", err)
	}
	now := h.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	_, reported := t.viewLocked()
	if base != 0 && base != reported.Version {
		return 0, h.ServiceError(CodePreconditionFailed, "the reported properties have the version %d", reported.Version)
	}
	reported, err = reported.Merge(patch, false, now)
	if err != nil {
		return 0, errors.Join(h.ServiceError(CodeArgumentInvalid, "reported properties: %v", err), err)
	}
	before := t.stateLocked()
	t.reportLocked(reported)
	h.touchTwin(t)
	h.plug.Changed()
	h.watchedLocked(t)
	if t.apart == nil {
		h.notifyReportedLocked(t, patch)
		h.notifyDigitalTwinLocked(t, before)
	}
	return reported.Version, nil
}

// document returns the twin as the client sees it.
func (t *TwinState) document() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	desired, reported := t.viewLocked()
	return document.JSON(document.Tree{"desired": desired.Document(), "reported": reported.Document()})
}

// announce sends the pending changes in order, unless another goroutine sends them already.
func (h *Hub) announce(t *TwinState) {
	t.changes.Deliver(func(next Change) { h.tellChange(t.id, next) })
}

// WaitReported waits until ok returns true for the twin of a device.
func (h *Hub) WaitReported(ctx context.Context, id string, ok func(hubdata.Twin) bool) error {
	var failed error
	err := h.Until(ctx, func() bool {
		t, err := h.Twin(id)
		failed = err
		return err != nil || ok(t)
	})
	if failed != nil {
		return failed
	}
	return err
}

// TwinLog returns the twin requests of a device, in order of arrival.
func (h *Hub) TwinLog(id string) []hubdata.TwinRequest {
	t, err := h.TwinState(identity.SplitIdentity(id))
	if err != nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]hubdata.TwinRequest, len(t.requests.Entries))
	for i, r := range t.requests.Entries {
		all[i] = *r
		all[i].Body = slices.Clone(r.Body)
	}
	return all
}

// View returns the present state. Its trees are never modified.
func (t *TwinState) View() document.View {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stateLocked()
}

// stateLocked returns the state. Sections are replaced and never changed, so it stays as it is.
func (t *TwinState) stateLocked() document.View {
	return document.View{Desired: t.Desired, Reported: t.Reported, Tags: t.Tags, Version: t.Version,
		Etag: EtagOf(t.Etag), Model: t.Model}
}

// AdoptTwin replaces the twin of a device by that of another hub, versions included.
func (h *Hub) AdoptTwin(id identity.Identity, v document.View) error {
	t, err := h.TwinState(id)
	if err != nil {
		return err
	}
	defer h.Records.Saved()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Desired, t.Reported, t.Tags, t.Model = v.Desired, v.Reported, v.Tags, v.Model
	t.Version++
	t.Etag++
	h.touchTwin(t)
	return nil
}

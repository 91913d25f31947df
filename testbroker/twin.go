package testbroker

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Twin is a copy of the twin of a device or module.
type Twin struct {
	// DeviceID and ModuleID name whose it is. ModuleID is empty for the device itself.
	DeviceID, ModuleID string
	// Desired, Reported and Tags are objects of JSON with their names in order, without "$version" and
	// "$metadata".
	Desired, Reported, Tags json.RawMessage
	// DesiredMetadata and ReportedMetadata say when each member was last changed, as objects of JSON
	// with "$lastUpdated" at every level; that of desired properties has "$lastUpdatedVersion" too.
	// Devices do not see them.
	DesiredMetadata, ReportedMetadata json.RawMessage
	// DesiredVersion and ReportedVersion are 1 in the beginning and grow by one with each change.
	DesiredVersion, ReportedVersion int64
	// Version grows with each change of any part. ETag changes when a back end changes the desired
	// properties or the tags.
	Version int64
	ETag    string
	// ModelID is the Plug and Play model that the client announced last, when it connected over MQTT
	// or attached a link over AMQP; empty if it never did.
	ModelID string
}

// TwinOperation is what a client asks about its twin.
type TwinOperation uint8

// The operations.
const (
	// TwinAny stands for all of them.
	TwinAny TwinOperation = iota
	// TwinGet reads the twin.
	TwinGet
	// TwinPatch changes the reported properties.
	TwinPatch
	// TwinSubscribe and TwinUnsubscribe begin and end notifications of desired properties. Only AMQP
	// has them; over MQTT it is a subscription as any other.
	TwinSubscribe
	TwinUnsubscribe
)

var twinOperationNames = [...]string{TwinAny: "any", TwinGet: "get", TwinPatch: "patch", TwinSubscribe: "subscribe",
	TwinUnsubscribe: "unsubscribe"}

// String names the operation in lower case.
func (o TwinOperation) String() string {
	if int(o) < len(twinOperationNames) {
		return twinOperationNames[o]
	}
	return fmt.Sprintf("TwinOperation(%d)", uint8(o))
}

// TwinRequest is something that a client asked about its twin, and what it was told.
type TwinRequest struct {
	// DeviceID and ModuleID name the client. ModuleID is empty for the device itself.
	DeviceID, ModuleID string
	Operation          TwinOperation
	// RequestID is what the client named the request by, as text.
	RequestID string
	// Base is the version that a patch was made for; zero when it does not say.
	Base int64
	// Body is what came with it.
	Body []byte
	// Status is the status of the answer, and Version the version that a patch has led to. Status is
	// zero when a fault ended the connection before the request was looked at.
	Status  int
	Version int64
	// Answers is how many answers were put on the connection: none for a client that has not
	// subscribed to them.
	Answers int
	// Protocol and Connection tell how it came, and Received when, by the hub's clock.
	Protocol   Protocol
	Connection uint64
	Received   time.Time
}

// A twin is that of one identity. What changes it is sent to those who listen, in order, by whoever
// finds nobody sending.
type twin struct {
	id identity

	mu                sync.Mutex // guards what follows; never held over a write or an event
	desired, reported section
	tags              section
	version           int64
	etag              uint64
	model             string
	requests          history[*TwinRequest]
	changes           []change // of desired properties, not sent yet
	sending           bool
}

// A change of desired properties, as clients are told of it.
type change struct {
	version int64
	body    []byte
}

// twin returns the twin of an identity that is registered.
func (h *Hub) twin(id identity) (*twin, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.registry[id] != nil:
	case id.module != "" && h.registry[identity{device: id.device}] != nil:
		return nil, h.serviceError(codeModuleNotFound, "%s is not registered", id)
	default:
		return nil, h.serviceError(codeDeviceNotFound, "%s is not registered", id)
	}
	t := h.twinOf[id]
	if t == nil {
		now := h.now()
		t = &twin{
			id: id, desired: newSection(now, maxTwinSection), reported: newSection(now, maxTwinSection),
			tags:    newSection(now, maxTwinTags),
			version: 2, etag: 1, requests: history[*TwinRequest]{keep: h.keep},
		}
		h.twinOf[id] = t
	}
	return t, nil
}

// forgetTwinsLocked drops the twins that a selector means.
func (h *Hub) forgetTwinsLocked(selector string) {
	for id := range h.twinOf {
		if id.matches(selector) {
			delete(h.twinOf, id)
		}
	}
}

// Twin returns the twin of a device, or of a module named "deviceID/moduleID".
func (h *Hub) Twin(id string) (Twin, error) {
	t, err := h.twin(splitIdentity(id))
	if err != nil {
		return Twin{}, err
	}
	return t.copy(), nil
}

func (t *twin) copy() Twin {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Twin{
		DeviceID: t.id.device, ModuleID: t.id.module,
		Desired: writeTree(t.desired.tree), Reported: writeTree(t.reported.tree), Tags: writeTree(t.tags.tree),
		DesiredMetadata:  writeTree(t.desired.stamp.metadata(true)),
		ReportedMetadata: writeTree(t.reported.stamp.metadata(false)),
		DesiredVersion:   t.desired.version, ReportedVersion: t.reported.version, Version: t.version, ETag: etagOf(t.etag),
		ModelID: t.model,
	}
}

// announceModel notes which model a client says that it follows; empty says nothing.
func (h *Hub) announceModel(id identity, model string) {
	if model == "" {
		return
	}
	if t, err := h.twin(id); err == nil { // it may have been removed a moment ago
		t.mu.Lock()
		defer t.mu.Unlock()
		t.model = model
	}
}

func etagOf(n uint64) string {
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint64(nil, n))
}

// PatchDesired merges a patch, an object of JSON, into the desired properties of a device, or of a
// module named "deviceID/moduleID": null removes a member. Clients that have subscribed are told of
// it; nothing is kept for others. The error is a [*ServiceError].
func (h *Hub) PatchDesired(id, patch string) (version int64, err error) {
	return h.changeDesired(id, patch, false)
}

// SetDesired replaces the desired properties. It is otherwise like [Hub.PatchDesired].
func (h *Hub) SetDesired(id, document string) (version int64, err error) {
	return h.changeDesired(id, document, true)
}

func (h *Hub) changeDesired(id, text string, replace bool) (int64, error) {
	desired, err := parseTree([]byte(text))
	if err != nil {
		return 0, h.serviceError(codeArgumentInvalid, "desired properties: %v", err)
	}
	t, err := h.update(splitIdentity(id), twinUpdate{desired: desired, replace: replace})
	return t.DesiredVersion, err
}

// PatchTags merges a patch, an object of JSON, into the tags of a twin, which devices do not see.
func (h *Hub) PatchTags(id, patch string) error {
	tags, err := parseTree([]byte(patch))
	if err != nil {
		return h.serviceError(codeArgumentInvalid, "tags: %v", err)
	}
	_, err = h.update(splitIdentity(id), twinUpdate{tags: tags})
	return err
}

// A twinUpdate is what a back end wants changed. Parts that are nil stay as they are.
type twinUpdate struct {
	desired, tags tree
	replace       bool
	etag          string // that the twin must have; empty or "*" = any
}

// changesTags says whether tags are written. A patch without members writes none; one of desired
// properties makes a version all the same.
func (u twinUpdate) changesTags() bool { return u.tags != nil && (u.replace || len(u.tags) > 0) }

// update changes a twin as a whole or not at all, and tells those who listen.
func (h *Hub) update(id identity, u twinUpdate) (Twin, error) {
	t, err := h.twin(id)
	if err != nil {
		return Twin{}, err
	}
	if err := checkTree(u.desired); err != nil {
		return Twin{}, h.serviceError(codeArgumentInvalid, "desired properties: %v", err)
	}
	if err := checkTree(u.tags); err != nil {
		return Twin{}, h.serviceError(codeArgumentInvalid, "tags: %v", err)
	}
	if err := h.updateTwin(t, u); err != nil {
		return Twin{}, err
	}
	copied := t.copy()
	changed := Event{Kind: TwinChanged, DeviceID: id.device, ModuleID: id.module}
	if u.desired != nil {
		changed.Detail, changed.Version = "desired", copied.DesiredVersion
		h.event(changed, nil)
	}
	if u.changesTags() {
		changed.Detail, changed.Version = "tags", 0
		h.event(changed, nil)
	}
	h.announce(t)
	h.changed.wake()
	return copied, nil
}

func (h *Hub) updateTwin(t *twin, u twinUpdate) error {
	now := h.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if u.etag != "" && u.etag != "*" && u.etag != etagOf(t.etag) {
		return h.serviceError(codePreconditionFailed, "the twin of %s has the etag %s", t.id, etagOf(t.etag))
	}
	desired, err := t.desired.updated(u.desired, u.replace, now)
	if err != nil {
		return h.serviceError(codeArgumentInvalid, "desired properties: %v", err)
	}
	tags, err := t.tags.updated(u.tags, u.replace, now)
	if err != nil {
		return h.serviceError(codeArgumentInvalid, "tags: %v", err)
	}
	if u.desired == nil && !u.changesTags() {
		return nil
	}
	t.desired, t.tags = desired, tags
	t.version++
	t.etag++
	if u.desired != nil {
		t.changes = append(t.changes, change{desired.version, told(u.desired, desired, u.replace)})
	}
	return nil
}

// told is what clients are told of a change: the patch as it was made, or the new document.
func told(patch tree, now section, replaced bool) []byte {
	if replaced {
		return writeTree(now.document())
	}
	return writeTree(section{tree: patch, version: now.version}.document())
}

// report changes the reported properties as a client asks; base is the version that it believes in,
// or zero.
func (h *Hub) report(t *twin, body []byte, base int64) (version int64, err error) {
	patch, err := parseTree(body)
	if err == nil {
		err = checkTree(patch)
	}
	if err != nil {
		return 0, h.serviceError(codeArgumentInvalid, "reported properties: %v", err)
	}
	now := h.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if base != 0 && base != t.reported.version {
		return 0, h.serviceError(codePreconditionFailed, "the reported properties have the version %d", t.reported.version)
	}
	reported, err := t.reported.updated(patch, false, now)
	if err != nil {
		return 0, h.serviceError(codeArgumentInvalid, "reported properties: %v", err)
	}
	t.reported = reported
	t.version++
	return reported.version, nil
}

// document is the twin as its client sees it.
func (t *twin) document() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return writeTree(tree{"desired": t.desired.document(), "reported": t.reported.document()})
}

// announce sends the changes that were not sent yet, in order. Another may be doing so.
func (h *Hub) announce(t *twin) {
	t.mu.Lock()
	defer t.mu.Unlock()
	relay(&t.mu, &t.sending, &t.changes, func(next change) { h.tellChange(t.id, next) })
}

// WaitReported waits until a twin is as ok wants it: that of a device, or of a module named
// "deviceID/moduleID". It fails when the context ends, the hub is closed, or there is no such twin.
func (h *Hub) WaitReported(ctx context.Context, id string, ok func(Twin) bool) error {
	var failed error
	err := h.until(ctx, func() bool {
		t, err := h.Twin(id)
		failed = err
		return err != nil || ok(t)
	})
	if failed != nil {
		return failed
	}
	return err
}

// TwinLog returns what clients have asked about the twin of a device, or of a module named
// "deviceID/moduleID", in the order of arrival. It is empty when there is no such twin.
func (h *Hub) TwinLog(id string) []TwinRequest {
	t, err := h.twin(splitIdentity(id))
	if err != nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]TwinRequest, len(t.requests.entries))
	for i, r := range t.requests.entries {
		all[i] = *r
		all[i].Body = slices.Clone(r.Body)
	}
	return all
}

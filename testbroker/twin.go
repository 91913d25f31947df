package testbroker

import (
	"context"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// Twin returns the twin of a device, or of a module named "deviceID/moduleID".
func (h *Hub) Twin(id string) (hubdata.Twin, error) { return h.hub.Twin(id) }

// PatchDesired merges a patch, a JSON object, into the desired properties of a device, or of a
// module named "deviceID/moduleID"; null removes a member. Subscribed clients receive the patch; it
// is not kept for other clients. The error is a [*hubdata.ServiceError].
func (h *Hub) PatchDesired(id, patch string) (version int64, err error) {
	return h.hub.ChangeDesired(id, patch, false)
}

// SetDesired replaces the desired properties. Otherwise it is like [Hub.PatchDesired].
func (h *Hub) SetDesired(id, document string) (version int64, err error) {
	return h.hub.ChangeDesired(id, document, true)
}

// PatchTags merges a patch, a JSON object, into the tags of a twin. Devices do not see tags.
func (h *Hub) PatchTags(id, patch string) error { return h.hub.PatchTags(id, patch) }

// ChangeTwin changes the desired properties, the tags or both of a device, or of a module named
// "deviceID/moduleID", completely or not at all, and returns the twin after the change. With an
// ETag it fails if the twin has another one, so that no change of another back end is overwritten.
// Subscribed clients receive the change. The error is a [*hubdata.ServiceError].
func (h *Hub) ChangeTwin(id string, c hubdata.TwinChange) (hubdata.Twin, error) {
	return h.hub.ChangeTwin(id, c)
}

// WaitReported waits until ok returns true for the twin of a device, or of a module named
// "deviceID/moduleID". It fails when the context ends, the hub is closed, or there is no such twin.
func (h *Hub) WaitReported(ctx context.Context, id string, ok func(hubdata.Twin) bool) error {
	return h.hub.WaitReported(ctx, id, ok)
}

// TwinLog returns the twin requests of a device, or of a module named "deviceID/moduleID", in order
// of arrival. It is empty when there is no such twin.
func (h *Hub) TwinLog(id string) []hubdata.TwinRequest { return h.hub.TwinLog(id) }

package hub

import (
	"errors"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/document"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
	"github.com/hubline-iot/hubline/testbroker/internal/keep"
)

// tableTwins has the twins by the names of their identities.
const tableTwins = "devicetwins"

// A twinRecord is a twin. The copy of an off-line gateway is not kept.
type twinRecord struct {
	Desired, Reported, Tags document.Record
	Version                 int64
	Etag                    uint64
	Model                   string `json:",omitempty"`
}

func (h *Hub) addTwinTable() {
	h.Records.Add(tableTwins, h.twinRecord, keep.Decoded(h.restoreTwin))
}

// touchTwin marks a twin as changed. The caller may hold any lock.
func (h *Hub) touchTwin(t *TwinState) { h.Records.Touch(tableTwins, t.id.String()) }

func (h *Hub) twinRecord(key string) []byte {
	h.mu.Lock()
	t := h.twinOf[identity.SplitIdentity(key)]
	h.mu.Unlock()
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return keep.MustJSON(twinRecord{t.Desired.Record(), t.Reported.Record(), t.Tags.Record(), t.Version, t.Etag, t.Model})
}

func (h *Hub) restoreTwin(key string, r twinRecord) error {
	t := &TwinState{id: identity.SplitIdentity(key), Version: r.Version, Etag: r.Etag, Model: r.Model}
	t.requests = keep.History[*hubdata.TwinRequest]{Keep: h.Keep}
	var errs [3]error
	t.Desired, errs[0] = r.Desired.Section(document.MaxSection)
	t.Reported, errs[1] = r.Reported.Section(document.MaxSection)
	t.Tags, errs[2] = r.Tags.Section(document.MaxTags)
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	if h.orphaned(tableTwins, key, t.id) {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.twinOf[t.id] = t
	return nil
}

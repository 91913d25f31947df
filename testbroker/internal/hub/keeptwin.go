package hub

import (
	"encoding/json"
	"time"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
	"github.com/hubline-iot/hubline/testbroker/internal/keep"
)

// tableTwins has the twins by the names of their identities.
const tableTwins = "devicetwins"

// A twinRecord is a twin. The copy of an off-line gateway is not kept.
type twinRecord struct {
	Desired, Reported, Tags sectionRecord
	Version                 int64
	Etag                    uint64
	Model                   string `json:",omitempty"`
}

// A sectionRecord is a Section.
type sectionRecord struct {
	Tree    json.RawMessage
	Stamp   stampRecord
	Version int64
}

// A stampRecord is a stamp.
type stampRecord struct {
	At      time.Time
	Version int64
	Members map[string]stampRecord `json:",omitempty"`
	Object  bool                   `json:",omitempty"` // it has members, perhaps none
}

func (h *Hub) addTwinTable() {
	h.Records.Add(tableTwins, h.twinRecord, h.restoreTwin)
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
	return keep.MustJSON(twinRecord{t.Desired.record(), t.Reported.record(), t.Tags.record(), t.Version, t.Etag, t.Model})
}

func (h *Hub) restoreTwin(key string, record []byte) error {
	var r twinRecord
	if err := json.Unmarshal(record, &r); err != nil {
		return err
	}
	t := &TwinState{id: identity.SplitIdentity(key), Version: r.Version, Etag: r.Etag, Model: r.Model}
	t.requests = keep.History[*hubdata.TwinRequest]{Keep: h.Keep}
	for _, part := range []struct {
		to    *Section
		from  *sectionRecord
		limit int
	}{
		{&t.Desired, &r.Desired, maxTwinSection}, {&t.Reported, &r.Reported, maxTwinSection}, {&t.Tags, &r.Tags, maxTwinTags},
	} {
		tree, err := ParseTree(part.from.Tree)
		if err != nil {
			return err
		}
		stamp := part.from.Stamp.stamp()
		if !stamped(tree, stamp) {
			return keep.ErrRecord
		}
		*part.to = Section{tree, stamp, part.from.Version, part.limit}
	}
	if h.orphaned(tableTwins, key, t.id) {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.twinOf[t.id] = t
	return nil
}

func (s Section) record() sectionRecord {
	return sectionRecord{writeTree(s.Tree), s.Stamp.record(), s.version}
}

func (s *stamp) record() stampRecord {
	r := stampRecord{At: s.at, Version: s.version, Object: s.members != nil}
	if len(s.members) > 0 {
		r.Members = make(map[string]stampRecord, len(s.members))
	}
	for name, m := range s.members {
		r.Members[name] = m.record()
	}
	return r
}

func (r *stampRecord) stamp() *stamp {
	s := &stamp{at: r.At, version: r.Version}
	if r.Object {
		s.members = make(map[string]*stamp, len(r.Members))
	}
	for name, m := range r.Members {
		if s.members != nil {
			s.members[name] = m.stamp()
		}
	}
	return s
}

// stamped reports whether each object of a tree has its stamps, which a merge relies on.
func stamped(t Tree, s *stamp) bool {
	if s.members == nil {
		return false
	}
	for name, v := range t {
		m := s.members[name]
		if m == nil {
			return false
		}
		if sub, ok := v.(Tree); ok && !stamped(sub, m) {
			return false
		}
	}
	return true
}

package document

import (
	"encoding/json"
	"time"

	"github.com/hubline-iot/hubline/testbroker/internal/keep"
)

// A Record is a Section in a store.
type Record struct {
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

// Record returns the section for a store.
func (s Section) Record() Record { return Record{JSON(s.Tree), s.Stamp.record(), s.Version} }

// Section returns the section of a record, of at most limit bytes from the next change on.
func (r *Record) Section(limit int) (Section, error) {
	tree, err := Parse(r.Tree)
	if err != nil {
		return Section{}, err
	}
	stamp := r.Stamp.stamp()
	if !stamped(tree, stamp) {
		return Section{}, keep.ErrRecord
	}
	return Section{tree, stamp, r.Version, limit}, nil
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

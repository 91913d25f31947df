package document

import (
	"errors"
	"fmt"
	"maps"
	"time"
)

// A stamp records when a member of a tree was last changed, and by which version.
type stamp struct {
	at      time.Time
	version int64
	members map[string]*stamp // members of an object
}

func (s *stamp) clone() *stamp {
	c := *s
	if s.members != nil {
		c.members = make(map[string]*stamp, len(s.members))
		for key, m := range s.members {
			c.members[key] = m.clone()
		}
	}
	return &c
}

// Metadata returns a stamp as back ends see it. Only the metadata of desired properties has
// versions.
func (s *stamp) Metadata(versions bool) Tree {
	t := Tree{"$lastUpdated": s.at.UTC().Format(TimeLayout)}
	if versions {
		t["$lastUpdatedVersion"] = s.version
	}
	for key, m := range s.members {
		t[key] = m.Metadata(versions)
	}
	return t
}

// metadataOf is Metadata for the members of a patch. Removed members have none.
func (s *stamp) metadataOf(patch Tree, versions bool) Tree {
	t := (&stamp{at: s.at, version: s.version}).Metadata(versions)
	for key, v := range patch {
		m, ok := s.members[key]
		if !ok {
			continue
		}
		if sub, nested := v.(Tree); nested {
			t[key] = m.metadataOf(sub, versions)
		} else {
			t[key] = m.Metadata(versions)
		}
	}
	return t
}

// mergeTree merges a patch into a tree by the rules of RFC 7396, and stamps the changed members.
func mergeTree(t Tree, s *stamp, patch Tree, at time.Time, version int64) {
	s.at, s.version = at, version
	for key, v := range patch {
		if v == nil {
			delete(t, key)
			delete(s.members, key)
			continue
		}
		sub, ok := v.(Tree)
		if !ok {
			t[key] = v
			s.members[key] = &stamp{at: at, version: version}
			continue
		}
		into, ok := t[key].(Tree)
		if !ok {
			into = Tree{}
			t[key] = into
			s.members[key] = &stamp{members: make(map[string]*stamp)}
		}
		mergeTree(into, s.members[key], sub, at, version)
	}
}

// A Section is one of the parts of a twin. It is immutable: a change makes a new section.
type Section struct {
	Tree    Tree
	Stamp   *stamp
	Version int64
	limit   int // size limit
}

// NewSection returns an empty section of at most limit bytes.
func NewSection(at time.Time, limit int) Section {
	return Section{Tree{}, &stamp{at: at, version: 1, members: make(map[string]*stamp)}, 1, limit}
}

// ErrTooLarge is the error for a section above its limit.
var ErrTooLarge = errors.New("too large")

// Merge returns the section with a patch merged into it, or replaced by it. The patch was checked
// before. A nil patch changes nothing.
func (s Section) Merge(patch Tree, replace bool, at time.Time) (Section, error) {
	if patch == nil {
		return s, nil
	}
	next := Section{Clone(s.Tree), s.Stamp.clone(), s.Version + 1, s.limit}
	if replace {
		next.Tree, next.Stamp = Tree{}, &stamp{members: make(map[string]*stamp)}
	}
	mergeTree(next.Tree, next.Stamp, patch, at, next.Version)
	if n := treeSize(next.Tree); n > s.limit {
		return s, fmt.Errorf("%w: %d bytes, at most %d are allowed", ErrTooLarge, n, s.limit)
	}
	return next, nil
}

// Document returns the section as devices see it.
func (s Section) Document() Tree {
	t := maps.Clone(s.Tree)
	t["$version"] = s.Version
	return t
}

// Change returns a patch that was merged into the section, with the metadata of its members.
func (s Section) Change(patch Tree, versions bool) Tree {
	doc := Section{Tree: patch, Version: s.Version}.Document()
	doc["$metadata"] = s.Stamp.metadataOf(patch, versions)
	return doc
}

// Notification returns what devices are told of a change: the patch, or the new document.
func (s Section) Notification(patch Tree, replaced bool) []byte {
	if replaced {
		return JSON(s.Document())
	}
	return JSON(Section{Tree: patch, Version: s.Version}.Document())
}

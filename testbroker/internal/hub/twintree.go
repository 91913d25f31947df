package hub

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// The limits of a twin. Source: the page "Understand and use device twins" of the service's guide.
const (
	maxTwinSection = 32 << 10 // bytes of desired, and of reported, as counted by treeSize
	maxTwinTags    = 8 << 10
	maxTwinKey     = 1 << 10 // bytes
	maxTwinText    = 4 << 10 // bytes of a string value
	maxTwinDepth   = 10      // nested objects and arrays below the root
	maxTwinInteger = 1<<52 - 1
	minTwinInteger = -1 << 52
)

// A Tree is a JSON object as decoded by package json, with numbers as json.Number. Arrays in it are
// never modified.
type Tree = map[string]any

// validJSON reports whether text is one JSON value in UTF-8, which json.Valid does not check.
func validJSON(text []byte) bool { return utf8.Valid(text) && json.Valid(text) }

// ParseTree parses a JSON object.
func ParseTree(text []byte) (Tree, error) {
	if !utf8.Valid(text) {
		return nil, errors.New("not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("not JSON: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("not JSON: something follows the first value")
	}
	t, ok := v.(Tree)
	if !ok {
		return nil, errors.New("not an object")
	}
	return t, nil
}

// writeTree encodes a tree: sorted names, no spaces, minimal escaping.
func writeTree(t Tree) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(t); err != nil {
		panic(err) // a tree holds only JSON values
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// CheckTree returns the first violation of the service's rules in a tree, at any depth.
func CheckTree(t Tree) error { return checkMembers(t, "", 0, false) }

// checkMembers checks an object. inArray: an array holds it, so a null in it deletes no member.
func checkMembers(t Tree, path string, depth int, inArray bool) error {
	if depth > maxTwinDepth {
		return fmt.Errorf("%s: deeper than %d levels", path, maxTwinDepth)
	}
	for key, v := range t {
		at := strings.TrimPrefix(path+"."+key, ".")
		if err := checkKey(key); err != nil {
			return fmt.Errorf("%.100s: %w", at, err)
		}
		if err := checkValue(v, at, depth, inArray); err != nil {
			return err
		}
	}
	return nil
}

func checkValue(v any, at string, depth int, inArray bool) error {
	switch v := v.(type) {
	case nil:
		if inArray {
			return fmt.Errorf("%.100s: null in an array", at)
		}
	case Tree:
		return checkMembers(v, at, depth+1, inArray)
	case []any:
		if depth+1 > maxTwinDepth {
			return fmt.Errorf("%.100s: deeper than %d levels", at, maxTwinDepth)
		}
		for _, element := range v {
			if err := checkValue(element, at, depth+1, true); err != nil {
				return err
			}
		}
	case string:
		if len(v) > maxTwinText {
			return fmt.Errorf("%.100s: text of %d bytes, at most %d are allowed", at, len(v), maxTwinText)
		}
	case json.Number:
		if err := checkNumber(v.String()); err != nil {
			return fmt.Errorf("%.100s: %w", at, err)
		}
	}
	return nil
}

func checkKey(key string) error {
	if len(key) > maxTwinKey {
		return fmt.Errorf("key of %d bytes, at most %d are allowed", len(key), maxTwinKey)
	}
	for _, r := range key {
		if isControl(r) || r == '.' || r == '$' || r == ' ' {
			return fmt.Errorf("key with %q", r)
		}
	}
	return nil
}

func isControl(r rune) bool { return r < 0x20 || r >= 0x7f && r < 0xa0 }

func checkNumber(text string) error {
	if strings.ContainsAny(text, ".eE") {
		if _, err := strconv.ParseFloat(text, 64); err != nil {
			return fmt.Errorf("number %.40s is out of range", text)
		}
		return nil
	}
	if n, err := strconv.ParseInt(text, 10, 64); err != nil || n < minTwinInteger || n > maxTwinInteger {
		return fmt.Errorf("integer %.40s is out of range, which is %d to %d", text, int64(minTwinInteger),
			int64(maxTwinInteger))
	}
	return nil
}

// treeSize returns the size as the service counts it: keys and strings by their bytes without
// control characters, numbers 8, booleans 4.
func treeSize(v any) int {
	switch v := v.(type) {
	case Tree:
		n := 0
		for key, member := range v {
			n += len(key) + treeSize(member)
		}
		return n
	case []any:
		n := 0
		for _, element := range v {
			n += treeSize(element)
		}
		return n
	case string:
		n := 0
		for _, r := range v {
			if !isControl(r) {
				n += utf8.RuneLen(r)
			}
		}
		return n
	case json.Number:
		return 8
	case bool:
		return 4
	}
	return 0
}

// A stamp records when a member of a tree was last changed, and by which version.
type stamp struct {
	at      time.Time
	version int64
	members map[string]*stamp // members of an object
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

func CloneTree(t Tree) Tree {
	t = maps.Clone(t)
	for key, v := range t {
		if sub, ok := v.(Tree); ok {
			t[key] = CloneTree(sub)
		}
	}
	return t
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

// A Section is one of the parts of a twin. It is immutable: a change makes a new section.
type Section struct {
	Tree    Tree
	Stamp   *stamp
	version int64
	limit   int // size limit
}

func newSection(at time.Time, limit int) Section {
	return Section{Tree{}, &stamp{at: at, version: 1, members: make(map[string]*stamp)}, 1, limit}
}

// updated returns the section with a patch merged into it, or replaced by it. The patch was checked
// before. A nil patch changes nothing.
func (s Section) updated(patch Tree, replace bool, at time.Time) (Section, error) {
	if patch == nil {
		return s, nil
	}
	next := Section{CloneTree(s.Tree), s.Stamp.clone(), s.version + 1, s.limit}
	if replace {
		next.Tree, next.Stamp = Tree{}, &stamp{members: make(map[string]*stamp)}
	}
	mergeTree(next.Tree, next.Stamp, patch, at, next.version)
	if n := treeSize(next.Tree); n > s.limit {
		return s, fmt.Errorf("%d bytes, at most %d are allowed", n, s.limit)
	}
	return next, nil
}

// Document returns the section as devices see it.
func (s Section) Document() Tree {
	t := maps.Clone(s.Tree)
	t["$version"] = s.version
	return t
}

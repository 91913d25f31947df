// Package document has the JSON documents of a hub: trees, the sections of twins with the times of
// their changes, digital twins, and times as texts. It knows no hub.
package document

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// The limits of a twin. Source: the page "Understand and use device twins" of the service's guide.
const (
	MaxSection     = 32 << 10 // bytes of desired, and of reported, as counted by treeSize
	MaxTags        = 8 << 10
	maxTwinKey     = 1 << 10 // bytes
	maxTwinText    = 4 << 10 // bytes of a string value
	maxTwinDepth   = 10      // nested objects and arrays below the root
	maxTwinInteger = 1<<52 - 1
	minTwinInteger = -1 << 52
)

// A Tree is a JSON object as decoded by package json, with numbers as json.Number. Arrays in it are
// never modified.
type Tree = map[string]any

// Valid reports whether text is one JSON value in UTF-8, which json.Valid does not check.
func Valid(text []byte) bool { return utf8.Valid(text) && json.Valid(text) }

// Parse parses a JSON object.
func Parse(text []byte) (Tree, error) {
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

// JSON encodes a value that always can be, such as a Tree: sorted names, no spaces, minimal
// escaping.
func JSON(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// Check returns the first violation of the service's rules in a tree, at any depth.
func Check(t Tree) error { return checkMembers(t, "", 0, false) }

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

func Clone(t Tree) Tree {
	t = maps.Clone(t)
	for key, v := range t {
		if sub, ok := v.(Tree); ok {
			t[key] = Clone(sub)
		}
	}
	return t
}

// Difference returns the patch that makes the first tree the second.
func Difference(from, to Tree) Tree {
	patch := make(Tree)
	for key := range from {
		if _, ok := to[key]; !ok {
			patch[key] = nil
		}
	}
	for key, v := range to {
		before, ok := from[key]
		if ok && reflect.DeepEqual(before, v) {
			continue
		}
		was, wasTree := before.(Tree)
		is, isTree := v.(Tree)
		if wasTree && isTree {
			v = Difference(was, is)
		}
		patch[key] = v
	}
	return patch
}

// TimeLayout is the layout of times in topics. Some clients require exactly seven decimals.
const TimeLayout = "2006-01-02T15:04:05.0000000Z"

// TimeText returns a time in that layout; empty for the zero time.
func TimeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(TimeLayout)
}

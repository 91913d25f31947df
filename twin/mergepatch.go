package twin

// JSON merge patches (RFC 7396), on values as encoding/json decodes them with UseNumber. No
// function changes its arguments; results may share parts of them.

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"math/big"
	"strings"
)

// decodeJSON decodes one JSON value.
func decodeJSON(text []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one JSON value")
	}
	return v, nil
}

// decodeObject decodes one JSON object.
func decodeObject(text []byte) (map[string]any, error) {
	v, err := decodeJSON(text)
	if err != nil {
		return nil, err
	}
	o, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("not a JSON object")
	}
	return o, nil
}

// mergePatch returns target with patch applied.
func mergePatch(target, patch any) any {
	changes, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	old, _ := target.(map[string]any)
	merged := make(map[string]any, len(old)+len(changes))
	maps.Copy(merged, old)
	for name, change := range changes {
		if change == nil {
			delete(merged, name)
			continue
		}
		merged[name] = mergePatch(merged[name], change)
	}
	return merged
}

// diffPatch returns the patch that makes to of from, and whether there is a difference. A null
// member of to counts as absent, because no patch makes one.
func diffPatch(from, to map[string]any) (patch map[string]any, differ bool) {
	patch = map[string]any{}
	for name := range from {
		if to[name] == nil {
			patch[name] = nil
		}
	}
	for name, value := range to {
		old, known := from[name]
		inner, isObject := value.(map[string]any)
		oldInner, wasObject := old.(map[string]any)
		switch {
		case value == nil:
		case isObject && wasObject:
			if change, differ := diffPatch(oldInner, inner); differ {
				patch[name] = change
			}
		case !known || !equalJSON(old, value):
			patch[name] = mergePatch(nil, value) // without null members
		}
	}
	return patch, len(patch) > 0
}

// equalJSON reports whether two values are the same. Numbers are compared by their value, because a
// hub may write them in another way.
func equalJSON(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		return ok && maps.EqualFunc(a, b, equalJSON)
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for i := range a {
			if !equalJSON(a[i], b[i]) {
				return false
			}
		}
		return true
	case json.Number:
		b, ok := b.(json.Number)
		return ok && (a == b || sameNumber(string(a), string(b)))
	}
	return a == b
}

// maxDigits is the length of the longest number that is compared by value; 128 bits hold it.
// maxExponent is that of its exponent, with the sign: a longer one may lead beyond a big.Float,
// where all numbers are infinite, or zero.
const maxDigits, maxExponent = 36, 6

func sameNumber(a, b string) bool {
	if !isComparable(a) || !isComparable(b) {
		return false
	}
	x, _, errX := big.ParseFloat(a, 10, 128, big.ToNearestEven)
	y, _, errY := big.ParseFloat(b, 10, 128, big.ToNearestEven)
	return errX == nil && errY == nil && x.Cmp(y) == 0
}

func isComparable(number string) bool {
	e := strings.IndexAny(number, "eE")
	return len(number) <= maxDigits && (e < 0 || len(number)-e-1 <= maxExponent)
}

// Diff returns the merge patch (RFC 7396) that makes the JSON object to of the object from, or nil
// if they are the same: a member that only from has becomes null. A null member of to counts as
// absent. The error, of Kind Invalid, means that one of them is no JSON object.
func Diff(from, to []byte) (patch []byte, err error) {
	old, err := decodeObject(from)
	if err != nil {
		return nil, invalid(err)
	}
	want, err := decodeObject(to)
	if err != nil {
		return nil, invalid(err)
	}
	changes, differ := diffPatch(old, want)
	if !differ {
		return nil, nil
	}
	return json.Marshal(changes)
}

package fleet

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/internal/fields"
	"github.com/hubline-iot/hubline/internal/scrub"
	"github.com/hubline-iot/hubline/transport"
)

// MarshalJSON returns an object with all fields: durations such as "1h30m0s", effects, tiers and
// Kinds as text.
func (s Scenario) MarshalJSON() ([]byte, error) {
	text, err := encode(reflect.ValueOf(s))
	return []byte(text), err
}

// UnmarshalJSON takes what MarshalJSON returns. Absent fields keep their values, and a duration may
// be a number of nanoseconds. Names match exactly, and an unknown one is an error. Errors are a
// *transport.Error of Kind Invalid.
func (s *Scenario) UnmarshalJSON(text []byte) error {
	if err := decode("", text, reflect.ValueOf(s).Elem()); err != nil {
		return invalid(err.Error())
	}
	return nil
}

// encode returns a part of a scenario in JSON.
func encode(v reflect.Value) (string, error) {
	leaf := v.Interface()
	switch value := leaf.(type) {
	case time.Duration:
		leaf = value.String()
	case transport.Kind:
		text, err := textOf(kindText[:], int(value), "Kind")
		if err != nil {
			return "", err
		}
		leaf = string(text)
	}
	switch v.Kind() {
	case reflect.Struct:
		return encodeStruct(v)
	case reflect.Slice, reflect.Array:
		parts := make([]string, v.Len())
		for i := range parts {
			var err error
			if parts[i], err = encode(v.Index(i)); err != nil {
				return "", err
			}
		}
		return "[" + strings.Join(parts, ",") + "]", nil
	default:
		text, err := json.Marshal(leaf)
		return string(text), err
	}
}

func encodeStruct(v reflect.Value) (string, error) {
	set, err := fields.Of(v.Type())
	if err != nil {
		return "", err
	}
	parts := make([]string, len(set.Names))
	for i, name := range set.Names {
		text, err := encode(set.Field(v, name))
		if err != nil {
			return "", err
		}
		parts[i] = strconv.Quote(name) + ":" + text
	}
	return "{" + strings.Join(parts, ",") + "}", nil
}

// decode decodes a part of a scenario into v. path is its name for errors.
func decode(path string, text []byte, v reflect.Value) error {
	if string(text) == "null" {
		return nil
	}
	var err error
	switch to := v.Addr().Interface().(type) {
	case *time.Duration:
		*to, err = parseDuration(text)
	case *transport.Kind:
		var n int
		err = quoted(text, func(t []byte) (err error) { n, err = indexOf(kindText[:], t, "Kind that is retried"); return })
		*to = transport.Kind(n)
	case encoding.TextUnmarshaler:
		err = quoted(text, to.UnmarshalText)
	default:
		return decodeValue(path, text, v)
	}
	if err != nil {
		return &fields.Error{Field: path, Err: err}
	}
	return nil
}

// decodeValue decodes what is no text.
func decodeValue(path string, text []byte, v reflect.Value) error {
	switch v.Kind() {
	case reflect.Struct:
		return decodeStruct(path, text, v)
	case reflect.Slice, reflect.Array:
		return decodeList(path, text, v)
	default:
		return at(path, fields.Value(v.Addr().Interface(), text))
	}
}

func decodeStruct(path string, text []byte, v reflect.Value) error {
	set, err := fields.Of(v.Type())
	if err != nil {
		return err
	}
	var members map[string]json.RawMessage
	if err := fields.Value(&members, text); err != nil {
		return at(path, err)
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		member := strings.TrimPrefix(path+"."+name, ".")
		if !set.Has(name) {
			return &fields.Error{Field: member, Err: fmt.Errorf("%w; give one of %s", fields.ErrUnknown,
				strings.Join(set.Names, ", "))}
		}
		if err := decode(member, members[name], set.Field(v, name)); err != nil {
			return err
		}
	}
	return nil
}

// decodeList decodes the elements of a slice, or as many as an array has.
func decodeList(path string, text []byte, v reflect.Value) error {
	var items []json.RawMessage
	if err := fields.Value(&items, text); err != nil {
		return at(path, err)
	}
	switch most := maxFaults; {
	case v.Kind() == reflect.Array && len(items) != v.Len():
		return &fields.Error{Field: path, Err: fmt.Errorf("%d values; give %d", len(items), v.Len())}
	case v.Kind() == reflect.Slice && len(items) > most:
		return &fields.Error{Field: path, Err: fmt.Errorf("%d values; give at most %d", len(items), most)}
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), len(items), len(items)))
	}
	for i, item := range items {
		if err := decode(path+"["+strconv.Itoa(i)+"]", item, v.Index(i)); err != nil {
			return err
		}
	}
	return nil
}

// at names the path in an error about a value.
func at(path string, err error) error {
	if wrong := fields.Named(err); len(wrong) == 1 {
		wrong[0].Field = path
	}
	return err
}

// quoted calls take with the text of a JSON string.
func quoted(text []byte, take func([]byte) error) error {
	var s string
	if err := fields.Value(&s, text); err != nil {
		return err
	}
	return take([]byte(s))
}

func parseDuration(text []byte) (d time.Duration, err error) {
	if json.Unmarshal(text, (*int64)(&d)) == nil {
		return d, nil
	}
	var s string
	if json.Unmarshal(text, &s) == nil {
		if d, err = time.ParseDuration(s); err == nil {
			return d, nil
		}
	}
	return 0, errors.New(scrub.Peer(string(text)) +
		` is no duration; give one such as "1h30m", or a number of nanoseconds`)
}

// Package fields decodes JSON objects into structs one field at a time, so that each error names
// its field, and the other fields are decoded all the same.
package fields

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/hubline-iot/hubline/internal/scrub"
)

// Error is a value that a field does not take.
type Error struct {
	// Field is the field's name in JSON, or its path: "window.from". It is empty for a value that is
	// no object.
	Field string
	// Err says why.
	Err error
}

// Error names the field, and says why it does not take the value.
func (e *Error) Error() string {
	if e.Field == "" {
		return e.Err.Error()
	}
	return "field " + scrub.Peer(e.Field) + ": " + e.Err.Error()
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// ErrUnknown is the cause of an Error about a name that no field has.
var ErrUnknown = errors.New("there is no such field")

// Named returns all Errors in err's tree, in order.
func Named(err error) (found []*Error) {
	switch e := err.(type) { //nolint:errorlint // this walks the tree itself
	case *Error:
		return []*Error{e}
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			found = append(found, Named(one)...)
		}
	case interface{ Unwrap() error }:
		return Named(e.Unwrap())
	}
	return found
}

// Set is the set of a struct's fields that have a name in JSON.
type Set struct {
	// Names are in the order of the struct.
	Names []string
	index map[string]int
}

// Of returns the fields of a struct type. It returns an error for a type that is no struct, and for
// what encoding/json does to more than one field: embedded structs and the option "string".
func Of(t reflect.Type) (*Set, error) {
	if t == nil || t.Kind() != reflect.Struct {
		return nil, fmt.Errorf("%v is not a struct; give a struct with a field for each property", t)
	}
	s := &Set{index: map[string]int{}}
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		switch {
		case f.Anonymous && name == "":
			return nil, fmt.Errorf("%v embeds %v; give the field a name of its own", t, f.Type)
		case !f.IsExported() || tag == "-":
			continue
		case strings.Contains(","+options+",", ",string,"):
			return nil, fmt.Errorf("field %s of %v has the option string; use the type of its JSON value", f.Name, t)
		case name == "":
			name = f.Name
		}
		if _, taken := s.index[name]; taken {
			return nil, fmt.Errorf("two fields of %v are called %s; give one of them another name", t, name)
		}
		s.Names, s.index[name] = append(s.Names, name), i
	}
	return s, nil
}

// Has reports whether a field has this name.
func (s *Set) Has(name string) bool {
	_, ok := s.index[name]
	return ok
}

// Field returns the field called name of v, a struct of the set's type.
func (s *Set) Field(v reflect.Value, name string) reflect.Value { return v.Field(s.index[name]) }

// Decode decodes text into the field called name of v, which is addressable. The name matches
// exactly, as names of properties of a twin do. The error is an *Error.
func (s *Set) Decode(v reflect.Value, name string, text []byte) error {
	if !s.Has(name) {
		return &Error{name, ErrUnknown}
	}
	return into(s.Field(v, name).Addr().Interface(), name, text)
}

// DecodeAll decodes a JSON object into v, a pointer to a struct of the set's type. Names match as
// those of encoding/json: a field takes a member with its name in another case, too. Members that
// no field has are wrong at any depth, except in types that decode themselves. The error joins one
// for each wrong member, at most ten.
func (s *Set) DecodeAll(v reflect.Value, text []byte) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return explain("", err)
	}
	if members == nil { // null
		return nil
	}
	var errs []error
	d := json.NewDecoder(bytes.NewReader(text)) // unlike the map, it has the order
	_, _ = d.Token()
	for d.More() {
		var value json.RawMessage
		member, _ := d.Token()
		name, ok := s.matching(member.(string))
		switch err := d.Decode(&value); {
		case err != nil:
			return explain(name, err)
		case !ok:
			errs = add(errs, &Error{name, ErrUnknown})
		default:
			errs = add(errs, strictly(s.Field(v.Elem(), name).Addr().Interface(), name, value))
		}
	}
	return errors.Join(errs...)
}

// matching returns the name of the field that takes a member called name.
func (s *Set) matching(name string) (string, bool) {
	if s.Has(name) {
		return name, true
	}
	if i := slices.IndexFunc(s.Names, func(n string) bool { return strings.EqualFold(n, name) }); i >= 0 {
		return s.Names[i], true
	}
	return name, false
}

// maxErrors is the number of errors that DecodeAll returns at most.
const maxErrors = 10

func add(errs []error, err error) []error {
	if err == nil || len(errs) == maxErrors {
		return errs
	}
	return append(errs, err)
}

// Value decodes text into the variable that v points to. The error is an *Error.
func Value(v any, text []byte) error { return into(v, "", text) }

func into(v any, name string, text []byte) error {
	if err := json.Unmarshal(text, v); err != nil {
		return explain(name, err)
	}
	return nil
}

// strictly is into without unknown members of nested structs.
func strictly(v any, name string, text []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(v)
	if err == nil {
		return nil
	}
	if unknown, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok { // it has no type of its own
		return &Error{name, fmt.Errorf("%w: %s", ErrUnknown, scrub.Peer(strings.Trim(unknown, `"`)))}
	}
	return explain(name, err)
}

// explain makes an Error of one of encoding/json, whose texts are about Go types.
func explain(name string, err error) error {
	wrong := (*json.UnmarshalTypeError)(nil)
	if !errors.As(err, &wrong) {
		return &Error{name, errors.New(scrub.Error(err))}
	}
	if wrong.Field != "" {
		name = strings.TrimPrefix(name+"."+wrong.Field, ".")
	}
	got, _, _ := strings.Cut(wrong.Value, " ")
	return &Error{name, fmt.Errorf("want %s, got %s", kinds[wrong.Type.Kind()], values[got])}
}

// values are the words of encoding/json for JSON values.
var values = map[string]string{
	"string": "a string", "number": "a number", "bool": "true or false", "array": "an array", "object": "an object",
}

var kinds = [reflect.UnsafePointer + 1]string{
	reflect.Bool: "true or false", reflect.String: "a string",
	reflect.Int: whole, reflect.Int8: whole, reflect.Int16: whole, reflect.Int32: whole, reflect.Int64: whole,
	reflect.Uint: natural, reflect.Uint8: natural, reflect.Uint16: natural, reflect.Uint32: natural,
	reflect.Uint64: natural, reflect.Uintptr: natural,
	reflect.Float32: "a number in its range", reflect.Float64: "a number in its range",
	reflect.Slice: "an array", reflect.Array: "an array",
	reflect.Map: "an object", reflect.Struct: "an object", reflect.Interface: "another value",
	reflect.Pointer: "another value", reflect.Chan: "no value", reflect.Func: "no value",
	reflect.Complex64: "no value", reflect.Complex128: "no value", reflect.UnsafePointer: "no value",
	reflect.Invalid: "no value",
}

const (
	whole   = "a whole number in its range"
	natural = "a whole number in its range, not below 0"
)

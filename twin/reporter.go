package twin

import (
	"context"
	"encoding/json"
	"reflect"

	"github.com/hubline-iot/hubline/internal/fields"
)

// Reporter reports the fields of a struct as properties, and sends only what changed.
type Reporter[T any] struct {
	fields   *fields.Set
	reported *reported
}

// NewReporter returns a Reporter for the client. T is a struct; the rules for its fields are in the
// package's documentation. The error is Invalid for another type.
func NewReporter[T any](c Client) (*Reporter[T], error) {
	set, err := fields.Of(reflect.TypeFor[T]())
	if err != nil {
		return nil, invalid(err)
	}
	return &Reporter[T]{set, newReported(c, set.Names)}, nil
}

// Report makes the reported properties those of v. It sends a merge patch of what differs from the
// properties that the hub has acknowledged: nothing if they are the same, null for a member that v
// does not have (omitempty, a nil pointer, a missing key of a map). Properties without a field stay
// as they are.
//
// The first call, and one after an error, reads the twin. So does a call after the properties were
// changed by another writer, which the hub's version shows.
//
// Errors are those of PatchReported and GetTwin, and Invalid for a v that is no JSON. Calls take
// turns.
func (r *Reporter[T]) Report(ctx context.Context, v T) error {
	text, err := json.Marshal(v)
	if err != nil {
		return invalid(err)
	}
	doc, err := decodeObject(text)
	if err != nil {
		return invalid(err)
	}
	for name := range doc {
		if !r.fields.Has(name) { // T has a MarshalJSON of its own
			return invalid(&FieldError{Field: name, Err: ErrUnknown})
		}
	}
	return r.reported.report(ctx, doc)
}

// Forget makes the next Report read the twin: after the device moved to another hub, which keeps
// another twin.
func (r *Reporter[T]) Forget() { r.reported.forget() }

package twin

import (
	"context"
	"encoding/json"
	"reflect"

	"github.com/hubline-iot/hubline/internal/fields"
	"github.com/hubline-iot/hubline/internal/mergepatch"
	"github.com/hubline-iot/hubline/transport"
)

// reported knows the properties that the hub has acknowledged.
type reported struct {
	client Client
	names  []string // properties of others are not touched
	turn   chan struct{}

	// These belong to the holder of turn.
	acknowledged map[string]any // nil: unknown, read the twin
	version      int64
}

func newReported(c Client, names []string) *reported {
	r := &reported{client: c, names: names, turn: make(chan struct{}, 1)}
	r.turn <- struct{}{}
	return r
}

// take waits for the turn.
func (r *reported) take(ctx context.Context) error {
	select {
	case <-r.turn:
		return nil
	case <-ctx.Done():
		return &transport.Error{Kind: transport.Cancelled, Op: transport.OpTwinPatch, Err: context.Cause(ctx)}
	}
}

// report makes the hub's properties those of doc, which has members of names only.
func (r *reported) report(ctx context.Context, doc map[string]any) error {
	if err := r.take(ctx); err != nil {
		return err
	}
	defer func() { r.turn <- struct{}{} }()
	for range 2 { // once more if another writer came in between
		if r.acknowledged == nil {
			if err := r.read(ctx); err != nil {
				return err
			}
		}
		patch, differ := mergepatch.Diff(r.acknowledged, doc)
		if !differ {
			return nil
		}
		alone, err := r.patch(ctx, patch)
		if err != nil || alone {
			return err
		}
	}
	return nil
}

func (r *reported) read(ctx context.Context) error {
	t, err := r.client.GetTwin(ctx)
	if err != nil {
		return err
	}
	all, err := mergepatch.Object(t.Reported)
	if err != nil {
		return &transport.Error{Kind: transport.Protocol, Op: transport.OpTwinGet, Err: err}
	}
	r.acknowledged, r.version = map[string]any{}, t.ReportedVersion
	for _, name := range r.names {
		if value, ok := all[name]; ok {
			r.acknowledged[name] = value
		}
	}
	return nil
}

// patch sends a patch. alone is false when the version shows a change by another writer since the
// last answer.
func (r *reported) patch(ctx context.Context, patch map[string]any) (alone bool, err error) {
	text, err := json.Marshal(patch)
	if err != nil {
		return false, invalid(err)
	}
	before, version := r.acknowledged, int64(0)
	r.acknowledged = nil // unknown until the hub acknowledges
	if version, err = r.client.PatchReported(ctx, text); err != nil {
		return false, err
	}
	alone = version == 0 || version == r.version+1
	if alone {
		r.acknowledged, _ = mergepatch.Merge(before, patch).(map[string]any)
		r.version = version
	}
	return alone, nil
}

func (r *reported) forget(ctx context.Context) error {
	if err := r.take(ctx); err != nil {
		return err
	}
	r.acknowledged = nil
	r.turn <- struct{}{}
	return nil
}

func invalid(err error) error {
	return &transport.Error{Kind: transport.Invalid, Op: transport.OpTwinPatch, Err: err}
}

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
	doc, err := mergepatch.Object(text)
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
// another twin. It waits for a Report that runs; the error is Cancelled.
func (r *Reporter[T]) Forget(ctx context.Context) error { return r.reported.forget(ctx) }

package twin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"sync"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/fields"
	"github.com/hubline-iot/hubline/transport"
)

// Binding keeps a struct up to date with desired properties, and reports what is in force.
type Binding[T any] struct {
	client Client
	set    Options[T]
	fields *fields.Set
	usual  map[string]any // the default, as JSON

	// These belong to the handler of desired properties.
	desired map[string]any // the properties with a field, as the hub has them
	answers map[string]answer

	mu      sync.Mutex
	value   T
	version int64

	sender *sender
}

// answer is what the device says about a property.
type answer struct {
	status      int
	description string
	version     int64
}

// Bind registers a handler for the desired properties with the client (HandleDesired), which
// replaces an earlier one. It may be called before Open. T is a struct; see the package's
// documentation. The error is Invalid for another type, and for a Default or Start that Check
// refuses, or that of HandleDesired.
func Bind[T any](c Client, o *Options[T]) (*Binding[T], error) {
	set, err := fields.Of(reflect.TypeFor[T]())
	if err != nil {
		return nil, invalid(err)
	}
	b := &Binding[T]{client: c, fields: set, answers: map[string]answer{}, desired: map[string]any{}}
	if o != nil {
		b.set = *o
	}
	if b.value = b.set.Default; b.set.Start != nil {
		b.value = *b.set.Start
	}
	text, err := json.Marshal(b.set.Default)
	if err == nil {
		b.usual, err = decodeObject(text)
	}
	if err != nil {
		return nil, invalid(fmt.Errorf("the default is no JSON object: %w", err))
	}
	for _, name := range set.Names {
		if err := checkName("property", name); err != nil {
			return nil, invalid(err)
		}
	}
	if err := b.check(b.set.Default); err != nil {
		return nil, invalid(fmt.Errorf("the default does not pass Check: %w", err))
	}
	if err := b.check(b.value); err != nil {
		return nil, invalid(fmt.Errorf("the value at the start does not pass Check: %w", err))
	}
	b.sender = &sender{to: newReported(c, set.Names), failed: b.failed}
	if err := c.HandleDesired(b.handle); err != nil {
		return nil, err
	}
	return b, nil
}

// Value returns the values in force. The caller must not change maps and slices in it.
func (b *Binding[T]) Value() T {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.value
}

// Version returns the version of the desired properties that were handled last, 0 for none.
func (b *Binding[T]) Version() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.version
}

// Close removes the handler from the client, cancels an answer that is being sent, and waits for
// its goroutine. The value stays. It must not be called from Apply, Check or OnError. Closing the
// client ends the answers as well.
func (b *Binding[T]) Close() {
	_ = b.client.HandleDesired(nil)
	b.sender.close()
}

// handle handles a change of the desired properties.
func (b *Binding[T]) handle(ctx context.Context, d device.Desired) {
	if d.Full {
		b.sender.to.forget()
	}
	touched, ok := b.merge(d)
	if !ok {
		return
	}
	b.mu.Lock()
	old := b.value
	b.mu.Unlock()
	next, refused := b.candidate(old)
	b.settle(old, &next, refused)
	b.apply(ctx, old, &next, d.Version, refused)

	b.mu.Lock()
	b.value, b.version = next, d.Version
	b.mu.Unlock()
	if doc := b.answer(next, touched, refused, d.Version); doc != nil {
		b.sender.send(ctx, doc)
	}
}

// maxDesired is the most JSON of desired properties that is kept. A hub allows 32 KiB ("Understand
// and use device twins in IoT Hub").
const maxDesired = 256 << 10

var errTooMuch = errors.New("more than 256 KiB are desired; the change is ignored")

// merge merges a change into the desired properties, and returns the properties that it has.
func (b *Binding[T]) merge(d device.Desired) (touched map[string]bool, ok bool) {
	all, err := Properties(d)
	if err != nil {
		b.failed(err)
		return nil, false
	}
	merged := map[string]any{}
	if !d.Full {
		merged = maps.Clone(b.desired)
	}
	touched = map[string]bool{}
	unknown := 0
	for _, p := range all {
		value, err := decodeJSON(p.Value)
		switch {
		case err != nil: // JSON that Properties took
			b.failed(&FieldError{Field: p.Name, Err: err})
		case p.Component != "" || !b.fields.Has(p.Name):
			if unknown++; unknown <= maxUnknown {
				b.failed(&FieldError{Field: Command(p.Component, p.Name), Err: ErrUnknown})
			}
		case value == nil:
			delete(merged, p.Name)
			touched[p.Name] = true
		default:
			merged[p.Name] = mergePatch(merged[p.Name], value)
			touched[p.Name] = true
		}
	}
	if text, err := json.Marshal(merged); err != nil || len(text) > maxDesired {
		b.failed(&transport.Error{Kind: transport.TooLarge, Err: errTooMuch})
		return nil, false
	}
	if d.Full {
		touched = b.changed(merged)
	}
	b.desired = merged
	return touched, true
}

// maxUnknown is how many unknown properties of a change are reported.
const maxUnknown = 10

// changed returns the properties whose desired value is not the one before, or was never answered.
func (b *Binding[T]) changed(desired map[string]any) map[string]bool {
	all := map[string]bool{}
	for _, name := range b.fields.Names {
		_, answered := b.answers[name]
		all[name] = !answered || !equalJSON(b.desired[name], desired[name])
	}
	return all
}

func (b *Binding[T]) failed(err error) {
	if err != nil && b.set.OnError != nil {
		_ = guard("OnError", func() error { b.set.OnError(err); return nil })
	}
}

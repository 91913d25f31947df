package twin

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"

	"github.com/hubline-iot/hubline/internal/callback"
	"github.com/hubline-iot/hubline/internal/fields"
	"github.com/hubline-iot/hubline/internal/scrub"
)

// refusals are the properties that keep their old value, and why.
type refusals map[string]refusal

type refusal struct {
	status int
	err    error
}

// statusFailed is the status of a property that Apply could not put in force.
const statusFailed = 500

// guard calls a callback. A panic is an error.
func guard(name string, f func() error) error { return callback.Call("twin.Options."+name, f) }

func (b *Binding[T]) check(v T) error {
	if b.set.Check == nil {
		return nil
	}
	return guard("Check", func() error { return b.set.Check(v) })
}

// candidate returns the value that the back end desires. Fields that cannot be decoded keep the old
// value, and those that are no properties that of Default.
func (b *Binding[T]) candidate(old T) (next T, refused refusals) {
	next, refused = b.set.Default, refusals{}
	to, from := reflect.ValueOf(&next).Elem(), reflect.ValueOf(old)
	for _, name := range b.fields.Names {
		value, ok := b.desired[name]
		if !ok {
			continue
		}
		b.fields.Field(to, name).SetZero() // memory of Default is not written to
		text, err := json.Marshal(mergePatch(b.usual[name], value))
		if err == nil {
			err = b.fields.Decode(to, name, text)
		}
		if err != nil {
			b.keep(to, from, name, refusal{StatusBadValue, err}, refused)
		}
	}
	return next, refused
}

// keep gives a field its old value.
func (b *Binding[T]) keep(to, from reflect.Value, name string, why refusal, refused refusals) {
	b.fields.Field(to, name).Set(b.fields.Field(from, name))
	refused[name] = why
	b.failed(why.err)
}

// settle sets fields of next back to their old value until the rest passes Check. Each round sets
// one field back or more, and old has passed.
func (b *Binding[T]) settle(old T, next *T, refused refusals) {
	for range b.fields.Names {
		changed := b.differ(old, *next)
		if len(changed) == 0 {
			return
		}
		err := b.check(*next)
		if err == nil {
			return
		}
		b.refuse(old, next, err, changed, StatusBadValue, refused)
	}
}

// refuse sets the changed fields that err names back, or all of them if it names none.
func (b *Binding[T]) refuse(old T, next *T, err error, changed []string, status int, refused refusals) {
	to, from := reflect.ValueOf(next).Elem(), reflect.ValueOf(old)
	isNamed := map[string]refusal{}
	for _, one := range fields.Named(err) {
		name, _, _ := strings.Cut(one.Field, ".")
		isNamed[name] = refusal{StatusBadValue, one}
	}
	found := false
	for _, name := range changed {
		if why, ok := isNamed[name]; ok {
			b.keep(to, from, name, why, refused)
			found = true
		}
	}
	if found {
		return
	}
	for _, name := range changed {
		b.keep(to, from, name, refusal{status, err}, refused)
	}
}

var errNothing = errors.New("nothing of the change took effect, because another property was refused")

// apply calls Apply. If it fails, next is as old.
func (b *Binding[T]) apply(ctx context.Context, old T, next *T, version int64, refused refusals) {
	changed := b.differ(old, *next)
	if len(changed) == 0 || b.set.Apply == nil {
		return
	}
	c := Change[T]{Old: old, New: *next, Fields: changed, Version: version}
	err := guard("Apply", func() error { return b.set.Apply(ctx, c) })
	if err == nil {
		return
	}
	b.refuse(old, next, err, changed, statusFailed, refused)
	if rest := b.differ(old, *next); len(rest) > 0 { // the error did not name them
		b.refuse(old, next, errNothing, rest, statusFailed, refused)
	}
}

// differ returns the names of the fields that differ.
func (b *Binding[T]) differ(old, next T) (names []string) {
	x, y := reflect.ValueOf(old), reflect.ValueOf(next)
	for _, name := range b.fields.Names {
		if !reflect.DeepEqual(b.fields.Field(x, name).Interface(), b.fields.Field(y, name).Interface()) {
			names = append(names, name)
		}
	}
	return names
}

// answer returns the reported properties for the value in force.
func (b *Binding[T]) answer(value T, touched map[string]bool, refused refusals, version int64) map[string]any {
	var patch Patch
	v := reflect.ValueOf(value)
	for _, name := range b.fields.Names {
		last, answered := b.answers[name]
		is := answer{status: StatusOK, version: last.version}
		why, isRefused := refused[name]
		_, isDesired := b.desired[name]
		switch {
		case isRefused:
			is.status, is.description = why.status, describe(why.err)
		case !isDesired:
			is.status, is.description = StatusInitial, "by default"
		}
		if !answered || touched[name] || is != last {
			is.version = version
		}
		b.answers[name] = is
		text, err := json.Marshal(b.fields.Field(v, name).Interface())
		if err != nil {
			b.failed(invalid(&FieldError{Field: name, Err: err}))
			text = []byte("null")
		}
		patch.Answer(Property{Name: name, Version: is.version},
			Answer{Status: is.status, Value: json.RawMessage(text), Description: is.description})
	}
	text, err := patch.JSON()
	if err != nil {
		b.failed(err)
		return nil
	}
	doc, err := decodeObject(text)
	b.failed(err)
	return doc
}

// maxDescription is the most of an error's text that a description has. The hub counts it as part
// of the twin.
const maxDescription = 256

func describe(err error) string {
	text := scrub.Peer(err.Error())
	if len(text) <= maxDescription {
		return text
	}
	end := maxDescription
	for end > 0 && text[end]&0xc0 == 0x80 { // not in the middle of a character
		end--
	}
	return text[:end] + "..."
}

package twin

import (
	"encoding/json"
	"fmt"
)

// Usual statuses of answers; other HTTP statuses are allowed.
const (
	// StatusOK: the property is as desired.
	StatusOK = 200
	// StatusInProgress: the device is still changing the property.
	StatusInProgress = 202
	// StatusInitial: the device reports its own default, because no value is desired.
	StatusInitial = 203
	// StatusBadValue: the device rejects the value and keeps the previous one.
	StatusBadValue = 400
)

// Answer is a device's answer to a desired value.
type Answer struct {
	// Status is StatusOK, StatusInProgress, StatusBadValue or another HTTP status.
	Status int
	// Value is the current value of the property, for encoding/json. Nil: the desired value.
	Value any
	// Description is a text for people.
	Description string
}

// Patch collects reported properties for one Client.PatchReported. The zero value is an empty
// patch. Of two reports of one property the later counts. It is not safe for concurrent use.
//
// The hub merges a patch into the reported properties (RFC 7396): a property that is an object
// keeps the members that the patch does not mention. Report removed members as null.
type Patch struct {
	root       map[string]json.RawMessage
	components map[string]map[string]json.RawMessage
	err        error // the first
}

// Report sets a read-only property of a component; the root is the empty component. The value is
// encoded at once, by encoding/json; nil removes the property.
func (p *Patch) Report(component, name string, value any) {
	text, err := json.Marshal(value)
	if err != nil {
		p.fail(invalid(fmt.Errorf("the value of %s cannot be written as JSON: %w", path(component, name), err)))
		return
	}
	p.set(component, name, text)
}

// Answer sets a writable property to the device's answer to a desired value:
// {"value":...,"ac":status,"av":version,"ad":"..."}.
func (p *Patch) Answer(to Property, a Answer) {
	if a.Value == nil {
		a.Value = to.Value
	}
	p.answer(to, a)
}

// Initial sets a writable property without a desired value to the device's default.
func (p *Patch) Initial(component, name string, value any, description string) {
	p.answer(Property{Component: component, Name: name}, Answer{StatusInitial, value, description})
}

func (p *Patch) answer(to Property, a Answer) {
	if a.Status < 100 || a.Status > 599 {
		p.fail(invalid(fmt.Errorf("the answer to %s has the status %d; use one of HTTP, 200 for success",
			path(to.Component, to.Name), a.Status)))
		return
	}
	p.Report(to.Component, to.Name, struct {
		Value       any    `json:"value"`
		Status      int    `json:"ac"`
		Version     int64  `json:"av"`
		Description string `json:"ad"` // also if empty, or an earlier description would stay
	}{a.Value, a.Status, to.Version, a.Description})
}

func (p *Patch) set(component, name string, text json.RawMessage) {
	err := checkName("property", name)
	if err == nil && component != "" {
		err = checkName("component", component)
	}
	_, isComponent := p.components[name]
	_, isProperty := p.root[component]
	switch {
	case err != nil:
		p.fail(invalid(err))
	case component == "" && isComponent || isProperty:
		p.fail(invalid(fmt.Errorf("%s: the patch has both a property of the root and a component of one name; "+
			"a model gives it to one of them", path(component, name))))
	case component == "":
		if p.root == nil {
			p.root = map[string]json.RawMessage{}
		}
		p.root[name] = text
	default:
		if p.components == nil {
			p.components = map[string]map[string]json.RawMessage{}
		}
		if p.components[component] == nil {
			p.components[component] = map[string]json.RawMessage{marker: json.RawMessage(componentMark)}
		}
		p.components[component][name] = text
	}
}

func (p *Patch) fail(err error) {
	if p.err == nil {
		p.err = err
	}
}

// Empty reports whether the patch is empty and need not be sent.
func (p *Patch) Empty() bool { return len(p.root) == 0 && len(p.components) == 0 && p.err == nil }

// JSON returns the patch, with names sorted. The error, of Kind Invalid, is the first mistake in
// the patch: an invalid name, a value that cannot be encoded, an invalid status.
func (p *Patch) JSON() ([]byte, error) {
	if p.err != nil {
		return nil, p.err
	}
	all := make(map[string]any, len(p.root)+len(p.components))
	for name, text := range p.root {
		all[name] = text
	}
	for name, component := range p.components {
		all[name] = component
	}
	text, err := json.Marshal(all)
	if err != nil {
		return nil, invalid(fmt.Errorf("the patch cannot be written as JSON: %w", err))
	}
	return text, nil
}

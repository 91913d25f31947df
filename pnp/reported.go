package pnp

import "encoding/json"

// Usual statuses of answers; any other of HTTP may be given.
const (
	// OK: the property is as desired.
	OK = 200
	// InProgress: it will be.
	InProgress = 202
	// Initial: the device tells its own default, for nothing was desired yet, or is any more.
	Initial = 203
	// BadValue: the device does not take the value, and keeps the one that it had.
	BadValue = 400
)

// Answer is what a device says to a desired value.
type Answer struct {
	// Status is OK, InProgress, BadValue or another status of HTTP.
	Status int
	// Value is what the property is now, as encoding/json writes it. Nil: what is desired.
	Value any
	// Description is a text for people.
	Description string
}

// Patch collects reported properties for one Client.PatchReported. The zero value is an empty one.
// Of two reports of one property the later counts. It is not for concurrent use.
//
// A patch is merged into what the hub has (RFC 7396): a property that is an object keeps the
// members that are not mentioned. Report those that are gone as null.
type Patch struct {
	root       map[string]json.RawMessage
	components map[string]map[string]json.RawMessage
	err        error // the first
}

// Report sets a read-only property of a component; the component of the root is empty. The value is
// written at once, by encoding/json; nil removes the property.
func (p *Patch) Report(component, name string, value any) {
	text, err := json.Marshal(value)
	if err != nil {
		p.fail(invalid("the value of %s cannot be written as JSON: %w", path(component, name), err))
		return
	}
	p.set(component, name, text)
}

// Answer sets a writable property to what the device says to a desired value:
// {"value":...,"ac":status,"av":version,"ad":"..."}.
func (p *Patch) Answer(to Property, a Answer) {
	if a.Value == nil {
		a.Value = to.Value
	}
	p.answer(to, a)
}

// Initial sets a writable property for which nothing is desired to the device's default.
func (p *Patch) Initial(component, name string, value any, description string) {
	p.answer(Property{Component: component, Name: name}, Answer{Initial, value, description})
}

func (p *Patch) answer(to Property, a Answer) {
	if a.Status < 100 || a.Status > 599 {
		p.fail(invalid("the answer to %s has the status %d; use one of HTTP, 200 for success", path(to.Component, to.Name),
			a.Status))
		return
	}
	p.Report(to.Component, to.Name, struct {
		Value       any    `json:"value"`
		Status      int    `json:"ac"`
		Version     int64  `json:"av"`
		Description string `json:"ad"` // also if empty: that of an earlier answer would stay
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
		p.fail(invalid("%w", err))
	case component == "" && isComponent || isProperty:
		p.fail(invalid("%s: the patch has both a property of the root and a component of one name; a model gives it to one "+
			"of them", path(component, name)))
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

// Empty reports whether nothing was reported yet; there is no need to send such a patch.
func (p *Patch) Empty() bool { return len(p.root) == 0 && len(p.components) == 0 && p.err == nil }

// JSON returns the patch, its names in order. The error, of Kind Invalid, is the first mistake that
// was made with it: a name that no model has, a value that is not JSON, a status that is none.
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
		return nil, invalid("the patch cannot be written as JSON: %w", err)
	}
	return text, nil
}

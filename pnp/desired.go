package pnp

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"github.com/hubline-iot/hubline/device"
)

// marker is the member of an object that says what it is, componentMark its value for components.
const (
	marker        = "__t"
	componentMark = `"c"`
)

// Property is what a back end wants a writable property to be.
type Property struct {
	// Component is the component that has the property; empty for the root.
	Component string
	// Name is empty when the whole component was removed from the desired properties.
	Name string
	// Value is JSON; null says that the property, or the component, was removed: nothing is desired
	// any more, so the device goes by its own default.
	Value json.RawMessage
	// Version is that of the desired properties, which the answer repeats.
	Version int64
}

// Removed reports whether nothing is desired any more.
func (p Property) Removed() bool { return string(p.Value) == "null" }

// Decode reads the value into the variable that v points to, as encoding/json does. The error is of
// Kind Protocol when the value is of another type or not in its range (answer it with BadValue, and
// say so in the description), and Invalid when nothing is desired any more or v is not a pointer.
func (p Property) Decode(v any) error {
	if p.Removed() {
		return invalid("%s was removed and has no value; ask Removed first", path(p.Component, p.Name))
	}
	err := json.Unmarshal(p.Value, v)
	if err == nil {
		return nil
	}
	if wrong := (*json.InvalidUnmarshalError)(nil); errors.As(err, &wrong) {
		return invalid("give Decode a pointer: %w", err)
	}
	return broken("%s has a value that the device cannot read: %w", path(p.Component, p.Name), err)
}

// Properties returns the writable properties in d, a change of desired properties or all of them:
// those of the root first, then those of the components, in the order of their names. They are
// copies, which outlive d.
//
// An object counts as a component when it has the marker "__t":"c", which the hub puts there for
// back ends that write by the model. Not all do, and what was removed has no marker, so a device
// with components gives their names: then what stands there is a component in any case.
//
// When d.Full is set, what is not among them is not desired; a back end that replaces all
// properties is understood then only (see device.Client.HandleDesired). A twin that was read
// (Client.GetTwin) is device.Desired{Version: t.DesiredVersion, Full: true, JSON: t.Desired}.
//
// The error is of Kind Protocol, when d is not a JSON object or a component that was named is
// something else than an object. The other properties are returned beside it.
func Properties(d device.Desired, components ...string) ([]Property, error) {
	root, err := members(d.JSON)
	if err != nil {
		return nil, broken("the desired properties are not a JSON object: %w", err)
	}
	var own, theirs []Property
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(root)) {
		value := root[name]
		inner, _ := members(value)
		named := slices.Contains(components, name)
		switch {
		case foreign(name):
		case inner != nil && (named || string(inner[marker]) == componentMark):
			for _, n := range slices.Sorted(maps.Keys(inner)) {
				if !foreign(n) {
					theirs = append(theirs, Property{name, n, inner[n], d.Version})
				}
			}
		case named && string(value) == "null":
			theirs = append(theirs, Property{Component: name, Value: value, Version: d.Version})
		case named:
			errs = append(errs, broken("the desired properties have something else than an object for component %s",
				quote(name)))
		default:
			own = append(own, Property{"", name, value, d.Version})
		}
	}
	return append(own, theirs...), errors.Join(errs...)
}

// foreign reports whether a member is none of the model's: one of the hub's, the marker, or one
// without a name.
func foreign(name string) bool { return name == "" || name == marker || name[0] == '$' }

var errNoObject = errors.New("it is null")

// members takes a JSON object apart. Of members with one name the last counts.
func members(text []byte) (map[string]json.RawMessage, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, err
	}
	if all == nil {
		return nil, errNoObject
	}
	return all, nil
}

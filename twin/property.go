package twin

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/hubline-iot/hubline/device"
)

// marker is the member that gives the type of an object, componentMark its value for components.
const (
	marker        = "__t"
	componentMark = `"c"`
)

// Property is the desired value of a writable property.
type Property struct {
	// Component is the component that has the property; empty for the root.
	Component string
	// Name is empty when the whole component was removed from the desired properties.
	Name string
	// Value is JSON. The value null means that the property, or the component, was removed: no value
	// is desired, and the device uses its own default.
	Value json.RawMessage
	// Version is the version of the desired properties, which the answer repeats.
	Version int64
}

// Removed reports whether no value is desired.
func (p Property) Removed() bool { return string(p.Value) == "null" }

// Decode decodes the value into the variable that v points to, like encoding/json. The error is of
// Kind Protocol when the value has another type or is out of its range (answer it with
// StatusBadValue and a description), and Invalid when no value is desired or v is not a pointer.
func (p Property) Decode(v any) error {
	if p.Removed() {
		return invalid(fmt.Errorf("%s was removed and has no value; ask Removed first", path(p.Component, p.Name)))
	}
	err := json.Unmarshal(p.Value, v)
	if err == nil {
		return nil
	}
	if wrong := (*json.InvalidUnmarshalError)(nil); errors.As(err, &wrong) {
		return invalid(fmt.Errorf("give Decode a pointer: %w", err))
	}
	return broken("%s has a value that the device cannot read: %w", path(p.Component, p.Name), err)
}

// Properties returns the writable properties in d, which is a change of desired properties or all
// of them: first those of the root, then those of the components, in the order of their names. The
// values are copies that remain valid after d.
//
// An object counts as a component when it has the marker "__t":"c", which the hub adds for back
// ends that use the model. Some back ends do not, and removed components have no marker. So a
// device with components passes their names: these members are always components.
//
// When d.Full is set, a property that is missing in the result is not desired. Only then is a
// replacement of all properties by a back end visible (see device.Client.HandleDesired). A twin
// read by Client.GetTwin is device.Desired{Version: t.DesiredVersion, Full: true, JSON: t.Desired}.
//
// The error is of Kind Protocol when d is not a JSON object, or a named component is not an object.
// The other properties are returned as well.
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

// foreign reports whether a member does not belong to the model: one of the hub's, the marker, or
// one with an empty name.
func foreign(name string) bool { return name == "" || name == marker || name[0] == '$' }

var errNoObject = errors.New("it is null")

// members splits a JSON object into its members. Of members with the same name the last counts.
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

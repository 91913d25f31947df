package document

import (
	"maps"
	"reflect"
	"slices"
	"strings"
)

// ComponentMarker is the member, with the value "c", that makes an object of a twin a component.
// Source: the page "IoT Plug and Play conventions".
const ComponentMarker = "__t"

// IsComponent reports whether a value of a twin is a component.
func IsComponent(v any) bool {
	t, ok := v.(Tree)
	return ok && t[ComponentMarker] == "c"
}

// DigitalTwin returns a twin in the form of a digital twin.
func DigitalTwin(id string, v View) Tree {
	desired := half{v.Desired.Tree, v.Desired.Stamp.Metadata(true)}
	reported := half{v.Reported.Tree, v.Reported.Stamp.Metadata(false)}
	doc := Tree{}
	meta := members(doc, desired, reported)
	meta["$model"] = v.Model
	doc["$metadata"], doc["$dtId"] = meta, id
	return doc
}

// A half is desired or reported properties, or a component in them, with its metadata.
type half struct{ values, meta Tree }

// at returns the component of a name.
func (h half) at(name string) half {
	values, _ := h.values[name].(Tree)
	meta, _ := h.meta[name].(Tree)
	return half{values, meta}
}

// members adds the properties and components to a document, and returns their metadata.
func members(doc Tree, desired, reported half) (meta Tree) {
	meta = Tree{}
	for _, half := range []half{desired, reported} {
		for name, v := range half.values {
			switch {
			case name == ComponentMarker, meta[name] != nil, doc[name] != nil:
			case IsComponent(v):
				component := Tree{}
				component["$metadata"] = members(component, desired.at(name), reported.at(name))
				doc[name] = component
			default:
				meta[name] = property(doc, name, desired, reported)
			}
		}
	}
	return meta
}

// property adds a property's reported value to a document, and returns its metadata. A writable
// property is reported with an acknowledgement of its desired value.
func property(doc Tree, name string, desired, reported half) Tree {
	meta := Tree{}
	stamp := func(h half, member string) any { return h.at(name).meta[member] }
	if v, ok := desired.values[name]; ok {
		meta["desiredValue"], meta["desiredVersion"] = v, stamp(desired, "$lastUpdatedVersion")
		meta["lastUpdateTime"] = stamp(desired, "$lastUpdated")
	}
	v, ok := reported.values[name]
	if !ok {
		return meta
	}
	meta["lastUpdateTime"] = stamp(reported, "$lastUpdated")
	if ack, ok := v.(Tree); ok && ack["ac"] != nil && ack["av"] != nil {
		for from, to := range map[string]string{"ac": "ackCode", "av": "ackVersion", "ad": "ackDescription"} {
			if ack[from] != nil {
				meta[to] = ack[from]
			}
		}
		v = ack["value"]
	}
	doc[name] = v
	return meta
}

var pointerText = strings.NewReplacer("~", "~0", "/", "~1")

// Steps returns the JSON patch, RFC 6902, that makes a digital twin, or a component of one, of
// another. Properties and their metadata are replaced as a whole.
func Steps(at string, before, after Tree) (all []Tree) {
	names := maps.Clone(before)
	maps.Copy(names, after)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		path := at + "/" + pointerText.Replace(name)
		old, had := before[name]
		now, has := after[name]
		switch {
		case !has:
			all = append(all, Tree{"op": "remove", "path": path})
		case !had:
			all = append(all, Tree{"op": "add", "path": path, "value": now})
		case reflect.DeepEqual(old, now):
		case name == metadataMember || isShownComponent(old) && isShownComponent(now):
			all = append(all, Steps(path, old.(Tree), now.(Tree))...)
		default:
			all = append(all, Tree{"op": "replace", "path": path, "value": now})
		}
	}
	return all
}

// metadataMember is the member of a digital twin, and of its components, that describes the others.
const metadataMember = "$metadata"

// isShownComponent reports whether a value of a digital twin is a component.
func isShownComponent(v any) bool {
	t, ok := v.(Tree)
	return ok && t[metadataMember] != nil
}

// A View is a copy of a twin as back ends see it.
type View struct {
	Desired, Reported, Tags Section
	Version                 int64
	Etag                    string
	Model                   string
}

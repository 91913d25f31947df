package hub

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/keep"
)

// notifyDigitalTwinLocked makes the notice of a change of a device's digital twin: the JSON patch
// that makes the new digital twin of the old one. The twin is locked. Source: the page "Understand
// IoT Plug and Play digital twins".
func (h *Hub) notifyDigitalTwinLocked(t *TwinState, before TwinView) {
	if t.id.Module != "" || !h.notifies(hubdata.DigitalTwinChangeEvents) {
		return
	}
	steps := steps("", DigitalTwin(t.id.Device, before), DigitalTwin(t.id.Device, t.stateLocked()))
	if len(steps) > 0 {
		h.notifyAs(hubdata.DigitalTwinChangeEvents, t.id, "digitalTwinChangeNotification", "",
			"application/json-patch+json", keep.MustJSON(steps))
	}
}

var pointerText = strings.NewReplacer("~", "~0", "/", "~1")

// steps returns the JSON patch, RFC 6902, that makes a digital twin, or a component of one, of
// another. Properties and their metadata are replaced as a whole.
func steps(at string, before, after Tree) (all []Tree) {
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
			all = append(all, steps(path, old.(Tree), now.(Tree))...)
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

package servicefront

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/hubline-iot/hubline/testbroker/internal/backend"
	"github.com/hubline-iot/hubline/testbroker/internal/document"
	"github.com/hubline-iot/hubline/testbroker/internal/web"
)

// maxPatchSteps is the maximum number of operations of a JSON patch.
const maxPatchSteps = 1000

// Error codes of patches of digital twins.
const (
	codePatch     = 400505
	codePatchPath = 400508
)

// A patchStep is an operation of a JSON patch (RFC 6902).
type patchStep struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	Value json.RawMessage `json:"value"`
}

// patchSettings converts a JSON patch of a digital twin to settings of its desired properties.
func patchSettings(all []patchStep, desired document.Tree) ([]backend.Setting, *web.Error) {
	if len(all) == 0 || len(all) > maxPatchSteps {
		return nil, web.Errorf(codePatch, "%d operations, want 1 to %d", len(all), maxPatchSteps)
	}
	var settings []backend.Setting
	for i, step := range all {
		path, bad := step.pointer(i)
		if bad != nil {
			return nil, bad
		}
		switch step.Op {
		case "add", "replace":
			value, ok := decoded(step.Value)
			if !ok || value == nil {
				return nil, web.Errorf(codePatch, "operation %d: no value; give one, or use remove", i)
			}
			settings = append(settings, added(path, value, desired)...)
		case "remove":
			if !has(desired, path) {
				return nil, web.Errorf(codePatchPath, "operation %d: nothing is desired at %.100q", i, step.Path)
			}
			settings = append(settings, backend.Setting{Path: path})
		default:
			return nil, web.Errorf(codePatch, "operation %d: op %.40q, want add, replace or remove", i, step.Op)
		}
	}
	return settings, nil
}

// decoded decodes a JSON value; false if there is none.
func decoded(raw []byte) (v any, ok bool) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	ok = d.Decode(&v) == nil
	return v, ok
}

// unescape decodes a segment of a JSON pointer (RFC 6901).
var unescape = strings.NewReplacer("~1", "/", "~0", "~")

// pointer returns the path of a property or component, or of a property of a component.
func (s *patchStep) pointer(i int) ([]string, *web.Error) {
	const most = 2
	rest, ok := strings.CutPrefix(s.Path, "/")
	path := strings.Split(rest, "/")
	if !ok || len(path) > most {
		return nil, web.Errorf(codePatchPath, "operation %d: path %.100q, want /property or /component/property", i, s.Path)
	}
	for n, segment := range path {
		if segment == "" || segment[0] == '$' || segment == document.ComponentMarker {
			return nil, web.Errorf(codePatchPath, "operation %d: path %.100q names no property", i, s.Path)
		}
		path[n] = unescape.Replace(segment)
	}
	return path, nil
}

// added returns the settings that write a value. An object with the member $metadata is a
// component.
func added(path []string, value any, desired document.Tree) []backend.Setting {
	marker := backend.Setting{Path: []string{path[0], document.ComponentMarker}, Value: "c"}
	if len(path) > 1 {
		return []backend.Setting{marker, {Path: path, Value: value}}
	}
	object, ok := value.(document.Tree)
	_, meta := object["$metadata"]
	if !ok || !meta && !document.IsComponent(desired[path[0]]) {
		return []backend.Setting{{Path: path, Value: value}}
	}
	delete(object, "$metadata")
	return []backend.Setting{{Path: path, Value: object}, marker}
}

// has reports whether a tree has a value at a path.
func has(t document.Tree, path []string) bool {
	for i, name := range path {
		v, ok := t[name]
		if !ok {
			return false
		}
		if i < len(path)-1 {
			if t, ok = v.(document.Tree); !ok {
				return false
			}
		}
	}
	return true
}

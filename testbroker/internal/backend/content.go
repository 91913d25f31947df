package backend

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hubline-iot/hubline/testbroker/internal/document"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
)

// A ConfigurationContent is what a configuration writes. At most one of the fields is set.
type ConfigurationContent struct {
	Device  []Setting            // of the targeted devices
	Module  []Setting            // of the targeted modules
	Modules map[string][]Setting // of the modules of the targeted devices with an edge gateway
}

// A Setting replaces the value at a path below the desired properties; the empty path is all of
// them.
type Setting struct {
	Path  []string
	Value any // nil removes it
}

// settingRoot is the beginning of the name of a setting.
const settingRoot = "properties.desired"

// The members of a content.
const (
	deviceContent  = "deviceContent"
	moduleContent  = "moduleContent"
	modulesContent = "modulesContent"
)

// ParseContent parses a content as back ends send it.
func ParseContent(raw document.Tree) (c ConfigurationContent, err error) {
	var used []string
	for _, name := range []string{deviceContent, moduleContent, modulesContent} {
		if raw[name] == nil {
			continue
		}
		part, ok := raw[name].(document.Tree)
		if !ok {
			return c, fmt.Errorf("%s must be an object", name)
		}
		used = append(used, name)
		switch name {
		case deviceContent:
			c.Device, err = parseSettings(name, part)
		case moduleContent:
			c.Module, err = parseSettings(name, part)
		default:
			c.Modules, err = parseModules(part)
		}
		if err != nil {
			return c, err
		}
	}
	if len(used) > 1 {
		return c, fmt.Errorf("%s exclude each other; set one", strings.Join(used, " and "))
	}
	return c, nil
}

func parseModules(raw document.Tree) (map[string][]Setting, error) {
	all := make(map[string][]Setting)
	for _, name := range slices.Sorted(maps.Keys(raw)) {
		if err := identity.CheckID("module", name); err != nil {
			return nil, fmt.Errorf("%s: %w", modulesContent, err)
		}
		at := modulesContent + "." + name
		part, ok := raw[name].(document.Tree)
		if !ok {
			return nil, fmt.Errorf("%s must be an object", at)
		}
		var err error
		if all[name], err = parseSettings(at, part); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// parseSettings parses settings. They come in the order of their names, so shorter paths first.
func parseSettings(at string, raw document.Tree) ([]Setting, error) {
	all := []Setting{}
	for _, name := range slices.Sorted(maps.Keys(raw)) {
		rest, ok := strings.CutPrefix(name, settingRoot)
		if !ok || rest != "" && rest[0] != '.' {
			return nil, fmt.Errorf("%s: %.100q is no setting; begin its name with %s", at, name, settingRoot)
		}
		s := Setting{Value: withoutNulls(raw[name])}
		if rest != "" {
			s.Path = strings.Split(rest[1:], ".")
		} else if _, ok := s.Value.(document.Tree); !ok {
			return nil, fmt.Errorf("%s: %s must be an object", at, settingRoot)
		}
		if slices.Contains(s.Path, "") {
			return nil, fmt.Errorf("%s: %.100q has an empty segment", at, name)
		}
		if err := document.Check(s.tree()); err != nil {
			return nil, fmt.Errorf("%s: %w", at, err)
		}
		all = append(all, s)
	}
	return all, nil
}

// withoutNulls returns a value without members that are null, because a twin has none.
func withoutNulls(v any) any {
	t, ok := v.(document.Tree)
	if !ok {
		return v
	}
	out := make(document.Tree, len(t))
	for key, member := range t {
		if member != nil {
			out[key] = withoutNulls(member)
		}
	}
	return out
}

func (s Setting) tree() document.Tree {
	t := document.Tree{}
	s.write(t)
	if len(s.Path) == 0 {
		t, _ = s.Value.(document.Tree)
	}
	return t
}

// write writes the setting into a tree. The path is not empty.
func (s Setting) write(t document.Tree) {
	for i, name := range s.Path {
		if i == len(s.Path)-1 {
			if s.Value == nil {
				delete(t, name)
			} else {
				t[name] = s.Value
			}
			return
		}
		next, ok := t[name].(document.Tree)
		if !ok {
			next = document.Tree{}
			t[name] = next
		}
		t = next
	}
}

// written returns a tree with settings written into it, one after the other.
func written(t document.Tree, all []Setting) document.Tree {
	t = document.Clone(t)
	for _, s := range all {
		if len(s.Path) == 0 {
			t, _ = s.Value.(document.Tree)
			t = document.Clone(t)
			continue
		}
		if v, ok := withoutNulls(s.Value).(document.Tree); ok { // a copy: later settings may write below it
			s.Value = v
		}
		s.write(t)
	}
	return t
}

// overrides reports whether a later setting replaces all of an earlier one.
func (s Setting) overrides(earlier Setting) bool {
	return len(s.Path) <= len(earlier.Path) && slices.Equal(s.Path, earlier.Path[:len(s.Path)])
}

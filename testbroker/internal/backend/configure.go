package backend

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/document"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
)

// Changed makes a timer that applies the configurations, unless there is one, or nothing to do.
func (h *State) Changed() {
	s := &h.configurations
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending || len(s.all) == 0 && len(s.states) == 0 {
		return
	}
	s.pending = true
	time.AfterFunc(configurationDelay, h.configureAll)
}

// A layer is what a configuration writes into one twin.
type layer struct {
	of       *Configuration
	settings []Setting
}

// configureAll applies the configurations to all twins. It runs in the goroutine of a timer.
func (h *State) configureAll() {
	if !h.hub.Enter() {
		return
	}
	defer h.hub.Wg.Done()
	s := &h.configurations
	s.round.Lock()
	defer s.round.Unlock()
	s.mu.Lock()
	s.pending = false // a change from here on makes another round
	all := slices.Collect(maps.Values(s.all))
	s.mu.Unlock()
	slices.SortFunc(all, func(a, b *Configuration) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
	states := make(map[identity.Identity]map[string]string)
	for id, layers := range h.layers(all, states) {
		h.configure(id, layers, states)
	}
	s.mu.Lock()
	s.states = states
	s.mu.Unlock()
	h.hub.Changed.Wake()
}

// layers returns the layers of each twin, the lowest priority first. A targeted twin without
// layers, such as a gateway whose modules are configured, enters states.
func (s *State) layers(all []*Configuration,
	states map[identity.Identity]map[string]string) map[identity.Identity][]layer {
	out := make(map[identity.Identity][]layer)
	if len(all) == 0 {
		return out
	}
	for _, id := range s.hub.Identities() {
		doc := s.documents(s.hub, id)
		if doc == nil { // removed meanwhile
			continue
		}
		r, _, _ := s.hub.Registration(id)
		for _, c := range all {
			if c.Modules != (id.Module != "") || c.Content.Modules != nil && !r.IoTEdge || !c.Accepts(doc) {
				continue
			}
			note(states, id, c.ID, ConfigurationTargeted)
			out[id] = append(out[id], layer{c, slices.Concat(c.Content.Device, c.Content.Module)})
			for name, settings := range c.Content.Modules {
				m := identity.Identity{Device: id.Device, Module: name}
				if !s.hub.Registered(m) {
					_ = s.hub.Register(m, hub.Registration{}, MaxModules) // on failure the module is left out
				}
				out[m] = append(out[m], layer{c, settings})
			}
		}
	}
	for _, layers := range out {
		slices.SortStableFunc(layers, func(a, b layer) int {
			return cmp.Compare(slices.Index(all, a.of), slices.Index(all, b.of))
		})
	}
	return out
}

// note records the state of a configuration on a twin. An applied one stays applied.
func note(states map[identity.Identity]map[string]string, id identity.Identity, configuration, state string) {
	if states[id] == nil {
		states[id] = make(map[string]string)
	}
	if states[id][configuration] != ConfigurationApplied {
		states[id][configuration] = state
	}
}

// configure writes layers into a twin, and records their states.
func (s *State) configure(id identity.Identity, layers []layer, states map[identity.Identity]map[string]string) {
	var settings []Setting
	for _, l := range layers {
		settings = append(settings, l.settings...)
	}
	if err := s.WriteSettings(id, settings, ""); err != nil {
		return // the twin would be too large, or has been removed: the configurations stay as targeted
	}
	for i, l := range layers {
		var later []Setting
		for _, over := range layers[i+1:] {
			later = append(later, over.settings...)
		}
		state := ConfigurationApplied
		if len(l.settings) > 0 && overridden(l.settings, later) || l.of.Content.Modules != nil && id.Module == "" {
			state = ConfigurationTargeted
		}
		note(states, id, l.of.ID, state)
		if l.of.Content.Modules != nil {
			note(states, identity.Identity{Device: id.Device}, l.of.ID, state)
		}
	}
}

// overridden reports whether later settings replace all of the earlier ones.
func overridden(earlier, later []Setting) bool {
	return !slices.ContainsFunc(earlier, func(s Setting) bool {
		return !slices.ContainsFunc(later, func(over Setting) bool { return over.overrides(s) })
	})
}

// settingTries is how often settings are written into a twin that changes meanwhile.
const settingTries = 10

// WriteSettings writes settings into the desired properties of a twin with an ETag; "*" and the
// empty one are any. An unchanged twin gets no new version.
func (s *State) WriteSettings(id identity.Identity, all []Setting, etag string) error {
	var err error
	for range settingTries {
		var t *hub.TwinState
		if t, err = s.hub.TwinState(id); err != nil || len(all) == 0 {
			return err
		}
		v := t.View()
		if etag != "" && etag != "*" && etag != v.Etag {
			return s.hub.ServiceError(hub.CodePreconditionFailed, "the etag of the twin of %s is another", id)
		}
		patch := document.Difference(v.Desired.Tree, written(v.Desired.Tree, all))
		if len(patch) == 0 {
			return nil
		}
		_, err = s.hub.Update(id, hub.TwinUpdate{Desired: patch, Etag: v.Etag})
		if e := (*hubdata.ServiceError)(nil); !errors.As(err, &e) || e.Code != hub.CodePreconditionFailed {
			return err
		}
	}
	return err
}

// MaxModules is the maximum number of modules of a device.
const MaxModules = 50

// ApplyContent writes a content into a device, or into the modules of a device with an edge
// gateway, at once. Modules that the device lacks are registered.
func (s *State) ApplyContent(device string, c ConfigurationContent) error {
	id := identity.Identity{Device: device}
	if _, err := s.hub.TwinState(id); err != nil {
		return err
	}
	r, _, _ := s.hub.Registration(id)
	switch {
	case c.Module != nil:
		return s.hub.ServiceError(CodeConfigurationContent, "%s is for modules, %s is a device", moduleContent, device)
	case c.Modules != nil && !r.IoTEdge:
		return s.hub.ServiceError(CodeConfigurationContent, "%s is for devices with the capability iotEdge, which %s has not",
			modulesContent, device)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Modules)) {
		m := identity.Identity{Device: device, Module: name}
		if err := s.hub.Register(m, hub.Registration{}, MaxModules); err != nil && !errors.Is(err, hub.ErrIdentityExists) {
			return err
		}
		if err := s.WriteSettings(m, c.Modules[name], ""); err != nil {
			return err
		}
	}
	return s.WriteSettings(id, c.Device, "")
}

package backend

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/testbroker/internal/document"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
)

// The limits and delays of configurations. The number is that of the service's larger tiers. The
// service applies configurations within minutes.
const (
	maxConfigurations  = 100
	configurationDelay = time.Second
)

// The states of a configuration on a twin.
const (
	ConfigurationTargeted = "Targeted" // others with a higher priority override all of its settings
	ConfigurationApplied  = "Applied"
)

// Error codes of configurations. See errorNames.
const (
	CodeConfigurationCondition = 400401
	CodeConfigurationContent   = 400402
	codeConfigurationImmutable = 400403
	CodeConfigurationMetrics   = 400404
	codeConfigurationNotFound  = 404301
	codeConfigurationExists    = 409401
	codeTooManyConfigurations  = 413101
)

// A Configuration writes desired properties of the twins that fulfil its condition. It is immutable
// once the hub has it.
type Configuration struct {
	ID              string
	SchemaVersion   string
	Labels          map[string]string
	Raw             document.Tree // the content as sent
	Content         ConfigurationContent
	TargetCondition string
	Priority        int
	Metrics         map[string]string // queries by name
	Created         time.Time
	Updated         time.Time
	Changes         uint64

	// Accepts reports whether a twin, as back ends see it, fulfils the condition. Modules: it is asked
	// about modules, not about devices.
	Accepts func(document.Tree) bool
	Modules bool
}

// configurations holds the configurations of the hub.
type configurations struct {
	round sync.Mutex // held while configurations are applied, so that rounds come one after another

	mu      sync.Mutex // guards the fields below; taken last, and held only shortly
	all     map[string]*Configuration
	changes uint64
	states  map[identity.Identity]map[string]string // by identity and configuration
	pending bool                                    // a timer will apply the configurations
}

func (s *configurations) init() {
	s.all, s.states = make(map[string]*Configuration), nil
}

// TableConfigurations has the configurations by id.
const TableConfigurations = "configurations"

// RestoreConfiguration adds a configuration of an earlier run.
func (h *State) RestoreConfiguration(c Configuration) {
	s := &h.configurations
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[c.ID], s.changes = &c, max(s.changes, c.Changes)
}

// PutConfiguration adds a configuration, or if an ETag is given changes the one with that ETag; "*"
// is any.
func (h *State) PutConfiguration(c Configuration, etag string) (*Configuration, error) {
	s := &h.configurations
	defer h.Changed()
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.all[c.ID]
	switch {
	case old == nil && etag != "" && etag != "*":
		return nil, h.hub.ServiceError(codeConfigurationNotFound, "configuration %s does not exist", c.ID)
	case old == nil && len(s.all) >= maxConfigurations:
		return nil, h.hub.ServiceError(codeTooManyConfigurations, "the hub has %d configurations already; remove one",
			len(s.all))
	case old != nil && etag == "":
		return nil, h.hub.ServiceError(codeConfigurationExists, "configuration %s exists; name its etag", c.ID)
	case old != nil && etag != "*" && etag != old.ETag():
		return nil, h.hub.ServiceError(hub.CodePreconditionFailed, "the etag of configuration %s is another", c.ID)
	case old != nil && len(c.Raw) > 0 && !reflect.DeepEqual(c.Content, old.Content):
		return nil, h.hub.ServiceError(codeConfigurationImmutable,
			"the content of configuration %s cannot change; add another configuration", c.ID)
	}
	c.Updated = h.hub.Now()
	c.Created = c.Updated
	if old != nil {
		c.Created, c.Raw, c.Content = old.Created, old.Raw, old.Content
	}
	s.changes++
	c.Changes = s.changes
	s.all[c.ID] = &c
	h.hub.Records.Touch(TableConfigurations, c.ID)
	return &c, nil
}

// ETag returns the ETag. Every change of the configuration changes it.
func (c *Configuration) ETag() string { return hub.EtagOf(c.Changes) }

// Configuration returns a configuration.
func (h *State) Configuration(id string) (*Configuration, error) {
	s := &h.configurations
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.all[id]; c != nil {
		return c, nil
	}
	return nil, h.hub.ServiceError(codeConfigurationNotFound, "configuration %s does not exist", id)
}

// Configurations returns the configurations by id.
func (h *State) Configurations() []*Configuration {
	s := &h.configurations
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.all), func(a, b *Configuration) int { return cmp.Compare(a.ID, b.ID) })
}

// RemoveConfiguration removes a configuration with an ETag; "*" is any. Twins keep what it wrote.
func (h *State) RemoveConfiguration(id, etag string) error {
	c, err := h.Configuration(id)
	if err != nil {
		return err
	}
	s := &h.configurations
	defer h.Changed()
	s.mu.Lock()
	defer s.mu.Unlock()
	if etag != "*" && etag != c.ETag() || s.all[id] != c {
		return h.hub.ServiceError(hub.CodePreconditionFailed, "the etag of configuration %s is another", id)
	}
	delete(s.all, id)
	h.hub.Records.Touch(TableConfigurations, id)
	return nil
}

// ConfigurationStates returns the states of the configurations on a twin, by configuration. The
// caller does not change the map.
func (h *State) ConfigurationStates(id identity.Identity) map[string]string {
	s := &h.configurations
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.states[id]
}

func (s *configurations) clear() {
	s.round.Lock()
	defer s.round.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.init()
}

// Package updates is an update service without a protocol: updates with their files, deployments to
// devices, what the devices report, and the keys that sign. A provisioning service and a hub are
// its carriers.
package updates

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/keep"
	"github.com/hubline-iot/hubline/testbroker/updatedata"
)

var (
	// ErrNotFound is returned for an unknown update, deployment, device or key.
	ErrNotFound = errors.New("testbroker: not found")
	// ErrExists is returned when an update or a deployment is added a second time.
	ErrExists = errors.New("testbroker: it exists already")
	// ErrInUse is returned when an update is removed to which another one refers.
	ErrInUse = errors.New("testbroker: in use")
)

// Options are the settings of testbroker.UpdatesOptions, which documents them.
type Options struct {
	Now            func() time.Time
	Seed           uint64
	FileURL        string
	BytesPerSecond int
	Store          hubdata.Store
}

// Service is an update service.
type Service struct {
	o       Options
	seed    uint64 // of the keys
	Changed keep.Notifier

	Records keep.Saver

	signed signatures

	mu          sync.Mutex // guards the fields below, never held while blocking
	fileURL     string
	ring        ring
	releases    map[updatedata.UpdateID]*release
	files       map[string]*file // by id
	deployments []*deployment    // the oldest first
	deployed    uint64           // deployments so far
	orders      int              // changes of deployments
	devices     map[string]*device
	configETags map[string]bool // that devices were told
	watchers    []func()

	restored struct { // by the store, until link
		releases    []releaseRecord
		deployments []deploymentRecord
	}
}

// New makes a service without updates.
func New(o Options) (*Service, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Service{o: o, seed: o.Seed, fileURL: strings.TrimSuffix(o.FileURL, "/"), ring: newRing(o.Now().Unix()),
		releases: make(map[updatedata.UpdateID]*release), files: make(map[string]*file), devices: make(map[string]*device),
		configETags: make(map[string]bool)}
	if s.seed == 0 {
		s.seed = processSeed()
	}
	s.Records.Init(o.Store, func(error) { s.Records.Release() })
	return s, s.load()
}

// Watch adds a function that is called after each change, with no lock held. It must not block.
func (s *Service) Watch(changed func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchers = append(s.watchers, changed)
}

// changed reports a change when it is saved. The lock is not held.
func (s *Service) changed() {
	s.Records.Saved()
	s.mu.Lock()
	all := slices.Clip(s.watchers)
	s.mu.Unlock()
	for _, f := range all {
		f()
	}
	s.Changed.Wake()
}

// Wait waits until ok returns true. It calls ok at once and after each change.
func (s *Service) Wait(ctx context.Context, ok func() bool) error {
	return s.Changed.Until(ctx, nil, ok)
}

// SetFileURL sets the beginning of the URLs of files.
func (s *Service) SetFileURL(base string) {
	s.mu.Lock()
	s.fileURL = strings.TrimSuffix(base, "/")
	s.mu.Unlock()
	s.changed()
}

// LinkedTo sets the name of a host that serves the files, unless URLs have a beginning already.
func (s *Service) LinkedTo(host string) {
	s.mu.Lock()
	s.fileURL = cmp.Or(s.fileURL, "https://"+host)
	s.mu.Unlock()
	s.changed()
}

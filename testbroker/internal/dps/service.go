// Package dps is a device provisioning service without a protocol: enrollments, registrations,
// operations and the assignment of devices to hubs.
//
// Connections, TLS, ports and faults are those of a [hub.Hub] that has no devices. Each protocol
// has a front in package dpsfront.
package dps

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/updates"
)

// Options are the settings of testbroker.DPSOptions, which documents them.
type Options struct {
	IDScope                string
	TokenGrace             time.Duration
	Polls                  int
	Assigning              time.Duration
	RetryAfter             time.Duration
	RegistrationsPerMinute int
	Keep                   int
}

// DefaultIDScope is the scope if Options.IDScope is empty.
const DefaultIDScope = "0ne00ABCDEF"

var (
	// ErrNotEnrolled is returned for an unknown enrollment or registration.
	ErrNotEnrolled = errors.New("testbroker: no such enrollment or registration")
	// ErrEnrolled is returned when an id is enrolled a second time.
	ErrEnrolled = errors.New("testbroker: already enrolled")
)

// Service is a provisioning service.
type Service struct {
	Net   *hub.Hub // connections, clock and faults
	Scope string
	o     Options

	mu          sync.Mutex // guards the fields below, never held while blocking or calling a hub
	enrollments map[string]*enrollment
	groups      []*enrollment // in the order in which they were added
	records     map[string]*record
	hubs        []*hub.Hub       // linked
	updates     *updates.Service // linked; nil = none
	requests    []dpsdata.Request
	forgotten   int
	operations  uint64
	changes     int // of enrollments and registrations: each has an ETag of its own
	tracked     uint64
	minute      time.Time // when the present minute of RegistrationsPerMinute began
	inMinute    int       // registrations since then
}

// New makes a service without enrollments. The network has no devices, and no fronts yet.
func New(network *hub.Hub, o Options) (*Service, error) {
	o.IDScope = cmp.Or(o.IDScope, DefaultIDScope)
	if err := checkScope(o.IDScope); err != nil {
		return nil, fmt.Errorf("testbroker: DPSOptions.IDScope: %w; give letters, digits and dashes", err)
	}
	o.TokenGrace = max(cmp.Or(o.TokenGrace, 5*time.Minute), 0)
	o.Polls = max(cmp.Or(o.Polls, 1), 0)
	o.RetryAfter = max(cmp.Or(o.RetryAfter, 3*time.Second), 0)
	s := &Service{
		Net: network, Scope: o.IDScope, o: o, enrollments: make(map[string]*enrollment), records: make(map[string]*record),
	}
	s.addTables()
	return s, nil
}

func checkScope(scope string) error {
	if len(scope) > 64 {
		return fmt.Errorf("%d characters, at most 64 are allowed", len(scope))
	}
	for _, r := range scope {
		if !isLetterOrDigit(r) && r != '-' {
			return fmt.Errorf("%q: character %q is not allowed", scope, r)
		}
	}
	return nil
}

func isLetterOrDigit(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
}

const maxID = 128 // characters of a registration id

// CheckID checks a registration id or the name of a group.
func CheckID(id string) error {
	if id == "" || len(id) > maxID {
		return fmt.Errorf("registration id of %d characters, want 1 to %d", len(id), maxID)
	}
	for _, r := range id {
		if !isLetterOrDigit(r) && !strings.ContainsRune("-._:", r) {
			return fmt.Errorf("registration id %q: character %q is not allowed", id, r)
		}
	}
	if last := rune(id[len(id)-1]); !isLetterOrDigit(last) && last != '-' {
		return fmt.Errorf("registration id %q: the last character must be a letter, a digit or a dash", id)
	}
	return nil
}

// fold returns the form of an id in which ids are compared.
func fold(id string) string { return strings.ToLower(id) }

// Link adds hubs to which devices can be assigned: all of them, or none if there is an error.
func (s *Service) Link(hubs ...*hub.Hub) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.Clone(s.hubs)
	for i, h := range hubs {
		if h == nil {
			return fmt.Errorf("testbroker: link: hub %d of %d is nil; give a hub that New returned", i+1, len(hubs))
		}
		if find(all, h.Host) != nil {
			return fmt.Errorf("testbroker: link: a hub named %s is linked already; make this one with another Options.HostName",
				h.Host)
		}
		all = append(all, h)
	}
	s.hubs = all
	return nil
}

// Unlink removes a hub. Devices assigned to it stay registered there.
func (s *Service) Unlink(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	gone := s.linkedLocked(name)
	if gone == nil {
		return fmt.Errorf("testbroker: unlink: no hub named %q is linked; there are: %s", name, names(s.hubs))
	}
	s.hubs = slices.DeleteFunc(slices.Clone(s.hubs), func(h *hub.Hub) bool { return h == gone })
	return nil
}

// names returns the names of hubs, for errors.
func names(hubs []*hub.Hub) string {
	var all []string
	for _, h := range hubs {
		all = append(all, h.Host)
	}
	return cmp.Or(strings.Join(all, ", "), "none")
}

func find(hubs []*hub.Hub, name string) *hub.Hub {
	i := slices.IndexFunc(hubs, func(h *hub.Hub) bool { return h.IsName(name) })
	if i < 0 {
		return nil
	}
	return hubs[i]
}

func (s *Service) linkedLocked(name string) *hub.Hub { return find(s.hubs, name) }

// Requests returns a copy of the log.
func (s *Service) Requests() []dpsdata.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Len returns how many requests the log has had, forgotten ones included.
func (s *Service) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.forgotten + len(s.requests)
}

// note adds a request to the log.
func (s *Service) note(r dpsdata.Request) {
	s.mu.Lock()
	s.requests = append(s.requests, r)
	if s.o.Keep > 0 && len(s.requests) > s.o.Keep {
		s.requests = s.requests[1:]
		s.forgotten++
	}
	s.mu.Unlock()
	s.Net.Changed.Wake()
}

// Wait waits until ok returns true. It calls ok at once and after each change.
func (s *Service) Wait(ctx context.Context, ok func() bool) error {
	return s.Net.Wait(ctx, func([]hubdata.Message) bool { return ok() })
}

// overLimit returns how long a registration must wait because of RegistrationsPerMinute; zero if it
// is within the limit, against which it then counts.
func (s *Service) overLimit() time.Duration {
	if s.o.RegistrationsPerMinute <= 0 {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if since := now.Sub(s.minute); since < 0 || since >= time.Minute {
		s.minute, s.inMinute = now, 0
	}
	if s.inMinute >= s.o.RegistrationsPerMinute {
		return s.minute.Add(time.Minute).Sub(now)
	}
	s.inMinute++
	return 0
}

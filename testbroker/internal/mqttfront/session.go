package mqttfront

import (
	"slices"
	"time"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
	"github.com/hubline-iot/hubline/testbroker/internal/mqtt"
)

// forever is the session expiry interval of a session that does not expire.
const forever = 1<<32 - 1

// A session is the state of a client that can outlive its connections. Guarded by Front.mu.
type session struct {
	client   string // client id
	filters  map[string]subscription
	sent     map[uint16]int // sequence numbers of unacknowledged messages by packet id
	released []uint16       // packet ids of QoS 2 messages that wait for their PUBCOMP, in order
	expiry   uint32         // seconds from the end of the connection to the end of the session
	until    time.Time      // when it ends; zero while connected, and for ever
	delayed  *delayedWill
	seen     hubdata.Session // what tests see, without subscriptions
	queue    nextQueue       // of a hub with the MQTT v5 profile
}

// A delayedWill waits for its time, or until dropped is closed.
type delayedWill struct {
	message hubdata.Message
	dropped chan struct{}
}

type subscription struct {
	mqtt.Filter
	identifier uint32
}

func newSession(client string) *session {
	return &session{client: client, filters: make(map[string]subscription), sent: make(map[uint16]int)}
}

// lapsed reports whether the session has ended while its client was away.
func (s *session) lapsed() bool { return !s.until.IsZero() && !s.until.After(time.Now()) }

// takeWillLocked removes the delayed will of the session and returns it; nil if there is none.
func (s *session) takeWillLocked() *delayedWill {
	w := s.delayed
	if w != nil {
		close(w.dropped)
		s.delayed = nil
	}
	return w
}

// resume gives a connection its session: the kept one, or a new one. The previous connection has
// ended. It reports whether the session was kept.
func (f *Front) resume(c *client, client string, k *mqtt.ConnectPacket) (present bool) {
	f.mu.Lock()
	kept := f.sessions[c.ID]
	f.mu.Unlock()
	there := kept != nil && !kept.lapsed() && kept.client == client && !k.Clean
	if there {
		there = c.Fault(fault.ForgetSession) == nil
	}
	if kept != nil && !there {
		f.publishWill(kept) // the will of a session that ends does not wait
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !there {
		kept = newSession(client)
		f.sessions[c.ID] = kept
	}
	kept.until = time.Time{}
	kept.takeWillLocked()
	c.session = kept
	return there
}

// expiryOf returns the session expiry interval in force, in seconds.
func (f *Front) expiryOf(k *mqtt.ConnectPacket) uint32 {
	if k.Level == mqtt.V311 {
		if k.Clean {
			return 0
		}
		return forever
	}
	asked := k.Properties.Number(mqtt.SessionExpiry, f.expiry)
	if longest := f.options.SessionExpiry; longest > 0 {
		return min(asked, uint32(hub.Seconds(longest)))
	}
	return asked
}

// prolong changes the session expiry interval; false when the session ends with the connection and
// would not.
func (c *client) prolong(seconds uint32) bool {
	c.front.mu.Lock()
	defer c.front.mu.Unlock()
	if c.session.expiry == 0 && seconds != 0 {
		return false
	}
	c.session.expiry = seconds
	return true
}

// Leave ends the connection's part in its session, which ends or begins to expire.
func (c *client) Leave() {
	f := c.front
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.current[c.ID] == c {
		delete(f.current, c.ID)
	}
	s := c.session
	if s == nil || f.sessions[c.ID] != s {
		return
	}
	if c.will != nil && !c.parted && c.delay > 0 && s.expiry > 0 {
		s.delayed, c.late = &delayedWill{*c.will, make(chan struct{})}, true
	}
	switch s.expiry {
	case 0:
		delete(f.sessions, c.ID)
	case forever:
	default:
		s.until = time.Now().Add(time.Duration(s.expiry) * time.Second)
	}
}

// delayWill publishes the will of a session later, but not after the end of the session, unless
// the client comes back before.
func (f *Front) delayWill(s *session, delay time.Duration) {
	f.mu.Lock()
	w := s.delayed
	if s.expiry != forever {
		delay = min(delay, time.Duration(s.expiry)*time.Second)
	}
	f.mu.Unlock()
	if w == nil {
		return
	}
	f.hub.Later(delay, w.dropped, func() {
		f.mu.Lock()
		mine := s.delayed == w
		if mine {
			s.takeWillLocked()
		}
		f.mu.Unlock()
		if mine {
			f.storeWill(w.message)
		}
	})
}

// publishWill publishes the delayed will of a session at once, if there is one.
func (f *Front) publishWill(s *session) {
	f.mu.Lock()
	w := s.takeWillLocked()
	f.mu.Unlock()
	if w != nil {
		f.storeWill(w.message)
	}
}

func (f *Front) storeWill(m hubdata.Message) {
	m.Received = f.hub.Now()
	f.hub.Store(m)
	f.hub.Changed.Wake()
}

// Forget drops the session of the identity with a name, or all if it is empty.
func (f *Front) Forget(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if id := identity.SplitIdentity(name); name != "" {
		if s := f.sessions[id]; s != nil {
			s.takeWillLocked()
			delete(f.sessions, id)
		}
		return
	}
	for _, s := range f.sessions {
		s.takeWillLocked()
	}
	clear(f.sessions)
}

// Session returns the session of an identity; false when it has none.
func (f *Front) Session(id identity.Identity) (hubdata.Session, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.sessions[id]
	if s == nil || s.lapsed() {
		return hubdata.Session{}, false
	}
	seen := s.seen
	seen.Properties = slices.Clone(seen.Properties)
	seen.Connected = f.current[id] != nil
	seen.Expiry = time.Duration(s.expiry) * time.Second
	if s.expiry == forever {
		seen.Expiry = -1
	}
	for _, sub := range s.filters {
		seen.Filters = append(seen.Filters, hubdata.Filter{
			Filter: sub.Name, QoS: sub.QoS, NoLocal: sub.NoLocal, RetainAsPublished: sub.RetainAsPublished,
			RetainHandling: sub.RetainHandling, Identifier: sub.identifier,
		})
	}
	slices.SortFunc(seen.Filters, func(a, b hubdata.Filter) int {
		if a.Filter < b.Filter {
			return -1
		}
		return 1
	})
	return seen, true
}

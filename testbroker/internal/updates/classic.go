package updates

import (
	"sync"
	"time"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/keep"
	"github.com/hubline-iot/hubline/testbroker/updatedata"
)

// A TwinHub is what the service needs of a hub.
type TwinHub interface {
	// Twin returns the twin of an identity, named "deviceID" or "deviceID/moduleID".
	Twin(id string) (hubdata.Twin, error)
	// ChangeDesired merges a patch into the desired properties of an identity.
	ChangeDesired(id, patch string, replace bool) (version int64, err error)
	// Taker returns the faults that hit an identity.
	Taker(id string) Taker
	// Enter keeps the hub from ending until Leave; false when it has ended.
	Enter() bool
	Leave()
}

// A Classic is the service at a hub, over the twins: it reads what agents report, and writes
// deployments. It works through changes one by one, in the goroutine of a timer.
type Classic struct {
	s   *Service
	hub TwinHub

	mu      sync.Mutex      // guards the fields below, never held while a twin is read or written
	changes []hubdata.Twin  // twins after changes, in order
	due     map[string]bool // agents that may need an order
	agents  map[string]bool // twins that have an agent
	orders  int             // Service.orders when all agents were due last
	busy    bool            // a timer is at work
}

// NewClassic makes the service serve a hub. The hub calls Changed with each of its twins, and again
// after each change of one.
func NewClassic(s *Service, hub TwinHub) *Classic {
	c := &Classic{s: s, hub: hub, due: make(map[string]bool), agents: make(map[string]bool)}
	s.Watch(c.ordered)
	return c
}

// Changed takes a twin after a change. The hub may be locked.
func (c *Classic) Changed(t hubdata.Twin) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes = append(c.changes, t)
	c.startLocked()
}

// ordered makes all agents due if there are other deployments.
func (c *Classic) ordered() {
	c.s.mu.Lock()
	orders := c.s.orders
	c.s.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if orders == c.orders {
		return
	}
	c.orders = orders
	for id := range c.agents {
		c.due[id] = true
	}
	c.startLocked()
}

func (c *Classic) startLocked() {
	if !c.busy && len(c.changes)+len(c.due) > 0 {
		c.busy = true
		time.AfterFunc(0, c.run)
	}
}

func (c *Classic) run() {
	if !c.hub.Enter() {
		return
	}
	defer c.hub.Leave()
	for {
		c.mu.Lock()
		changes, due := c.changes, c.due
		c.changes, c.due = nil, make(map[string]bool)
		c.busy = len(changes)+len(due) > 0
		c.mu.Unlock()
		if len(changes)+len(due) == 0 {
			return
		}
		for i := range changes {
			if id := c.read(&changes[i]); id != "" {
				due[id] = true
			}
		}
		for id := range due {
			c.write(id)
		}
	}
}

// read records what the agent of a twin reports. It returns the name of the twin, empty if it has
// no agent.
func (c *Classic) read(t *hubdata.Twin) string {
	agent := readAgent(t)
	if agent == nil {
		return ""
	}
	id := t.DeviceID
	if t.ModuleID != "" {
		id += "/" + t.ModuleID
	}
	c.mu.Lock()
	c.agents[id] = true
	c.mu.Unlock()
	if c.s.meet(id, agent) {
		c.s.changed()
	}
	return id
}

// write writes what an agent shall do.
func (c *Classic) write(id string) {
	t, err := c.hub.Twin(id)
	if err != nil { // removed meanwhile
		return
	}
	if agent := readAgent(&t); agent != nil {
		if patch := c.change(id, agent, readProperty(&t)); patch != nil {
			// A property that is too large for a twin stays away. The device's workflow tells that it was
			// offered, and has no report.
			_, _ = c.hub.ChangeDesired(id, string(keep.MustJSON(patch)), false)
			c.s.changed()
		}
	}
}

// meet records what an agent reports; false if it is nothing new.
func (s *Service) meet(id string, a *agentProperty) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.deviceLocked(id)
	before := d.copy()
	d.state(Agent{SDKVersion: a.DeviceProperties["aduVer"], Properties: a.compatibility()})
	d.data.Installed = a.installed()
	if w := d.workflow(a.Workflow.name()); w != nil {
		r, ok := a.report(w)
		n := len(w.Reports)
		// A final report stays in the twin, also when the next state of the agent is idle.
		if ok && (n == 0 || !w.Reports[n-1].Result.Outcome.Terminal() && !sameReport(w.Reports[n-1], r)) {
			s.addReportLocked(w, r)
		}
	}
	after := d.copy()
	before.Seen, after.Seen = time.Time{}, time.Time{}
	return string(keep.MustJSON(before)) != string(keep.MustJSON(after))
}

func sameReport(a, b updatedata.Report) bool {
	a.Received, b.Received = time.Time{}, time.Time{}
	return string(keep.MustJSON(a)) == string(keep.MustJSON(b))
}

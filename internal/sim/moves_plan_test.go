package sim_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/fault"
)

// movePlan holds all random choices of one run with a provisioning service.
type movePlan struct {
	plan
	carrier   carrier
	hubs      int
	group     bool // the enrollment is that of a group
	secondKey bool // the device has both keys
	stored    bool // the assignment is stored
	kinds     bool // every other hub has the profile mqttV5
	// life is that of certificates, with which the device connects; 0: it connects with its key.
	life        time.Duration
	reprovision dpsdata.Reprovision
	maxFailures int
	// The service.
	polls      int
	assigning  time.Duration
	retryAfter time.Duration
	perMinute  int
}

func (p *movePlan) String() string {
	return fmt.Sprintf("carrier %s, %d hubs, group %v, second key %v, stored %v, kinds %v, certificates %v, %v, "+
		"%d failures; polls %d, assigning %v, retry after %v, %d a minute; %v", p.carrier.name, p.hubs, p.group,
		p.secondKey, p.stored, p.kinds, p.life, p.reprovision, p.maxFailures, p.polls, p.assigning, p.retryAfter,
		p.perMinute, &p.plan)
}

// profile returns the settings of a hub with the profile mqttV5, nil for a classic one.
func (p *movePlan) profile(hub int) *testbroker.MQTTv5Options {
	if !p.kinds || hub%2 == 0 {
		return nil
	}
	return &testbroker.MQTTv5Options{}
}

// hubName returns the name of a hub.
func hubName(n int) string { return "hub" + strconv.Itoa(n) + ".example.test" }

func drawMoves(seed uint64, e engine) *movePlan {
	r := rand.New(rand.NewPCG(seed, 200))
	between := durations(r)
	p := &movePlan{
		plan: plan{
			seed: seed, engine: e, tls: seed%10 == 9, window: 1 + r.IntN(100), maxOutbox: 10 + r.IntN(300),
			ackTimeout: between(3*time.Second, 40*time.Second), stable: between(time.Second, time.Minute),
			policy: "documented", tokenLife: between(2*time.Minute, 10*time.Minute),
			length: between(2*time.Minute, 8*time.Minute), tail: between(time.Second, time.Minute),
			reopenAfter: between(time.Second, 30*time.Second),
		},
		carrier: carriers[r.IntN(len(carriers))],
		hubs:    2 + r.IntN(2), group: r.IntN(3) == 0, secondKey: r.IntN(2) == 0, stored: r.IntN(2) == 0,
		reprovision: []dpsdata.Reprovision{dpsdata.ReprovisionMigrate, dpsdata.ReprovisionReset}[r.IntN(2)],
		maxFailures: 3 + r.IntN(8),
		polls:       r.IntN(4) - 1, retryAfter: time.Duration(r.IntN(6)) * time.Second,
	}
	if r.IntN(3) == 0 {
		p.assigning = between(time.Second, 20*time.Second)
	}
	if r.IntN(3) == 0 {
		p.perMinute = 1 + r.IntN(2)
	}
	add := func(what action, change func(s *step)) {
		s := step{at: between(0, p.length), what: what}
		if change != nil {
			change(&s)
		}
		p.steps = append(p.steps, s)
	}
	for range 4 + r.IntN(8) {
		add(enqueue, func(s *step) { s.count, s.size = 1+r.IntN(30), 20+r.IntN(1000) })
	}
	for range r.IntN(3) {
		add(send, func(s *step) {
			s.count, s.size, s.timeout = 1+r.IntN(3), 20+r.IntN(200), between(time.Second, 2*time.Minute)
		})
	}
	for range 1 + r.IntN(4) {
		add(move, func(s *step) { s.count, s.size = r.IntN(p.hubs), r.IntN(3) })
	}
	for range r.IntN(3) {
		add([]action{remove, rename, renewKey, drop, reconnect}[r.IntN(5)], nil)
	}
	for range r.IntN(3) {
		add([]action{disable, unenroll, disableEnrollment}[r.IntN(3)], func(s *step) {
			s.timeout = between(time.Second, time.Minute)
		})
	}
	for range r.IntN(4) {
		add(inject, func(s *step) { s.count, s.fault = r.IntN(p.hubs), drawFault(r, between) })
	}
	if r.IntN(2) == 0 { // the device's hub is busy for a while
		add(inject, func(s *step) {
			s.count = -1
			s.fault = fault.Fault{Kind: fault.RefuseConnect, Code: 3, Status: 429, Times: 8 + r.IntN(8)}
		})
		p.steps = append(p.steps, step{at: p.steps[len(p.steps)-1].at + time.Second, what: drop})
	}
	if r.IntN(4) == 0 { // the next assignment is a hub that does not exist
		add(injectService, func(s *step) { s.fault = fault.Fault{Kind: fault.WrongHub, Text: "gone.example.test"} })
		p.steps = append(p.steps, step{at: p.steps[len(p.steps)-1].at + time.Second, what: remove})
	}
	for range 1 + r.IntN(6) {
		add(injectService, func(s *step) { s.fault = drawServiceFault(r, between) })
	}
	if e.twins {
		for range 1 + r.IntN(6) {
			add(desire, func(s *step) { s.count = 1 + r.IntN(4) })
		}
	}
	slices.SortStableFunc(p.steps, func(a, b step) int { return cmp.Compare(a.at, b.at) })
	return p
}

// drawServiceFault draws a fault of the provisioning service, or of a connection with it.
func drawServiceFault(r *rand.Rand, between func(from, to time.Duration) time.Duration) fault.Fault {
	kinds := append(fault.ProvisioningKinds(), fault.RefuseConnect, fault.SlowConnack, fault.SwallowConnack,
		fault.DropConnect, fault.HalfOpen, fault.Absent)
	f := fault.Fault{Kind: kinds[r.IntN(len(kinds))], After: r.IntN(3), Times: 1 + r.IntN(3),
		Route: []fault.RouteKind{fault.RouteAny, fault.RouteRegister, fault.RouteOperation}[r.IntN(3)],
		Delay: between(time.Millisecond, 20*time.Second)}
	switch f.Kind {
	case fault.HalfOpen, fault.Absent:
		f = fault.Fault{Kind: f.Kind, For: between(time.Second, 90*time.Second)}
	case fault.RefuseConnect:
		f.Code, f.Route = 3, fault.RouteAny
	case fault.RefuseProvisioning:
		f.Status = []int{0, 401, 404, 409, 412, 429, 500, 502, 503, 504}[r.IntN(10)]
		f.RetryAfter = time.Duration(r.IntN(60)) * time.Second
	case fault.WrongRetryAfter:
		f.Text = []string{"", "0", "-1", "soon", "30", "120", "Tue, 01 Jan 2030 00:10:00 GMT"}[r.IntN(7)]
	case fault.WrongStatus:
		f.Text = []string{"assigning", "unassigned", "disabled", "failed", "odd"}[r.IntN(5)]
	case fault.WrongHub:
		f.Text = []string{"gone.example.test", hubName(0), hubName(1)}[r.IntN(3)]
	case fault.WrongDeviceID:
		f.Text = "another"
	case fault.WrongProfile:
		f.Text = []string{"classic", "mqttV5"}[r.IntN(2)]
	}
	return f
}

// loses reports whether the plan has a fault because of which the device does not see an answer of
// the service.
func (p *movePlan) loses() bool {
	return slices.ContainsFunc(p.steps, func(s step) bool {
		if s.what != injectService {
			return false
		}
		switch s.fault.Kind {
		case fault.DropAfterProvisioning, fault.SwallowProvisioning, fault.MisnameProvisioning, fault.SlowProvisioning,
			fault.GarbleProvisioning, fault.WrongRetryAfter, fault.HalfOpen, fault.Absent:
			return true
		}
		return false
	})
}

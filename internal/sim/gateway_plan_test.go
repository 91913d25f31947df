package sim_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/workload"
)

// sitePlan is a run of an edge device: its gateway and its daemon, the modules a and b, and a leaf
// device.
type sitePlan struct {
	seed                  uint64
	engine                engine
	overlap               bool // the trust bundle keeps the authorities of former certificates
	tokenLife, ackTimeout time.Duration
	length, tail, boot    time.Duration // boot: the gateway and the daemon start that late
	reopenAfter, stable   time.Duration
	window                int
	steps                 []siteStep
}

// siteStep is one event at its own time.
type siteStep struct {
	at     time.Duration
	what   siteAction
	who    int // index of the member
	count  int
	size   int
	length time.Duration // of a restart or an off-line period; the time-out of a call
	// connect is how long a call waits for its callee to connect.
	connect time.Duration
	rotate  bool
	fault   fault.Fault
	daemon  workload.Fault
}

type siteAction uint8

const (
	siteSend    siteAction = iota // count messages of a member
	siteCloud                     // count cloud-to-device messages to the leaf device
	siteDesire                    // count changes of a member's desired properties
	siteReport                    // count patches of a member's reported properties, sequentially
	siteCall                      // count calls of a member's method by a back end
	siteInvoke                    // count calls of a member's method by module a
	siteRestart                   // the gateway is gone for length, and may have another certificate then
	siteOffline                   // the gateway has no connection to the hub for length
	siteDrop                      // all connections
	siteInject                    // a fault of the gateway
	siteDaemon                    // a fault of the daemon

	siteActions
)

func (a siteAction) String() string {
	return [siteActions]string{"send", "message", "desire", "report", "call", "invoke", "restart", "off-line", "drop",
		"inject", "inject at the daemon"}[a]
}

func (s siteStep) String() string {
	text := fmt.Sprintf("%14v %v", s.at, s.what)
	switch s.what {
	case siteSend:
		text += fmt.Sprintf(" %d of %d B by %s", s.count, s.size, memberIDs[s.who])
	case siteCloud:
		text += fmt.Sprintf(" %d", s.count)
	case siteDesire, siteReport, siteCall, siteInvoke:
		text += fmt.Sprintf(" %d of %s, time-out %v", s.count, memberIDs[s.who], s.length)
	case siteRestart:
		text += fmt.Sprintf(" for %v, rotate %v", s.length, s.rotate)
	case siteOffline:
		text += fmt.Sprintf(" for %v", s.length)
	case siteDrop:
	case siteInject:
		text += fmt.Sprintf(" %+v", s.fault)
	case siteDaemon:
		text += fmt.Sprintf(" %+v", s.daemon)
	}
	return text
}

func (p *sitePlan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, %s: overlap %v, window %d, ack time-out %v, stable %v, token life %v, boot %v\n",
		p.seed, p.engine.name, p.overlap, p.window, p.ackTimeout, p.stable, p.tokenLife, p.boot)
	for _, s := range p.steps {
		b.WriteString(s.String() + "\n")
	}
	return b.String()
}

// drawSite draws a plan. All engines have the same one for a seed, but for the faults of AMQP.
func drawSite(seed uint64, e engine) *sitePlan {
	r := rand.New(rand.NewPCG(seed, 300))
	between := durations(r)
	p := &sitePlan{
		seed: seed, engine: e, overlap: r.IntN(2) == 0, window: 1 + r.IntN(100),
		tokenLife: between(2*time.Minute, 6*time.Minute), ackTimeout: between(5*time.Second, 40*time.Second),
		stable: between(time.Second, time.Minute), length: between(5*time.Minute, 15*time.Minute),
		tail: between(time.Second, time.Minute), reopenAfter: between(time.Second, 30*time.Second),
	}
	if r.IntN(3) == 0 {
		p.boot = between(time.Second, 2*time.Minute)
	}
	add := func(n int, draw func() siteStep) {
		for range n {
			s := draw()
			s.at = between(0, p.length)
			p.steps = append(p.steps, s)
		}
	}
	who := func() int { return r.IntN(len(memberIDs)) }
	add(6+r.IntN(12), func() siteStep {
		return siteStep{what: siteSend, who: []int{0, 0, 0, 1, 2}[r.IntN(5)], count: 1 + r.IntN(30), size: 20 + r.IntN(2000)}
	})
	add(r.IntN(5), func() siteStep { return siteStep{what: siteCloud, count: 1 + r.IntN(6)} })
	add(1+r.IntN(6), func() siteStep { return siteStep{what: siteDesire, who: who(), count: 1 + r.IntN(10)} })
	add(1+r.IntN(6), func() siteStep {
		return siteStep{what: siteReport, who: who(), count: 1 + r.IntN(8), length: between(time.Second, 4*time.Minute)}
	})
	add(1+r.IntN(6), func() siteStep {
		return siteStep{what: siteCall, who: who(), count: 1 + r.IntN(3), length: between(5*time.Second, time.Minute),
			connect: between(0, 30*time.Second)}
	})
	add(1+r.IntN(8), func() siteStep {
		return siteStep{what: siteInvoke, who: 1 + r.IntN(2), count: 1 + r.IntN(3),
			length: between(5*time.Second, time.Minute), connect: between(0, 30*time.Second)}
	})
	add(1+r.IntN(4), func() siteStep {
		return siteStep{what: siteRestart, length: between(10*time.Millisecond, time.Minute), rotate: r.IntN(2) == 0}
	})
	add(r.IntN(4), func() siteStep { return siteStep{what: siteOffline, length: between(time.Second, 4*time.Minute)} })
	add(r.IntN(3), func() siteStep { return siteStep{what: siteDrop} })
	add(r.IntN(8), func() siteStep { return siteStep{what: siteInject, fault: drawSiteFault(r, e)} })
	add(r.IntN(6), func() siteStep { return siteStep{what: siteDaemon, daemon: drawDaemonFault(r)} })
	slices.SortStableFunc(p.steps, func(a, b siteStep) int { return cmp.Compare(a.at, b.at) })
	return p
}

// drawSiteFault draws a fault of the gateway. None of them makes it refuse a message for good or
// forget one, so the ledger has no exceptions.
func drawSiteFault(r *rand.Rand, e engine) fault.Fault {
	between := durations(r)
	if r.IntN(3) == 0 {
		kinds := []fault.Kind{
			fault.DropBeforeTwin, fault.DropAfterTwin, fault.SwallowTwin, fault.SlowTwin, fault.DuplicateTwin,
			fault.DuplicateDesired, fault.SlowDesired, fault.DropAfterDesired,
			fault.DropBeforeMethod, fault.SwallowMethod, fault.SlowMethod, fault.DuplicateMethod, fault.DropAfterMethod,
			fault.DropOnMethodAnswer, fault.SwallowMethodAnswer, fault.SlowMethodAnswer,
			fault.SlowRoute, fault.SlowRoute, fault.ForwardTwice, fault.ForwardTwice,
			fault.LoseSettlement, fault.LoseSettlement,
		}
		return fault.Fault{Kind: kinds[r.IntN(len(kinds))], After: r.IntN(3), Times: 1 + r.IntN(3),
			Delay: between(time.Millisecond, 10*time.Second)}
	}
	if e.protocol == hubdata.AMQP && r.IntN(2) == 0 {
		kinds := []fault.Kind{fault.DetachWhileIdle, fault.SlowAttach, fault.SwallowAttach, fault.DropOnAttach,
			fault.WithholdCredit, fault.CloseOnMessage, fault.SlowToken, fault.SwallowToken, fault.DropOnToken}
		return fault.Fault{Kind: kinds[r.IntN(len(kinds))], After: r.IntN(4), Times: 1 + r.IntN(3),
			Delay: between(time.Millisecond, 20*time.Second)}
	}
	return drawFault(r, between)
}

// drawDaemonFault draws a fault of the workload API.
func drawDaemonFault(r *rand.Rand) workload.Fault {
	between := durations(r)
	kinds := workload.FaultKinds()
	f := workload.Fault{Kind: kinds[r.IntN(len(kinds))], Times: 1 + r.IntN(3),
		Delay: between(time.Second, 30*time.Second), Status: []int{500, 502, 503, 404, 400}[r.IntN(5)], Size: 2 << 20}
	if f.Kind == workload.FaultAbsent {
		f.For, f.Times = between(time.Second, time.Minute), 0
	}
	return f
}

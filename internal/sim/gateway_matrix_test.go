package sim_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/workload"
	"github.com/hubline-iot/hubline/transport"
)

// siteRow is what befalls a site, and the promise about it.
type siteRow struct {
	name    string
	boot    time.Duration  // the gateway starts that late, the daemon after half of it
	gateway []siteStep     // in the middle of the operation
	daemon  workload.Fault // in place of gateway: a fault of the daemon while the modules connect
	rotate  bool           // with daemon: the gateway has another certificate then
	ops     []string       // to which it happens; nil: all
	// kinds are the Kinds of failures that the status may report.
	kinds []transport.Kind
	// terminal are those that end the attempts, until the client is opened again.
	terminal []transport.Kind
}

const siteOutage = 5 * time.Second

// gatewayRows are what befalls the gateway.
func gatewayRows() []siteRow {
	restart := siteStep{what: siteRestart, length: siteOutage}
	rotated := siteStep{what: siteRestart, length: siteOutage, rotate: true}
	sends, calls := []string{"outputs", "leaf"}, []string{"method", "invoke"}
	late := siteStep{what: siteDaemon, daemon: workload.Fault{Kind: workload.FaultStaleBundle, Times: 3}}
	return []siteRow{
		{name: "no fault"},
		{name: "restart", gateway: []siteStep{restart}, kinds: kinds(network)},
		{name: "restart, other certificate", gateway: []siteStep{rotated}, kinds: kinds(network, unavailable)},
		{name: "restart, other certificate before the bundle has it", gateway: []siteStep{late, rotated},
			kinds: kinds(network, unavailable)},
		{name: "two restarts", gateway: []siteStep{rotated, {at: siteOutage + 300*time.Millisecond, what: siteRestart,
			length: siteOutage, rotate: true}}, kinds: kinds(network, unavailable)},
		{name: "start after the modules", boot: 2 * time.Minute, kinds: kinds(network)},
		{name: "off-line", gateway: []siteStep{{what: siteOffline, length: siteOutage}}},
		{name: "off-line, restart", gateway: []siteStep{{what: siteOffline, length: 2 * siteOutage}, restart},
			kinds: kinds(network)},
		{name: "cut", gateway: []siteStep{{what: siteDrop}}, kinds: kinds(network)},
		{name: "SlowRoute", gateway: []siteStep{{what: siteInject, fault: fault.Fault{Kind: fault.SlowRoute, Times: 3,
			Delay: siteOutage}}}, ops: sends},
		{name: "ForwardTwice", gateway: []siteStep{{what: siteInject, fault: fault.Fault{Kind: fault.ForwardTwice,
			Times: 3}}}, ops: sends},
		{name: "LoseSettlement", gateway: []siteStep{{what: siteInject, fault: fault.Fault{Kind: fault.LoseSettlement,
			Times: 3}}}, ops: sends},
		{name: "DuplicateMethod", gateway: []siteStep{{what: siteInject, fault: fault.Fault{Kind: fault.DuplicateMethod,
			Times: 3}}}, ops: calls},
		{name: "SwallowMethodAnswer", gateway: []siteStep{{what: siteInject,
			fault: fault.Fault{Kind: fault.SwallowMethodAnswer, Times: 3}}}, ops: calls},
	}
}

// daemonRows are the faults of the daemon, which happen while the modules connect.
func daemonRows() []siteRow {
	type F = workload.Fault
	return []siteRow{
		{name: "AnswerStatus 500", daemon: F{Kind: workload.FaultAnswerStatus}, kinds: kinds(unavailable)},
		{name: "AnswerStatus 404", daemon: F{Kind: workload.FaultAnswerStatus, Status: 404}, kinds: kinds(unavailable)},
		{name: "AnswerStatus 400", daemon: F{Kind: workload.FaultAnswerStatus, Status: 400}, kinds: kinds(transport.Invalid),
			terminal: kinds(transport.Invalid)},
		{name: "Slow", daemon: F{Kind: workload.FaultSlow, Delay: 5 * time.Second}},
		{name: "Mute", daemon: F{Kind: workload.FaultMute}, kinds: kinds(timeout)},
		{name: "CutBefore", daemon: F{Kind: workload.FaultCutBefore}, kinds: kinds(network)},
		{name: "CutAfter", daemon: F{Kind: workload.FaultCutAfter}, kinds: kinds(network)},
		{name: "CutDuring", daemon: F{Kind: workload.FaultCutDuring}, kinds: kinds(network)},
		{name: "NotHTTP", daemon: F{Kind: workload.FaultNotHTTP}, kinds: kinds(protocol)},
		{name: "Garbage", daemon: F{Kind: workload.FaultGarbage}, kinds: kinds(protocol)},
		{name: "Malformed", daemon: F{Kind: workload.FaultMalformed}, kinds: kinds(protocol)},
		{name: "Oversized", daemon: F{Kind: workload.FaultOversized, Size: 2 << 20}, kinds: kinds(protocol)},
		{name: "WrongDigest", daemon: F{Kind: workload.FaultWrongDigest}, kinds: kinds(unauthorized),
			terminal: kinds(unauthorized)},
		{name: "UnknownModule", daemon: F{Kind: workload.FaultUnknownModule}, kinds: kinds(unavailable)},
		{name: "StaleBundle", daemon: F{Kind: workload.FaultStaleBundle}, rotate: true, kinds: kinds(unavailable)},
		{name: "ForeignBundle", daemon: F{Kind: workload.FaultForeignBundle}, rotate: true, kinds: kinds(unavailable)},
		{name: "Absent", daemon: F{Kind: workload.FaultAbsent, For: siteOutage}, kinds: kinds(network)},
	}
}

// bundleFaults are the faults that can happen to a request for the trust bundle as well.
var bundleFaults = []workload.FaultKind{workload.FaultAnswerStatus, workload.FaultSlow, workload.FaultMute,
	workload.FaultCutBefore, workload.FaultCutAfter, workload.FaultCutDuring, workload.FaultNotHTTP,
	workload.FaultGarbage, workload.FaultMalformed, workload.FaultOversized}

// siteOp is an operation of the members. It runs right before the fault, and again half a second
// later.
type siteOp struct {
	name  string
	steps []siteStep
}

// siteOps are the operations. Of 14 messages of module a some are released, rejected and meet a
// panic.
func siteOps() []siteOp {
	const long = 30 * time.Second
	return []siteOp{
		{"outputs", []siteStep{{what: siteSend, who: moduleA, count: 14, size: 100}}},
		{"leaf", []siteStep{{what: siteSend, who: leafDevice, count: 5, size: 100}, {what: siteCloud, count: 3}}},
		{"desired", []siteStep{{what: siteDesire, who: moduleB, count: 3}, {what: siteDesire, who: leafDevice, count: 2}}},
		{"reported", []siteStep{{what: siteReport, who: moduleB, count: 4, length: 4 * time.Minute},
			{what: siteReport, who: leafDevice, count: 4, length: 4 * time.Minute}}},
		{"method", []siteStep{{what: siteCall, who: moduleA, count: 2, length: long}, {what: siteCall, who: leafDevice,
			count: 2, length: long}}},
		{"invoke", []siteStep{{what: siteInvoke, who: moduleB, count: 3, length: long}, {what: siteInvoke, who: leafDevice,
			count: 3, length: long}}},
	}
}

// TestMatrixOfGateways runs every operation of modules and leaf devices behind a gateway under
// everything that can befall the gateway, and connections under every fault of the daemon.
func TestMatrixOfGateways(t *testing.T) {
	for _, e := range siteEngines() {
		t.Run(e.name, func(t *testing.T) {
			e.skipVariant(t)
			for i, o := range siteOps() {
				for j, r := range gatewayRows() {
					if r.ops != nil && !slices.Contains(r.ops, o.name) || !tried(i, j) {
						continue
					}
					t.Run(o.name+"/"+r.name, func(t *testing.T) { siteCell(t, e, o, r) })
				}
			}
			for _, r := range daemonRows() {
				t.Run("connect/"+r.name, func(t *testing.T) { siteCell(t, e, siteOps()[0], r) })
				if slices.Contains(bundleFaults, r.daemon.Kind) {
					r.daemon.Call, r.rotate = workload.CallTrustBundle, true
					t.Run("other certificate/"+r.name, func(t *testing.T) { siteCell(t, e, siteOps()[0], r) })
				}
			}
		})
	}
}

// Each fault of the gateway and of the daemon has a row.
func TestMatrixOfGatewaysIsComplete(t *testing.T) {
	covered := map[string]bool{}
	for _, r := range append(gatewayRows(), daemonRows()...) {
		if covered[r.name] {
			t.Errorf("two rows are called %s", r.name)
		}
		covered[r.name], covered[r.daemon.Kind.String()] = true, true
		for _, s := range r.gateway {
			covered[s.fault.Kind.String()] = true
		}
	}
	for _, k := range fault.GatewayKinds() {
		if !covered[k.String()] {
			t.Errorf("the gateway's fault %v has no row", k)
		}
	}
	for _, k := range workload.FaultKinds() {
		if !covered[k.String()] {
			t.Errorf("the daemon's fault %v has no row", k)
		}
	}
}

// plan returns the plan of a cell.
func (r *siteRow) plan(e engine, o siteOp) *sitePlan {
	p := &sitePlan{seed: 1, engine: e, boot: r.boot, window: 20, tokenLife: time.Hour, ackTimeout: 25 * time.Second,
		stable: time.Second, tail: 3 * time.Minute, reopenAfter: 10 * time.Second}
	const begin = 10 * time.Second
	add := func(at time.Duration, steps []siteStep) {
		for _, s := range steps {
			s.at += at
			p.steps = append(p.steps, s)
		}
	}
	add(begin, o.steps)
	switch {
	case r.daemon.Kind == 0:
		add(begin, r.gateway)
	case r.rotate:
		add(begin, []siteStep{{what: siteDaemon, daemon: r.daemon}, {what: siteRestart, length: time.Millisecond,
			rotate: true}})
	default: // another certificate makes the modules ask for the bundle, the connection for a signature
		add(begin, []siteStep{{what: siteDaemon, daemon: r.daemon}, {what: siteDrop}})
	}
	add(begin+500*time.Millisecond, o.steps)
	slices.SortStableFunc(p.steps, func(a, b siteStep) int { return int(a.at - b.at) })
	return p
}

func siteCell(t *testing.T, e engine, o siteOp, r siteRow) {
	testkit.Bubble(t, func(t *testing.T) {
		s := playSite(t, r.plan(e, o))
		err := s.check()
		if err == nil {
			err = s.promised(&r)
		}
		if err != nil {
			t.Errorf("%v\n%v", err, s.events)
		}
	})
}

// promised compares the failures that the members report with the row's promise.
func (s *site) promised(r *siteRow) error {
	noticed := map[transport.Kind]bool{}
	for _, m := range s.members {
		for _, st := range m.statuses {
			kind := transport.KindOf(st.Err)
			switch {
			case st.Err == nil:
			case r.daemon.Kind != 0 && kind == network && st.Reason == device.ReasonConnectionLost: // the plan's own cut
			case !slices.Contains(r.kinds, kind):
				return fmt.Errorf("%s reported %w, promised were %v", m.id, st.Err, r.kinds)
			case (st.State == device.StateDisconnected) != slices.Contains(r.terminal, kind):
				return fmt.Errorf("%s was %v after %w", m.id, st.State, st.Err)
			default:
				noticed[kind] = true
			}
		}
	}
	if len(r.kinds) > 0 && !noticed[r.kinds[0]] {
		return fmt.Errorf("nobody reported %w", r.kinds[0])
	}
	for _, f := range s.faults {
		if f, ok := f.(interface{ Fired() int }); ok && f.Fired() == 0 {
			return fmt.Errorf("a fault did not happen")
		}
	}
	return nil
}

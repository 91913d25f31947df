package sim_test

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// check compares the ledgers with the hub.
func (s *site) check() error {
	s.checkMessages()
	s.checkInputs()
	for _, m := range s.members {
		m.checkTwin()
	}
	s.checkCalls()
	return errors.Join(s.errs...)
}

// checkMessages: everything that was acknowledged is at the hub, and each sender's messages came
// there in order.
func (s *site) checkMessages() {
	byID := map[string]*entry{}
	for _, m := range s.members {
		for _, e := range append(slices.Clone(m.msgs), m.echoes...) {
			byID[e.m.ID] = e
		}
	}
	seen := map[string]int{}
	newest := map[string]int{}
	for _, l := range s.log {
		e := byID[l.MessageID]
		if e == nil {
			s.failf("the hub has %q, which was never sent", l.MessageID)
			continue
		}
		if string(l.Body) != string(e.m.Body) {
			s.failf("%s arrived with another body", e.m.ID)
		}
		from := l.DeviceID
		if l.ModuleID != "" {
			from += "/" + l.ModuleID
		}
		if seen[l.MessageID]++; seen[l.MessageID] == 1 && e.n > 0 {
			if e.n <= newest[from] {
				s.failf("%s came after %d", e.m.ID, newest[from])
			}
			newest[from] = e.n
		}
	}
	for id, e := range byID {
		switch {
		case !e.accepted:
			s.failf("%s was not accepted", id)
		case e.result != nil:
			s.failf("%s failed: %w", id, e.result)
		case seen[id] == 0:
			s.failf("%s was acknowledged and the hub does not have it", id)
		}
	}
}

// checkInputs: each message that left by an output was handled at the input of its route, in order,
// and settled.
func (s *site) checkInputs() {
	b := s.members[moduleB]
	want := map[string]string{}
	for _, e := range s.members[moduleA].msgs {
		if input := map[string]string{"first": "one", "second": "two"}[outputOf(e.n)]; input != "" {
			want[e.m.ID] = input
		}
	}
	for id, input := range want {
		switch {
		case b.handled[id] == 0:
			s.failf("%s never came to its input", id)
		case b.inputs[id] != input:
			s.failf("%s came by the input %q, not %q", id, b.inputs[id], input)
		}
	}
	for id := range b.handled {
		if want[id] == "" {
			s.failf("%s came to an input without a route", id)
		}
	}
	newest := 0
	for _, id := range b.order {
		if numberOf(id) < newest {
			s.failf("%s was handled after %d", id, newest)
		}
		newest = max(newest, numberOf(id))
	}
	for _, r := range s.inputs {
		wants := hubdata.C2DCompleted
		if n := numberOf(r.C2D.MessageID); s.p.engine.protocol == hubdata.AMQP && n%13 == 0 && n%17 != 0 {
			wants = hubdata.C2DRejected // MQTT cannot reject
		}
		if r.State != wants {
			s.failf("%s at the input %s is %v, not %v", r.C2D.MessageID, r.Input, r.State, wants)
		}
	}
	if leaf := s.members[leafDevice]; len(leaf.handled) != s.fromCloud {
		s.failf("%d of %d cloud-to-device messages were handled", len(leaf.handled), s.fromCloud)
	}
}

// checkTwin: the hub has the values of the latest patches, and versions came in order.
func (m *member) checkTwin() {
	reported := map[string]int{}
	m.fail(json.Unmarshal(m.twin.Reported, &reported))
	for key, values := range m.history {
		at := slices.Index(values, reported[key]) // -1: not there
		if known := m.known[key]; at+1 < known {
			m.failf("%s: %s is %d at the hub, and %d was acknowledged", m.id, key, reported[key], values[known-1])
		}
	}
	last := int64(0)
	for i, d := range m.told {
		if d.Version < last || i == 0 && !d.Full {
			m.failf("%s was told version %d after %d", m.id, d.Version, last)
		}
		last = d.Version
	}
}

// checkCalls: no call ran twice, and one that was answered ran.
func (s *site) checkCalls() {
	for payload, k := range s.called {
		switch {
		case k.runs > 1:
			s.failf("call %s ran %d times", payload, k.runs)
		case k.err == nil && k.status == 200 && k.runs == 0:
			s.failf("call %s was answered and never ran", payload)
		case k.err == nil && k.status != 200:
			s.failf("call %s was answered with %d", payload, k.status)
		}
	}
}

// A ledger must detect losses, doubled calls and patches that do not arrive.
func TestTheLedgerOfGatewaysNoticesSabotage(t *testing.T) {
	for _, e := range siteEngines() {
		t.Run(e.name, func(t *testing.T) {
			e.skipVariant(t)
			testkit.Bubble(t, func(t *testing.T) {
				p := drawSite(1, e)
				p.boot, p.steps = 0, []siteStep{
					{at: time.Second, what: siteInject, fault: fault.Fault{Kind: fault.Forget}},
					{at: 2 * time.Second, what: siteSend, who: moduleA, count: 4, size: 100},
					{at: 3 * time.Second, what: siteCall, who: moduleB, count: 1, length: time.Minute},
					{at: 4 * time.Second, what: siteReport, who: leafDevice, count: 1, length: time.Minute},
				}
				s := playSite(t, p)
				// The fault meets one message, over AMQP a batch.
				require.ErrorContains(t, s.check(), "edge-1/a/1 was acknowledged and the hub does not have it")
				require.ErrorContains(t, s.check(), "edge-1/a/1 never came to its input")

				s.errs = nil
				s.called["1"].runs++
				s.members[leafDevice].twin.Reported = []byte(`{"k1":0}`)
				s.inputs = append(s.inputs, hubdata.C2DRecord{State: hubdata.C2DInvisible, Input: "one"})
				text := s.check().Error()
				for _, want := range []string{"call 1 ran 2 times", "leaf-1: k1 is 0", "at the input one is invisible"} {
					require.Contains(t, text, want)
				}
			})
		})
	}
}

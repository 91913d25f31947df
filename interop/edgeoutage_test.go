package interop

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
)

// series is a sender's numbered messages in one round. Two ledgers have them: that of the hub, and
// that of the receiver behind the gateway, which a leaf device does not have.
type series struct {
	sender, prefix string
	hub, input     *ledger
	next           int // number of the next message
	receipts       []device.Receipt
}

// perSender is how many messages each sender sends in a round.
const perSender = 60

func newSeries(sender, round string) *series {
	s := &series{sender: sender, prefix: round + " of " + sender + " ", hub: newLedger(sender, perSender),
		receipts: make([]device.Receipt, perSender)}
	s.hub.unread = true
	if sender != "leaf" {
		s.input = newLedger(sender, perSender)
		s.input.unread = true
	}
	return s
}

func (s *series) id(n int) string { return fmt.Sprintf("%s%03d", s.prefix, n) }

// number returns the number of a message; false if it is not of this series.
func (s *series) number(id string) (n int, ok bool) {
	text, ok := strings.CutPrefix(id, s.prefix)
	if !ok {
		return 0, false
	}
	_, err := fmt.Sscanf(text, "%03d", &n)
	return n, err == nil
}

// ended records the sender's result.
func (s *series) ended(n int, err error) {
	s.hub.ended(n, err)
	if s.input != nil {
		s.input.ended(n, err)
	}
}

// traffic is what all senders send during one round.
type traffic struct {
	*edgeSite
	node, leaf *series
	ours       []*series
}

func (e *edgeSite) newTraffic(round string) *traffic {
	f := &traffic{edgeSite: e, node: newSeries("module", round), leaf: newSeries("leaf", round)}
	for _, g := range e.ours {
		f.ours = append(f.ours, newSeries(g.name, round))
	}
	return f
}

// send has each sender send n messages, and waits for no result.
func (f *traffic) send(n int) {
	f.t.Helper()
	for range n {
		for _, s := range []*series{f.node, f.leaf} {
			command := map[string]any{"do": "send", "name": s.sender,
				"messages": []map[string]any{{"payload": s.id(s.next), "id": s.id(s.next)}}}
			if s == f.node {
				command["do"], command["output"] = "output", "to-"+f.edgeSite.ours[s.next%len(f.ours)].name
			}
			f.tell(command)
			s.next++
		}
		for i, s := range f.ours {
			require.NoError(f.t, f.edgeSite.ours[i].client.Enqueue(soon(f.t), &transport.Message{ID: s.id(s.next),
				Output: "to-node", Body: []byte(s.id(s.next))}, &s.receipts[s.next]))
			s.next++
		}
	}
}

// results waits for the result of each message.
func (f *traffic) results() {
	f.t.Helper()
	for _, s := range []*series{f.node, f.leaf} {
		for range perSender {
			v := f.wait("result for "+s.sender, func(v event) bool {
				_, own := s.number(v.ID)
				return v.is("sent", s.sender) && own
			})
			require.Empty(f.t, v.Text)
			n, _ := s.number(v.ID)
			s.ended(n, nil)
		}
	}
	for _, s := range f.ours {
		for n := range s.receipts {
			err := s.receipts[n].Wait(soon(f.t))
			require.NoError(f.t, err)
			s.ended(n, nil)
		}
	}
}

// toInputs waits until each message has arrived at its input, and completes the ledgers.
func (f *traffic) toInputs() {
	f.t.Helper()
	for waiting := perSender * len(f.ours); waiting > 0; {
		v := f.wait("input", func(v event) bool { return v.is("input", "module") && f.sender(v.ID) != nil })
		s := f.sender(v.ID)
		require.Equal(f.t, v.ID+" of-"+s.sender, v.Payload+" "+v.Input)
		n, _ := s.number(v.ID)
		if s.input.arrived(n); s.input.messages[n].copies == 1 {
			waiting--
		}
	}
	for i, g := range f.edgeSite.ours {
		own := perSender / len(f.ours)
		for _, m := range g.waitFor(f.t, f.node.prefix, own) {
			n, ok := f.node.number(m.ID)
			require.True(f.t, ok && string(m.Body) == m.ID && n%len(f.ours) == i, "%+v", m)
			f.node.input.arrived(n)
		}
	}
	f.settled()
}

// sender returns the series of ours that has a message; nil if none has.
func (f *traffic) sender(id string) *series {
	at := slices.IndexFunc(f.ours, func(s *series) bool { _, ok := s.number(id); return ok })
	if at < 0 {
		return nil
	}
	return f.ours[at]
}

// toHub waits until the hub has each message, and completes the ledgers.
func (f *traffic) toHub() {
	f.t.Helper()
	for _, s := range f.all() {
		f.arrives(s.prefix, perSender)
		for _, m := range f.hub.Messages() {
			if n, ok := s.number(m.MessageID); ok {
				require.Equal(f.t, m.MessageID, string(m.Body))
				s.hub.arrived(n)
			}
		}
	}
}

func (f *traffic) all() []*series { return append([]*series{f.node, f.leaf}, f.ours...) }

// balance checks the ledgers: nothing is lost, and ours stays in order.
func (f *traffic) balance(round string) {
	f.t.Helper()
	said := ""
	for _, s := range f.all() {
		for at, l := range map[string]*ledger{"hub": s.hub, "input": s.input} {
			if l == nil {
				continue
			}
			b := l.balance()
			require.Equal(f.t, perSender, b.arrived, "%s at the %s", s.sender, at)
			require.Zero(f.t, b.lostByBroker+b.lostByClient)
			if slices.Contains(f.ours, s) {
				require.True(f.t, slices.IsSorted(firsts(l)), "%s at the %s: %v; hub %v, input %v", s.sender, at,
					l.arrivals, s.hub.arrivals, s.input.arrivals)
			}
		}
		said += fmt.Sprintf(" %s +%d", s.sender, s.hub.balance().doubled)
	}
	seen(f.t, "%s: %d messages of each sender, lost 0, at the hub and at the inputs; copies at the hub:%s", round,
		perSender, said)
}

// firsts returns the numbers of the first copies in the order of their arrival.
func firsts(l *ledger) (all []int) {
	for i, n := range l.arrivals {
		if l.messages[n].firstSeen == i {
			all = append(all, n)
		}
	}
	return all
}

// restart stops the gateway and starts it again. At that moment it owes each sender an
// acknowledgement, and our modules have messages that are not settled. Nothing is lost.
func (e *edgeSite) restart() {
	e.t.Helper()
	f := e.newTraffic("restart")
	var owed []*testbroker.Injected
	for _, id := range e.ids() {
		owed = append(owed, e.hub.Inject(fault.Fault{Kind: fault.SwallowPuback, Device: id, Times: 3}))
	}
	for _, g := range e.ours {
		g.gate.Lock()
	}
	f.send(perSender / 2)
	for _, o := range owed {
		require.NoError(e.t, o.WaitFired(soon(e.t), 1))
	}
	for _, g := range e.ours {
		require.NoError(e.t, e.hub.WaitInputs(soon(e.t), edgeID+"/"+g.name, hubdata.C2DInvisible, 1))
	}
	require.NoError(e.t, e.hub.StopGateway())
	for _, o := range owed {
		o.Remove()
	}
	for _, g := range e.ours {
		eventually(e.t, g.name+" notices", func() bool { return g.client.Status().State != device.StateConnected })
		g.gate.Unlock()
	}
	eventually(e.t, "the gateway has no connection", func() bool { return e.hub.Connections("") == 0 })
	f.send(perSender / 2)
	require.NoError(e.t, e.hub.StartGateway())
	f.results()
	f.toInputs()
	f.toHub()
	f.balance("a restart")
	for _, s := range f.all() {
		require.NotZero(e.t, s.hub.balance().doubled, s.sender)
	}
	require.NotZero(e.t, f.node.input.balance().doubled)
}

// offline cuts the gateway off from the hub. Everything but calls by the hub goes on, and the hub
// has it later.
func (e *edgeSite) offline() {
	e.t.Helper()
	require.NoError(e.t, e.hub.SetOffline(true))
	f, before := e.newTraffic("off-line"), e.hub.Len()
	f.send(perSender)
	f.results()
	f.toInputs()
	require.Equal(e.t, before, e.hub.Len())
	require.Equal(e.t, perSender*len(f.all()), e.hub.Stored())
	e.calls("off-line")
	_, err := e.hub.CallMethod(soon(e.t), e.module.id, hubdata.MethodCall{Name: "reboot", ConnectTimeout: time.Second})
	var refusal *hubdata.ServiceError
	require.ErrorAs(e.t, err, &refusal)
	require.Equal(e.t, 404103, refusal.Code)

	reported := e.module.twin().Reported
	require.Empty(e.t, e.module.reports(`{"offline":1}`))
	require.Empty(e.t, e.module.reports(`{"offline":2}`))
	e.tell(map[string]any{"do": "twin", "name": "module"})
	require.Contains(e.t, e.next("twin", "module").Payload, `"offline":2`)
	require.JSONEq(e.t, string(reported), string(e.module.twin().Reported))
	for _, g := range e.ours {
		_, err := g.client.PatchReported(soon(e.t), []byte(`{"offline":2}`))
		require.NoError(e.t, err)
		twin, err := g.client.GetTwin(soon(e.t))
		require.NoError(e.t, err)
		require.Contains(e.t, string(twin.Reported), `"offline":2`)
	}
	change := map[string]int64{}
	for _, id := range e.ids() {
		change[id], err = e.hub.PatchDesired(id, `{"offline":3}`)
		require.NoError(e.t, err)
	}
	require.NoError(e.t, e.hub.SendC2D(leafID, hubdata.C2D{MessageID: "id of later", CorrelationID: "c",
		Properties: []hubdata.Property{{Name: e.property(), Value: "100 %"}}, Body: []byte("later")}))

	require.NoError(e.t, e.hub.SetOffline(false))
	f.toHub()
	f.balance("an off-line time")
	require.Zero(e.t, e.hub.Stored())
	e.settle("leaf", e.taken("leaf", "later").Delivery, "complete")
	e.becomes(leafID, "later", hubdata.C2DCompleted)
	want := func(id string) string { return fmt.Sprintf(`{"offline":3,"$version":%d}`, change[id]) }
	e.module.hears(want(e.module.id))
	e.leaf.hears(want(leafID))
	for _, g := range e.ours {
		g.hears(e.t, want(edgeID+"/"+g.name))
	}
	for _, id := range e.ids() {
		twin, err := e.hub.Twin(id)
		require.NoError(e.t, err)
		require.Equal(e.t, id != leafID, strings.Contains(string(twin.Reported), `"offline":2`), id)
	}
	require.Empty(e.t, e.module.reports(`{"offline":null}`))
}

// ids returns the names of all clients.
func (e *edgeSite) ids() []string {
	all := []string{e.module.id, leafID}
	for _, g := range e.ours {
		all = append(all, edgeID+"/"+g.name)
	}
	return all
}

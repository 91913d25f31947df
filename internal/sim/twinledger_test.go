package sim_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
)

// twinLedger records the wishes of a back end, the events and actions of the device, and its calls.
// Guarded by world.mu.
type twinLedger struct {
	desired  int64                    // the latest version
	docs     map[int64]map[string]any // desired properties, by version
	replaced map[int64]bool           // versions whose notification omits the removed properties
	seen     []device.Desired
	// hushedBefore is the number of notifications that the hub had swallowed before the latest change,
	// and changedIn the number of connections at that time.
	hushedBefore int
	changedIn    uint64
	calls        map[string]*methodCall
	patches      []*twinPatch
	reads        []*twinRead
	// reportedVersion is the newest version that a patch returned.
	reportedVersion int64
	// The final state at the hub: the reported properties, and how often it applied each patch.
	reported map[string]int
	applied  map[int]int
}

// methodCall is a call and its result.
type methodCall struct {
	runs   int
	result hubdata.MethodResult
	err    error
}

// twinAsk is a twin call of the client.
type twinAsk struct {
	ended             bool
	err               error
	took, limit       time.Duration
	down              bool  // the client had given up, before or during the call
	desired, reported int64 // versions known when it began
}

type twinPatch struct {
	twinAsk
	n, producer       int
	expected, version int64
}

type twinRead struct {
	twinAsk
	twin *device.Twin
}

// told returns the last version that the handler received.
func (l *twinLedger) told() int64 {
	if len(l.seen) == 0 {
		return 0
	}
	return l.seen[len(l.seen)-1].Version
}

// whole reports whether the handler last received all properties.
func (l *twinLedger) whole() bool {
	n := len(l.seen)
	return n > 0 && l.seen[n-1].Full
}

// wanted records a change of the desired properties.
func (l *twinLedger) wanted(version int64, text string, replace bool) {
	if l.docs == nil {
		l.docs, l.replaced = map[int64]map[string]any{}, map[int64]bool{}
	}
	doc := map[string]any{}
	if !replace {
		maps.Copy(doc, l.docs[l.desired])
	}
	if err := merge(doc, []byte(text)); err != nil {
		panic(err)
	}
	l.desired, l.docs[version], l.replaced[version] = version, doc, replace
}

// merge applies a patch of properties that are not objects.
func merge(doc map[string]any, patch []byte) error {
	var changes map[string]any
	if err := json.Unmarshal(patch, &changes); err != nil {
		return err
	}
	maps.Copy(doc, changes)
	maps.DeleteFunc(doc, func(name string, value any) bool { return value == nil || name == "$version" })
	return nil
}

// checkState checks the state of a device that applies every notification. It must equal the
// desired properties, except for properties that a replacement removed; at the end without that
// exception.
func (l *twinLedger) checkState() error {
	var errs []error
	state, excused := map[string]any{}, false
	for i, d := range l.seen {
		if d.Full {
			clear(state)
		}
		if err := merge(state, d.JSON); err != nil {
			errs = append(errs, err)
		}
		excused = !d.Full && (excused || l.replaced[d.Version])
		has := maps.Clone(state)
		if excused && i < len(l.seen)-1 {
			maps.DeleteFunc(has, func(name string, _ any) bool { return l.docs[d.Version][name] == nil })
		}
		if !maps.Equal(has, l.docs[d.Version]) {
			errs = append(errs, fmt.Errorf("at version %d the device has %v, desired is %v", d.Version, state,
				l.docs[d.Version]))
		}
	}
	return errors.Join(errs...)
}

// check compares the ledger with the hub and the device.
func (l *twinLedger) check() error {
	return errors.Join(l.checkDesired(), l.checkState(), l.checkCalls(), l.checkPatches(), l.checkReads())
}

// checkDesired checks the notifications. Each version comes once and in order, except that all
// properties may follow changes. All properties come where changes were missed. The last version is
// known, and the content is the desired one.
func (l *twinLedger) checkDesired() error {
	var errs []error
	last := int64(0)
	for i, d := range l.seen {
		switch {
		case i == 0 && !d.Full:
			errs = append(errs, fmt.Errorf("the first change told, to version %d, is not the whole", d.Version))
		case i > 0 && (d.Version < last || d.Version == last && (!d.Full || l.seen[i-1].Full)):
			errs = append(errs, fmt.Errorf("version %d was told after %d", d.Version, last))
		case i > 0 && !d.Full && d.Version != last+1:
			errs = append(errs, fmt.Errorf("the change to version %d was told after version %d: some are missing", d.Version,
				last))
		}
		last = d.Version
		var said struct{ N int64 }
		if err := json.Unmarshal(d.JSON, &said); err != nil || said.N != d.Version-1 && d.Version != 1 {
			errs = append(errs, fmt.Errorf("version %d was told as %s", d.Version, d.JSON))
		}
	}
	if last != l.desired {
		errs = append(errs, fmt.Errorf("version %d is desired, the device knows of %d", l.desired, last))
	}
	return errors.Join(errs...)
}

// notOnline is the code for a device that is offline or has no methods.
const notOnline = 404103

// checkCalls: each call ran at most once. An answered call ran and has its own answer; a call that
// met no device did not run.
func (l *twinLedger) checkCalls() error {
	var errs []error
	for id, c := range l.calls {
		refusal, _ := errors.AsType[*hubdata.ServiceError](c.err)
		n, _ := strconv.Atoi(id)
		good := c.result.Status == 200 && string(c.result.Payload) == id
		if panics(n) {
			good = c.result.Status == 500
		}
		switch {
		case c.runs > 1:
			errs = append(errs, fmt.Errorf("call %s ran %d times", id, c.runs))
		case c.err == nil && c.runs != 1:
			errs = append(errs, fmt.Errorf("call %s was answered and did not run", id))
		case c.err == nil && !good:
			errs = append(errs, fmt.Errorf("call %s was answered by %d %s", id, c.result.Status, c.result.Payload))
		case refusal != nil && refusal.Code == notOnline && c.runs != 0:
			errs = append(errs, fmt.Errorf("call %s met nobody and ran", id))
		}
	}
	return errors.Join(errs...)
}

// check: a call has one result, in time. It fails only with the client, or with an error of the
// hub.
func (a *twinAsk) check() error {
	kind := transport.KindOf(a.err)
	switch {
	case !a.ended:
		return errors.New("has no result")
	case a.took > a.limit:
		return fmt.Errorf("took %v, longer than %v", a.took, a.limit)
	case a.err == nil, kind == transport.Timeout, kind == transport.Cancelled, a.down,
		kind == transport.Invalid: // a bad request is among the faults
		return nil
	}
	return fmt.Errorf("failed: %w", a.err)
}

// checkPatches: an acknowledged patch is in the twin, at a growing version. A failed patch is not,
// unless its outcome is unknown. A patch for an expected version is never applied twice.
func (l *twinLedger) checkPatches() error {
	var errs []error
	newest := map[int]*twinPatch{} // of each producer
	for _, k := range l.patches {
		fail := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("patch %d %w", k.n, fmt.Errorf(format, args...)))
		}
		conflict := k.expected != 0 && (errors.Is(k.err, transport.Conflict) || errors.Is(k.err, transport.ErrOutcomeUnknown))
		if err := k.check(); err != nil && !conflict {
			fail("%w", err)
		}
		taken := l.applied[k.n]
		switch {
		case k.expected != 0 && taken > 1:
			fail("for version %d was taken %d times", k.expected, taken)
		case k.err != nil && taken > 0 && !errors.Is(k.err, transport.ErrOutcomeUnknown):
			fail("failed, it is said, and the hub took it: %w", k.err)
		}
		if k.err != nil {
			continue
		}
		before := newest[k.producer]
		newest[k.producer] = k
		switch {
		case taken == 0 || l.reported["p"+strconv.Itoa(k.n)] != k.n:
			fail("was acknowledged and is not in the twin")
		case k.expected != 0 && k.version != k.expected+1:
			fail("for version %d led to version %d", k.expected, k.version)
		case before != nil && k.version <= before.version:
			fail("led to version %d, and patch %d before it to %d", k.version, before.n, before.version)
		}
	}
	for producer, k := range newest {
		if last := l.reported["last"+strconv.Itoa(producer)]; last < k.n {
			errs = append(errs, fmt.Errorf("patch %d was acknowledged, and then undone by patch %d", k.n, last))
		}
	}
	return errors.Join(errs...)
}

// checkReads: a read is at least as new as the versions known when it began.
func (l *twinLedger) checkReads() error {
	var errs []error
	for i, k := range l.reads {
		if err := k.check(); err != nil {
			errs = append(errs, fmt.Errorf("read %d %w", i+1, err))
		}
		if k.err == nil && k.ended && (k.twin.DesiredVersion < k.desired || k.twin.ReportedVersion < k.reported) {
			errs = append(errs, fmt.Errorf("read %d is older, %d and %d, than what was known, %d and %d", i+1,
				k.twin.DesiredVersion, k.twin.ReportedVersion, k.desired, k.reported))
		}
	}
	return errors.Join(errs...)
}

// A ledger must detect faults.
func TestTheTwinLedgerNoticesASabotage(t *testing.T) {
	change := func(version int64, full bool) device.Desired {
		return device.Desired{Version: version, Full: full, JSON: fmt.Appendf(nil, `{"n":%d}`, version-1)}
	}
	refusal := func(k transport.Kind) error { return &transport.Error{Kind: k} }
	good := func() *twinLedger {
		fine := twinAsk{ended: true, took: time.Second, limit: time.Second}
		unknown, conflict := fine, fine
		unknown.err = &transport.Error{Kind: transport.Timeout, Err: transport.ErrOutcomeUnknown}
		conflict.err = refusal(transport.Conflict)
		read := fine
		read.desired, read.reported = 3, 2
		l := &twinLedger{
			seen: []device.Desired{change(2, true), change(3, false), change(6, true)},
			calls: map[string]*methodCall{
				"1": {runs: 1, result: hubdata.MethodResult{Status: 200, Payload: []byte("1")}},
				"2": {runs: 1, err: errors.New("lost")},
				"3": {err: &hubdata.ServiceError{Code: notOnline}}, "5": {runs: 1, result: hubdata.MethodResult{Status: 500}},
			},
			patches: []*twinPatch{
				{twinAsk: fine, n: 1, producer: 1, version: 2}, {twinAsk: unknown, n: 2, producer: 1},
				{twinAsk: fine, n: 3, producer: 1, expected: 3, version: 4},
				{twinAsk: conflict, n: 4, producer: 2, expected: 1},
			},
			reads:    []*twinRead{{twinAsk: read, twin: &device.Twin{DesiredVersion: 3, ReportedVersion: 2}}},
			reported: map[string]int{"p1": 1, "p2": 2, "p3": 3, "last1": 3}, applied: map[int]int{1: 2, 2: 1, 3: 1},
		}
		for v := range int64(6) {
			l.wanted(v+1, fmt.Sprintf(`{"n":%d}`, v), false)
		}
		return l
	}
	require.NoError(t, good().check())
	for want, spoil := range map[string]func(l *twinLedger){
		"some are missing": func(l *twinLedger) { l.seen[2].Full = false },
		"told after":       func(l *twinLedger) { l.seen = slices.Insert(l.seen, 2, change(3, false)) },
		"3 was told after 3": func(l *twinLedger) {
			l.seen = slices.Insert(l.seen, 2, change(3, true), change(3, true))
		},
		"at version 3 the device has": func(l *twinLedger) { l.docs[3]["k"] = true },
		"at version 6 the device has": func(l *twinLedger) { // removed by version 5, which does not name it
			l.seen[0].JSON, l.docs[2]["gone"], l.docs[3]["gone"], l.replaced[5] = []byte(`{"n":1,"gone":true}`), true, true, true
			l.seen = slices.Insert(l.seen[:2], 2, change(4, false), change(5, false), change(6, false))
			l.docs[4]["gone"] = true
		},
		"is not the whole":              func(l *twinLedger) { l.seen[0].Full = false },
		"the device knows of 3":         func(l *twinLedger) { l.seen = l.seen[:2] },
		"was told as":                   func(l *twinLedger) { l.seen[1].JSON = l.seen[0].JSON },
		"call 2 ran 2 times":            func(l *twinLedger) { l.calls["2"].runs = 2 },
		"was answered and did not run":  func(l *twinLedger) { l.calls["1"].runs = 0 },
		"call 1 was answered by 200 \"": func(l *twinLedger) { l.calls["1"].result.Payload = []byte(`"`) },
		"call 5 was answered by 200":    func(l *twinLedger) { l.calls["5"].result.Status = 200 },
		"call 3 met nobody and ran":     func(l *twinLedger) { l.calls["3"].runs = 1 },
		"patch 2 has no result":         func(l *twinLedger) { l.patches[1].ended = false },
		"read 1 took 1m0s":              func(l *twinLedger) { l.reads[0].took = time.Minute },
		"read 1 failed":                 func(l *twinLedger) { l.reads[0].err = refusal(transport.Network) },
		"patch 1 failed, it is said":    func(l *twinLedger) { l.patches[0].err = refusal(transport.Timeout) },
		"patch 4 failed":                func(l *twinLedger) { l.patches[3].err = refusal(transport.Protocol) },
		"patch 3 for version 3 was":     func(l *twinLedger) { l.applied[3] = 2 },
		"patch 3 for version 3 led to":  func(l *twinLedger) { l.patches[2].version = 5 },
		"acknowledged and is not in":    func(l *twinLedger) { delete(l.reported, "p1") },
		"patch 1 before it":             func(l *twinLedger) { l.patches[0].version = 4 },
		"undone by patch 2":             func(l *twinLedger) { l.reported["last1"] = 2 },
		"read 1 is older":               func(l *twinLedger) { l.reads[0].twin.ReportedVersion = 1 },
	} {
		l := good()
		spoil(l)
		require.ErrorContains(t, l.check(), want)
	}
}

// The same in the whole system: a hub that swallows a notification unknown to the ledger, and a
// device that cannot be reached.
func TestTheTwinLedgerNoticesAHubThatLies(t *testing.T) {
	withEachEngine(t, func(t *testing.T, e engine) {
		if !e.twins {
			t.Skip("there are no twins")
		}
		testkit.Bubble(t, func(t *testing.T) {
			p := drawPlan(1, e)
			p.tokenLife = 24 * time.Hour // a renewal by a new connection would deliver the swallowed one
			p.steps = []step{
				{at: time.Second, what: inject, fault: fault.Fault{Kind: fault.SwallowDesired}},
				{at: 2 * time.Second, what: desire, count: 1},
			}
			p.hidden = true
			require.ErrorContains(t, play(t, p).check(), "after all faults, version 2 is desired and the device knows of 1")
		})
		testkit.Bubble(t, func(t *testing.T) { // a swallowed one does not excuse another
			p := drawPlan(1, e)
			p.tokenLife = 24 * time.Hour
			p.steps = []step{
				{at: time.Second, what: inject, fault: fault.Fault{Kind: fault.SwallowDesired}},
				{at: 2 * time.Second, what: desire, count: 2},
				{at: 5 * time.Second, what: inject, fault: fault.Fault{Kind: fault.SlowDesired, Delay: time.Hour}},
				{at: 6 * time.Second, what: desire, count: 1},
			}
			require.ErrorContains(t, play(t, p).check(), "after all faults, version 4 is desired and the device knows of 3")
		})
		testkit.Bubble(t, func(t *testing.T) {
			p := drawPlan(1, e)
			p.steps = []step{{at: time.Second, what: report, count: 3, timeout: time.Minute}}
			w := play(t, p)
			require.NoError(t, w.check())
			require.Len(t, w.twin.applied, 3)
			delete(w.twin.reported, "p2")
			require.ErrorContains(t, w.check(), "patch 2 was acknowledged and is not in the twin")
		})
	})
}

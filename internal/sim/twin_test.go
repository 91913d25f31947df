package sim_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/stretchr/testify/require"
)

// drawTwin adds changes of desired properties, calls of methods, and their faults.
func drawTwin(p *plan, r *rand.Rand) {
	between := durations(r)
	add := func(s step) {
		s.at = between(0, p.length)
		p.steps = append(p.steps, s)
	}
	for range 2 + r.IntN(10) {
		add(step{what: desire, count: 1 + r.IntN(12)}) // more than the client queues
	}
	for range 2 + r.IntN(10) {
		add(step{what: call, count: 1 + r.IntN(4), timeout: between(5*time.Second, time.Minute)})
	}
	kinds := []testbroker.FaultKind{
		testbroker.DropBeforeTwin, testbroker.RefuseTwin, testbroker.DropAfterTwin, testbroker.SwallowTwin, testbroker.SlowTwin, testbroker.DuplicateTwin,
		testbroker.SwallowDesired, testbroker.DuplicateDesired, testbroker.SlowDesired, testbroker.DropAfterDesired,
		testbroker.DropBeforeMethod, testbroker.SwallowMethod, testbroker.SlowMethod, testbroker.DuplicateMethod, testbroker.DropAfterMethod,
		testbroker.DropOnMethodAnswer, testbroker.SwallowMethodAnswer, testbroker.SlowMethodAnswer, testbroker.DropAfterMethodAnswer,
	}
	for range r.IntN(12) {
		add(step{what: inject, fault: testbroker.Fault{Kind: kinds[r.IntN(len(kinds))], After: r.IntN(3), Times: 1 + r.IntN(3), Delay: between(time.Millisecond, 10*time.Second)}})
	}
}

// twinLedger is what a back end wants of the device, and what the device saw and did. Guarded by world.mu.
type twinLedger struct {
	desired int64 // the latest version
	seen    []device.Desired
	calls   map[string]*methodCall
}

// methodCall is a call and what became of it.
type methodCall struct {
	runs   int
	result testbroker.MethodResult
	err    error
}

// watchTwin has the client take part.
func (w *world) watchTwin() error {
	w.twin.desired, w.twin.calls = 1, map[string]*methodCall{}
	return errors.Join(
		w.client.OnDesired(func(_ context.Context, d device.Desired) {
			w.mu.Lock()
			defer w.mu.Unlock()
			d.JSON = bytes.Clone(d.JSON)
			w.twin.seen = append(w.twin.seen, d)
		}),
		w.client.HandleMethod("do", func(_ context.Context, m *device.MethodCall) (int, []byte) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.twin.calls[string(m.Body)].runs++
			return 200, m.Body
		}))
}

// desire changes the desired properties.
func (w *world) desire(n int) {
	for range n {
		w.mu.Lock()
		next := w.twin.desired
		w.mu.Unlock()
		version, err := w.hub.PatchDesired("dev-1", fmt.Sprintf(`{"n": %d}`, next))
		if err != nil {
			w.fail(err)
			return
		}
		w.mu.Lock()
		w.twin.desired = version
		w.mu.Unlock()
	}
}

// invoke calls a method n times, one beside the other.
func (w *world) invoke(n int, patience time.Duration) {
	for range n {
		w.mu.Lock()
		id := strconv.Itoa(len(w.twin.calls) + 1)
		c := &methodCall{}
		w.twin.calls[id] = c
		w.mu.Unlock()
		w.calls.Add(1)
		go func() { // one caller
			defer w.calls.Done()
			result, err := w.hub.CallMethod(context.Background(), "dev-1", testbroker.MethodCall{Name: "do", Payload: []byte(id), ResponseTimeout: patience})
			w.mu.Lock()
			defer w.mu.Unlock()
			c.result, c.err = result, err
		}()
	}
}

// catchUp makes a last change, now that there are no faults, and waits until the device has seen it.
func (w *world) catchUp() {
	w.desire(1)
	for range 600 {
		synctest.Wait()
		w.mu.Lock()
		done := len(w.twin.seen) > 0 && w.twin.seen[len(w.twin.seen)-1].Version == w.twin.desired
		w.mu.Unlock()
		if done {
			return
		}
		time.Sleep(time.Second)
	}
}

// checkTwin is the ledger: each version was told in order and once, the whole is told where some were missed, the last one is known, and it says what was desired; each call ran
// once at most, and one that was answered ran.
func (l *twinLedger) check() error {
	var errs []error
	last := int64(0)
	for i, d := range l.seen {
		switch {
		case i == 0 && !d.Full:
			errs = append(errs, fmt.Errorf("the first change told, to version %d, is not the whole", d.Version))
		case i > 0 && d.Version <= last:
			errs = append(errs, fmt.Errorf("version %d was told after %d", d.Version, last))
		case i > 0 && !d.Full && d.Version != last+1:
			errs = append(errs, fmt.Errorf("the change to version %d was told after version %d: some are missing", d.Version, last))
		}
		last = d.Version
		var said struct{ N int64 }
		if err := json.Unmarshal(d.JSON, &said); err != nil || said.N != d.Version-1 {
			errs = append(errs, fmt.Errorf("version %d was told as %s", d.Version, d.JSON))
		}
	}
	if last != l.desired {
		errs = append(errs, fmt.Errorf("version %d is desired, the device knows of %d", l.desired, last))
	}
	for id, c := range l.calls {
		switch {
		case c.runs > 1:
			errs = append(errs, fmt.Errorf("call %s ran %d times", id, c.runs))
		case c.err == nil && c.runs != 1:
			errs = append(errs, fmt.Errorf("call %s was answered and did not run", id))
		case c.err == nil && (c.result.Status != 200 || string(c.result.Payload) != id):
			errs = append(errs, fmt.Errorf("call %s was answered by %d %s", id, c.result.Status, c.result.Payload))
		}
	}
	return errors.Join(errs...)
}

// A ledger that cannot find a fault proves nothing.
func TestTheTwinLedgerNoticesASabotage(t *testing.T) {
	change := func(version int64, full bool) device.Desired {
		return device.Desired{Version: version, Full: full, JSON: fmt.Appendf(nil, `{"n":%d}`, version-1)}
	}
	good := func() *twinLedger {
		return &twinLedger{
			desired: 6, seen: []device.Desired{change(2, true), change(3, false), change(6, true)},
			calls: map[string]*methodCall{"1": {runs: 1, result: testbroker.MethodResult{Status: 200, Payload: []byte("1")}}, "2": {err: errors.New("lost")}},
		}
	}
	require.NoError(t, good().check())
	for want, spoil := range map[string]func(l *twinLedger){
		"some are missing":              func(l *twinLedger) { l.seen[2].Full = false },
		"told after":                    func(l *twinLedger) { l.seen = slices.Insert(l.seen, 2, change(3, false)) },
		"is not the whole":              func(l *twinLedger) { l.seen[0].Full = false },
		"the device knows of 3":         func(l *twinLedger) { l.seen = l.seen[:2] },
		"was told as":                   func(l *twinLedger) { l.seen[1].JSON = l.seen[0].JSON },
		"call 2 ran 2 times":            func(l *twinLedger) { l.calls["2"].runs = 2 },
		"was answered and did not run":  func(l *twinLedger) { l.calls["1"].runs = 0 },
		"call 1 was answered by 200 \"": func(l *twinLedger) { l.calls["1"].result.Payload = []byte(`"`) },
	} {
		l := good()
		spoil(l)
		require.ErrorContains(t, l.check(), want)
	}
}

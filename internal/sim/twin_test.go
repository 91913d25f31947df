package sim_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing/synctest"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// drawTwin adds the actions of a back end on a device's twin and methods, the application's actions
// on its twin, and their faults.
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
		s := step{what: call, count: 1 + r.IntN(4), timeout: between(5*time.Second, time.Minute)}
		if r.IntN(3) == 0 {
			s.connect = between(time.Second, 30*time.Second)
		}
		add(s)
	}
	for range 1 + r.IntN(6) {
		add(step{what: report, count: 1 + r.IntN(10), timeout: between(time.Second, 6*time.Minute)})
	}
	for range 1 + r.IntN(5) {
		// more than the client has in flight
		add(step{what: read, count: 1 + r.IntN(20), timeout: between(time.Second, 6*time.Minute)})
	}
	kinds := []fault.Kind{
		fault.DropBeforeTwin, fault.RefuseTwin, fault.DropAfterTwin, fault.SwallowTwin,
		fault.SlowTwin, fault.MisnameTwin, fault.DuplicateTwin,
		fault.SwallowDesired, fault.DuplicateDesired, fault.SlowDesired, fault.DropAfterDesired,
		fault.DropBeforeMethod, fault.SwallowMethod, fault.SlowMethod, fault.DuplicateMethod,
		fault.DropAfterMethod, fault.MisnameMethod, fault.RefuseMethod,
		fault.DropOnMethodAnswer, fault.SwallowMethodAnswer, fault.SlowMethodAnswer,
		fault.DropAfterMethodAnswer,
	}
	for range r.IntN(12) {
		f := fault.Fault{Kind: kinds[r.IntN(len(kinds))], After: r.IntN(3), Times: 1 + r.IntN(3),
			Delay: between(time.Millisecond, 10*time.Second)}
		if f.Kind == fault.RefuseTwin {
			f.Status = []int{0, 429, 500, 503, 400}[r.IntN(5)]
			f.RetryAfter = []time.Duration{0, 3 * time.Second}[r.IntN(2)]
		}
		add(step{what: inject, fault: f})
	}
	for range r.IntN(3) { // events while the device is disconnected
		at, away := between(0, p.length), between(2*time.Second, 40*time.Second)
		p.steps = append(p.steps,
			step{at: at, what: inject, fault: fault.Fault{Kind: fault.Absent, For: away}},
			step{at: at + between(0, away), what: desire, count: 1 + r.IntN(3)},
			step{at: at + between(0, away), what: call, count: 1, timeout: between(time.Second, time.Minute),
				connect: between(0, time.Minute)},
			step{at: at + between(0, away), what: report, count: 2, timeout: between(time.Second, 6*time.Minute)},
		)
	}
	if p.engine.protocol == hubdata.AMQP {
		drawTwinLinks(p, r)
	}
}

// drawTwinLinks adds faults of the links for twin and methods.
func drawTwinLinks(p *plan, r *rand.Rand) {
	between := durations(r)
	links := []fault.LinkKind{fault.LinkTwinSender, fault.LinkTwinReceiver, fault.LinkMethodSender,
		fault.LinkMethodReceiver}
	kinds := []fault.Kind{
		fault.RefuseAttach, fault.SlowAttach, fault.SwallowAttach, fault.DropOnAttach,
		fault.WithholdCredit, fault.DetachWhileIdle,
	}
	conditions := []string{"", "amqp:internal-error", "amqp:link:detach-forced",
		"com.microsoft:device-container-throttled"}
	for range r.IntN(8) {
		s := step{at: between(0, p.length), what: inject, fault: fault.Fault{
			Kind: kinds[r.IntN(len(kinds))], Link: links[r.IntN(len(links))], Condition: conditions[r.IntN(len(conditions))],
			Unclosed: r.IntN(5) == 0,
			After:    r.IntN(2), Times: 1 + r.IntN(2), Delay: between(time.Millisecond, 20*time.Second),
		}}
		if r.IntN(3) == 0 {
			s.what = detach
		}
		p.steps = append(p.steps, s)
	}
}

// watchTwin registers the client's handlers for desired properties and methods.
func (w *world) watchTwin() error {
	w.twin.calls = map[string]*methodCall{}
	w.twin.wanted(1, "{}", true)
	w.client.HandleDesired(func(_ context.Context, d device.Desired) {
		w.mu.Lock()
		defer w.mu.Unlock()
		d.JSON = bytes.Clone(d.JSON)
		w.twin.seen = append(w.twin.seen, d)
	})
	return w.client.HandleMethod("do", w.run)
}

// panics reports whether the method panics in the nth call.
func panics(n int) bool { return n%5 == 0 }

// run is the application's method: it is sometimes slow, or panics.
func (w *world) run(ctx context.Context, m *device.MethodCall) (int, []byte) {
	n, err := strconv.Atoi(string(m.Body))
	if err != nil {
		w.fail(err)
		return 400, nil
	}
	w.mu.Lock()
	w.twin.calls[string(m.Body)].runs++
	w.mu.Unlock()
	switch {
	case panics(n):
		panic("a bug of the application")
	case n%7 == 0:
		select {
		case <-time.After(4 * time.Second):
		case <-ctx.Done():
		}
	}
	return 200, m.Body
}

// desire changes the desired properties: it sets some, removes some, and sometimes replaces all.
func (w *world) desire(n int) {
	for range n {
		w.mu.Lock()
		next := w.twin.desired
		w.mu.Unlock()
		text, replace := fmt.Sprintf(`{"n": %d, "k%d": %[1]d}`, next, next%5), false
		switch next % 7 {
		case 3:
			text = fmt.Sprintf(`{"n": %d, "k%d": null}`, next, next%5)
		case 5:
			text, replace = fmt.Sprintf(`{"n": %d, "k1": %[1]d}`, next), true
		}
		change := w.hub.PatchDesired
		if replace {
			change = w.hub.SetDesired
		}
		before, connections := w.swallowed(), w.client.Stats().Connections
		version, err := change("dev-1", text)
		if err != nil {
			w.fail(err)
			return
		}
		w.mu.Lock()
		w.twin.wanted(version, text, replace)
		w.twin.hushedBefore, w.twin.changedIn = before, connections
		w.mu.Unlock()
	}
}

// swallowed returns the number of notifications that the hub swallowed.
func (w *world) swallowed() (n int) {
	for _, f := range w.swallows {
		n += f.Fired()
	}
	return n
}

// invoke makes concurrent calls of a method.
func (w *world) invoke(s *step) {
	for range s.count {
		w.mu.Lock()
		id := strconv.Itoa(len(w.twin.calls) + 1)
		c := &methodCall{}
		w.twin.calls[id] = c
		w.mu.Unlock()
		w.calls.Add(1)
		go func() { // one caller
			defer w.calls.Done()
			result, err := w.hub.CallMethod(context.Background(), "dev-1", hubdata.MethodCall{
				Name: "do", Payload: []byte(id), ResponseTimeout: s.timeout, ConnectTimeout: s.connect,
			})
			w.mu.Lock()
			defer w.mu.Unlock()
			c.result, c.err = result, err
		}()
	}
}

// asking makes a twin call and records its result and circumstances.
func (w *world) asking(s *step, call func(ctx context.Context) error) twinAsk {
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	down := func() (bool, int64) { return w.client.Status().State == device.StateDisconnected, w.downs.Load() }
	w.mu.Lock()
	a := twinAsk{limit: min(s.timeout, 4*time.Minute), desired: w.twin.desired, reported: w.twin.reportedVersion}
	w.mu.Unlock()
	before, downs := down()
	begin := time.Now()
	a.err = call(ctx)
	a.took = time.Since(begin)
	after, now := down()
	a.down = before || after || downs != now
	a.ended = true
	return a
}

// report patches the reported properties. Each third patch is for an expected version.
func (w *world) report(s *step) {
	w.mu.Lock()
	w.producers++
	producer := w.producers
	var patches []*twinPatch
	for range s.count {
		k := &twinPatch{n: len(w.twin.patches) + 1, producer: producer}
		w.twin.patches = append(w.twin.patches, k)
		patches = append(patches, k)
	}
	w.mu.Unlock()
	w.calls.Add(1)
	go func() { // one caller
		defer w.calls.Done()
		for i, k := range patches {
			body := fmt.Appendf(nil, `{"p%d": %d, "last%d": %d}`, k.n, k.n, k.producer, k.n)
			var version int64
			if i%3 == 2 {
				k.expected = max(patches[i-1].version, 1)
			}
			ask := w.asking(s, func(ctx context.Context) (err error) {
				if k.expected != 0 {
					version, err = w.client.PatchReportedIf(ctx, body, k.expected)
				} else {
					version, err = w.client.PatchReported(ctx, body)
				}
				return err
			})
			w.mu.Lock()
			k.twinAsk, k.version = ask, version
			w.twin.reportedVersion = max(w.twin.reportedVersion, version)
			w.mu.Unlock()
		}
	}()
}

// read reads the twin.
func (w *world) read(s *step) {
	for range s.count {
		k := &twinRead{}
		w.mu.Lock()
		w.twin.reads = append(w.twin.reads, k)
		w.mu.Unlock()
		w.calls.Add(1)
		go func() { // one caller
			defer w.calls.Done()
			ask := w.asking(s, func(ctx context.Context) (err error) {
				k.twin, err = w.client.GetTwin(ctx)
				return err
			})
			w.mu.Lock()
			k.twinAsk = ask
			w.mu.Unlock()
		}()
	}
}

// catchUp runs after the last fault. It waits until the device knows the latest change, then one
// more change, and then, on a new connection, all properties.
func (w *world) catchUp() {
	if w.blind() {
		w.event("version %d cannot be known", w.twin.desired)
	} else {
		w.untilTold()
	}
	w.desire(1)
	w.untilTold()
	_ = w.client.Reconnect()
	w.until("the device is not told all properties", w.twin.whole)
}

// blind reports whether the device cannot know the latest change: the hub swallowed its
// notification, and there was no new connection since, on which the client would read the twin.
func (w *world) blind() bool {
	connections := w.client.Stats().Connections
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.p.hidden && w.swallowed() > w.twin.hushedBefore && w.twin.changedIn == connections
}

// untilTold waits until the handler has received the latest change.
func (w *world) untilTold() {
	w.until("the device does not know of the latest change", func() bool { return w.twin.told() == w.twin.desired })
}

// until waits for ok.
func (w *world) until(what string, ok func() bool) {
	for range 900 {
		synctest.Wait()
		w.mu.Lock()
		done := ok()
		w.mu.Unlock()
		if done {
			return
		}
		time.Sleep(time.Second)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.errs = append(w.errs, fmt.Errorf("a quarter of an hour after all faults, version %d is desired and the device "+
		"knows of %d: %s", w.twin.desired, w.twin.told(), what))
}

// takeTwin reads the hub's data for the comparison with the ledger.
func (w *world) takeTwin() {
	now, err := w.hub.Twin("dev-1")
	if err != nil {
		w.fail(err)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := json.Unmarshal(now.Reported, &w.twin.reported); err != nil {
		w.errs = append(w.errs, err)
	}
	w.twin.applied = map[int]int{}
	for _, r := range w.hub.TwinLog("dev-1") {
		if r.Operation == hubdata.TwinPatch && r.Status == 204 {
			w.twin.applied[patchNumber(r.Body)]++
		}
	}
}

// patchNumber returns the number that report gave a patch.
func patchNumber(body []byte) int {
	n := 0
	if _, err := fmt.Sscanf(string(body), `{"p%d"`, &n); err != nil {
		panic(err) // only report patches
	}
	return n
}

package sim_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing/synctest"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
)

// callOps are the operations on twin and methods.
func callOps() []op {
	return []op{
		{"get", needs(atTwin), askOp(getTwin), false},
		{"patch", needs(atTwin), askOp(patchTwin), false},
		{"patch if", needs(atTwin), askOp(patchTwinIf), false},
		{"throttled", needs(atTwin), throttledOp, true},
		{"desired", needs(atTwin, atDesired), desiredOp, true}, // a connection lost twice in a row is reported once
		{"desired off", needs(atTwin, atWatch, atTwinLink), desiredAwayOp, true},
		{"method", needs(atMethod), methodOp(answers), false},
		{"panic", needs(atMethod), methodOp(breaks), false},
		{"method race", needs(atMethod, atMethodLink), raceOp, true},
	}
}

// needs: faults of some classes, and faults of connections. A quota stops the sender, too.
func needs(classes ...class) func(e engine, r row) bool {
	return func(e engine, r row) bool {
		return e.twins && (slices.Contains(classes, r.class) || receives(e, r))
	}
}

// callRows are the faults of twin and methods that all protocols share.
func callRows() []row {
	type F = fault.Fault
	const slow = 3 * time.Second
	return []row{
		{name: "DropBeforeTwin", fault: F{Kind: fault.DropBeforeTwin}, class: atTwin, kinds: kinds(network)},
		{name: "RefuseTwin 400", fault: F{Kind: fault.RefuseTwin, Status: 400}, class: atTwin,
			refused: kinds(transport.Invalid)},
		{name: "RefuseTwin 404", fault: F{Kind: fault.RefuseTwin, Status: 404}, class: atTwin, refused: kinds(notFound)},
		{name: "RefuseTwin 429", fault: F{Kind: fault.RefuseTwin}, class: atTwin},
		{name: "RefuseTwin 429, retry after", fault: F{Kind: fault.RefuseTwin, RetryAfter: 15 * time.Second},
			class: atTwin},
		{name: "RefuseTwin 503", fault: F{Kind: fault.RefuseTwin, Status: 503, Times: 3}, class: atTwin},
		{name: "DropAfterTwin", fault: F{Kind: fault.DropAfterTwin}, class: atTwin, kinds: kinds(network)},
		{name: "SwallowTwin", fault: F{Kind: fault.SwallowTwin}, class: atTwin},
		{name: "SlowTwin", fault: F{Kind: fault.SlowTwin, Delay: slow}, class: atTwin},
		{name: "MisnameTwin", fault: F{Kind: fault.MisnameTwin}, class: atTwin},
		{name: "DuplicateTwin", fault: F{Kind: fault.DuplicateTwin}, class: atTwin},
		{name: "GarbleTwin", fault: F{Kind: fault.GarbleTwin}, class: atTwin, refused: kinds(protocol)},

		{name: "SwallowDesired", fault: F{Kind: fault.SwallowDesired}, class: atDesired, unsaid: true},
		{name: "DuplicateDesired", fault: F{Kind: fault.DuplicateDesired}, class: atDesired},
		{name: "SlowDesired", fault: F{Kind: fault.SlowDesired, Delay: slow}, class: atDesired},
		{name: "DropAfterDesired", fault: F{Kind: fault.DropAfterDesired}, class: atDesired, kinds: kinds(network)},

		{name: "DropBeforeMethod", fault: F{Kind: fault.DropBeforeMethod}, class: atMethod, kinds: kinds(network),
			uncalled: true},
		{name: "SwallowMethod", fault: F{Kind: fault.SwallowMethod}, class: atMethod, uncalled: true},
		{name: "SlowMethod", fault: F{Kind: fault.SlowMethod, Delay: slow}, class: atMethod},
		{name: "DuplicateMethod", fault: F{Kind: fault.DuplicateMethod}, class: atMethod},
		{name: "GarbleMethod", fault: F{Kind: fault.GarbleMethod}, class: atMethod, uncalled: true},
		{name: "DropAfterMethod", fault: F{Kind: fault.DropAfterMethod}, class: atMethod, kinds: kinds(network),
			uncalled: true},
		{name: "MisnameMethod", fault: F{Kind: fault.MisnameMethod}, class: atMethod, uncalled: true},
		{name: "RefuseMethod", fault: F{Kind: fault.RefuseMethod}, class: atMethod, uncalled: true},
		{name: "DropOnMethodAnswer", fault: F{Kind: fault.DropOnMethodAnswer}, class: atMethod, kinds: kinds(network),
			uncalled: true},
		{name: "SwallowMethodAnswer", fault: F{Kind: fault.SwallowMethodAnswer}, class: atMethod, uncalled: true},
		{name: "SlowMethodAnswer", fault: F{Kind: fault.SlowMethodAnswer, Delay: slow}, class: atMethod},
		// the next call may fail
		{name: "DropAfterMethodAnswer", fault: F{Kind: fault.DropAfterMethodAnswer}, class: atMethod,
			kinds: kinds(network), uncalled: true},
	}
}

// watchRows are faults of the subscription to changes, which is a request over AMQP and part of
// connecting.
func watchRows() []row {
	type F = fault.Fault
	const subscribe = hubdata.TwinSubscribe
	return []row{
		{name: "DropBeforeTwin, subscribe", fault: F{Kind: fault.DropBeforeTwin, Operation: subscribe}, class: atWatch,
			kinds: kinds(network)},
		{name: "RefuseTwin 400, subscribe", fault: F{Kind: fault.RefuseTwin, Operation: subscribe, Status: 400},
			class: atWatch, kinds: kinds(transport.Invalid), terminal: true},
		{name: "RefuseTwin 429, subscribe", fault: F{Kind: fault.RefuseTwin, Operation: subscribe}, class: atWatch,
			kinds: kinds(throttled)},
		{name: "RefuseTwin 503, subscribe", fault: F{Kind: fault.RefuseTwin, Operation: subscribe, Status: 503},
			class: atWatch, kinds: kinds(unavailable)},
		{name: "DropAfterTwin, subscribe", fault: F{Kind: fault.DropAfterTwin, Operation: subscribe}, class: atWatch,
			kinds: kinds(network)},
		{name: "SwallowTwin, subscribe", fault: F{Kind: fault.SwallowTwin, Operation: subscribe}, class: atWatch,
			kinds: kinds(timeout)},
		{name: "SlowTwin, subscribe", fault: F{Kind: fault.SlowTwin, Operation: subscribe, Delay: 3 * time.Second},
			class: atWatch},
		{name: "MisnameTwin, subscribe", fault: F{Kind: fault.MisnameTwin, Operation: subscribe}, class: atWatch,
			kinds: kinds(timeout)},
		{name: "DuplicateTwin, subscribe", fault: F{Kind: fault.DuplicateTwin, Operation: subscribe}, class: atWatch},
		{name: "GarbleTwin, subscribe", fault: F{Kind: fault.GarbleTwin, Operation: subscribe}, class: atWatch},
	}
}

// calling is the state of a party's twin and methods. Guarded by party.mu.
type calling struct {
	on      bool
	patches int
	told    []device.Desired
	desired int64 // the latest version
	called  int
	ran     map[string]int // runs per call
	hold    chan struct{}  // the method waits for it
}

// listens makes the client watch its desired properties.
func (p *party) listens() {
	p.calling.on, p.calling.desired = true, 1
	p.client.HandleDesired(func(_ context.Context, d device.Desired) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.calling.told = append(p.calling.told, d)
	})
}

// The methods of a party, by behaviour.
const (
	answers = "answers"
	breaks  = "breaks"
	waits   = "waits"
)

// obeys registers the methods of the client.
func (p *party) obeys() error {
	p.calling.on, p.calling.ran, p.calling.hold = true, map[string]int{}, make(chan struct{})
	return p.client.HandleMethod("", func(ctx context.Context, m *device.MethodCall) (int, []byte) {
		p.mu.Lock()
		p.calling.ran[string(m.Body)]++
		p.mu.Unlock()
		switch m.Name {
		case breaks:
			panic("a bug of the application")
		case waits:
			select {
			case <-p.calling.hold:
			case <-ctx.Done():
			}
		}
		return 200, m.Body
	})
}

// change changes the desired properties.
func (p *party) change() error {
	version, err := p.hub.PatchDesired(p.id, fmt.Sprintf(`{"n": %d}`, p.calling.desired))
	p.calling.desired = version
	return err
}

// told waits until the handler has received the latest change: each change once and in order,
// except that the full properties follow changes. If the row loses notifications (unsaid), it makes
// another change.
func (p *party) told() error {
	looks := 0
	err := p.until(5*time.Minute, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		n := len(p.calling.told)
		return n > 0 && p.calling.told[n-1].Version == p.calling.desired
	}, func() {
		if p.client.Status().State == device.StateDisconnected {
			_ = p.client.Start()
		}
		if looks++; p.row.unsaid && looks%600 == 0 { // every minute
			_ = p.change()
		}
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	last, full := int64(0), true
	for i, d := range p.calling.told {
		if d.Version < last || d.Version == last && (!d.Full || full) || !d.Full && (i == 0 || d.Version != last+1) {
			return fmt.Errorf("version %d was told after %d", d.Version, last)
		}
		last, full = d.Version, d.Full
	}
	if err != nil {
		return fmt.Errorf("version %d is desired, the device knows of %d: %w", p.calling.desired, last, err)
	}
	return nil
}

// calls calls a method and expects at most one run, and exactly one if the call is answered
// normally.
func (p *party) calls(method string) error {
	p.mu.Lock()
	p.calling.called++
	id := strconv.Itoa(p.calling.called)
	p.mu.Unlock()
	result, err := p.hub.CallMethod(context.Background(), p.id, hubdata.MethodCall{
		Name: method, Payload: []byte(id), ResponseTimeout: 20 * time.Second, ConnectTimeout: 30 * time.Second,
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	good := result.Status == 200 && string(result.Payload) == id
	if method == breaks {
		good = result.Status == 500
	}
	switch ran := p.calling.ran[id]; {
	case ran == 0 && err == nil && p.row.fault.Kind == fault.GarbleMethod:
		return errors.New("what ran had another body")
	case ran > 1, err == nil && ran != 1:
		return errUndue{fmt.Errorf("call %s ran %d times", id, ran)}
	case err == nil && !good:
		return errUndue{fmt.Errorf("call %s was answered by %d %s", id, result.Status, result.Payload)}
	}
	return err
}

// errUndue is an error that no fault excuses.
type errUndue struct{ error }

// called repeats a call until it is answered. Only failures that the row allows, or a lost
// connection, are accepted.
func (p *party) called(method string) error {
	for range 20 {
		err := p.calls(method)
		undue := errUndue{}
		switch {
		case err == nil:
			return nil
		case errors.As(err, &undue):
			return err
		case p.row.calls() && !p.row.uncalled:
			return fmt.Errorf("the call failed: %w", err)
		}
		if p.client.Status().State == device.StateDisconnected {
			_ = p.client.Start()
		}
	}
	return errors.New("no call was answered")
}

// twinCall is an operation on the twin of p. The row says how it may end.
type twinCall func(ctx context.Context, p *party) error

func getTwin(ctx context.Context, p *party) error {
	_, err := p.client.GetTwin(ctx)
	return err
}

func patchTwin(ctx context.Context, p *party) error { return p.patch(ctx, false) }

func patchTwinIf(ctx context.Context, p *party) error {
	for range 5 { // retry only if the outcome is known
		err := p.patch(ctx, true)
		if !errors.Is(err, transport.ErrOutcomeUnknown) || !slices.Contains(kinds(network, timeout, unavailable),
			transport.KindOf(err)) {
			return err
		}
	}
	return errors.New("the outcome of each patch is unknown")
}

// patch patches the reported properties and compares with the hub: an acknowledged patch is there,
// a failed one is not, unless its outcome is unknown.
func (p *party) patch(ctx context.Context, conditional bool) error {
	before, err := p.hub.Twin(p.id)
	if err != nil {
		return err
	}
	p.calling.patches++
	body := fmt.Appendf(nil, `{"n": %d}`, p.calling.patches)
	version := int64(0)
	if conditional {
		version, err = p.client.PatchReportedIf(ctx, body, before.ReportedVersion)
	} else {
		version, err = p.client.PatchReported(ctx, body)
	}
	now, twinErr := p.hub.Twin(p.id)
	taken := now.ReportedVersion - before.ReportedVersion
	has := string(now.Reported) == fmt.Sprintf(`{"n":%d}`, p.calling.patches)
	switch {
	case twinErr != nil:
		return twinErr
	case err == nil && (!has || version != now.ReportedVersion):
		return errUndue{fmt.Errorf("patch %d, to version %d, was acknowledged; the hub has version %d, %s", p.calling.patches,
			version, now.ReportedVersion, now.Reported)}
	case conditional && taken > 1:
		return errUndue{fmt.Errorf("the patch was taken %d times", taken)}
	case err != nil && taken > 0 && !errors.Is(err, transport.ErrOutcomeUnknown):
		return errUndue{fmt.Errorf("the patch was taken and is said to have failed: %w", err)}
	}
	return err
}

// asks repeats a twin call until it succeeds. It may fail as the row promises, or because the
// client gives up.
func (p *party) asks(call twinCall) error {
	for range 10 {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		err := call(ctx, p)
		cancel()
		kind := transport.KindOf(err)
		switch {
		case err == nil:
			return nil
		case slices.Contains(p.row.refused, kind):
		case p.row.terminal && slices.Contains(p.row.kinds, kind):
			if err := p.reconnected(); err != nil {
				return err
			}
		default:
			return err
		}
	}
	return errors.New("no call succeeded")
}

// callsWork checks that twin and methods work without a fault.
func (p *party) callsWork() error {
	p.row = row{}
	if err := errors.Join(p.asks(getTwin), p.asks(patchTwin), p.asks(patchTwinIf)); err != nil {
		return err
	}
	if p.calling.desired > 0 {
		if err := errors.Join(p.change(), p.told()); err != nil {
			return err
		}
	}
	if p.calling.ran != nil {
		return errors.Join(p.called(answers), p.called(breaks))
	}
	return nil
}

// askOp makes a twin call three times.
func askOp(call twinCall) func(e *env, r row) error {
	return func(e *env, r row) error {
		e.dev.calling.on = true
		if err := errors.Join(e.dev.reconnected(), e.dev.asks(getTwin)); err != nil {
			return err
		}
		e.inject(r)
		e.provoke(r)
		e.lull(r)
		for range 3 {
			if err := e.dev.asks(call); err != nil {
				return err
			}
		}
		return e.happened()
	}
}

// lull cuts the connection if the status would not report the fault otherwise.
func (e *env) lull(r row) {
	if r.fault.Kind == fault.Throttle {
		e.drop()
	}
}

// throttledOp patches while the hub throttles: the calls wait, and none of them retries in a tight
// loop.
func throttledOp(e *env, r row) error {
	e.dev.calling.on = true
	if err := errors.Join(e.dev.reconnected(), e.dev.asks(getTwin)); err != nil {
		return err
	}
	before := len(e.hub.TwinLog(e.dev.id))
	throttle := e.hub.Inject(fault.Fault{Kind: fault.RefuseTwin, Status: 429, Times: 3})
	defer throttle.Remove()
	e.inject(r)
	e.provoke(r)
	e.lull(r)
	for range 4 {
		if err := e.dev.asks(patchTwin); err != nil {
			return err
		}
	}
	if n := len(e.hub.TwinLog(e.dev.id)) - before; n > 4+3+4 { // those of the row, at most 3, and a lost one
		return fmt.Errorf("%d requests for 4 patches, 3 of them throttled", n)
	}
	return e.happened()
}

// desiredOp changes the desired properties of a device that watches them.
func desiredOp(e *env, r row) error {
	e.dev.listens()
	if err := errors.Join(e.dev.reconnected(), e.dev.told()); err != nil {
		return err
	}
	e.inject(r)
	e.provoke(r)
	e.lull(r)
	if r.class == atTwin { // a missed change makes the client read the twin
		swallow := e.hub.Inject(fault.Fault{Kind: fault.SwallowDesired})
		defer swallow.Remove()
	}
	for range 3 {
		if err := e.dev.change(); err != nil {
			return err
		}
	}
	return errors.Join(e.dev.told(), e.happened())
}

// desiredAwayOp changes the desired properties while the device is disconnected; the fault comes
// with the reconnect.
func desiredAwayOp(e *env, r row) error {
	e.dev.listens()
	if err := errors.Join(e.dev.reconnected(), e.dev.told()); err != nil {
		return err
	}
	if r.class == atTwin { // excludes the subscription, which is a twin request over AMQP
		r.fault.Operation = hubdata.TwinGet
	}
	e.inject(r)
	e.drop()
	for range 3 {
		if err := e.dev.change(); err != nil {
			return err
		}
	}
	return errors.Join(e.dev.told(), e.happened())
}

// methodOp calls a method three times.
func methodOp(method string) func(e *env, r row) error {
	return func(e *env, r row) error {
		if err := errors.Join(e.dev.obeys(), e.dev.reconnected()); err != nil {
			return err
		}
		e.inject(r)
		e.provoke(r)
		e.lull(r)
		for range 3 {
			if err := e.dev.called(method); err != nil {
				return err
			}
		}
		return e.happened()
	}
}

// raceOp loses the connection while methods run: they end, their answers are not sent on another
// connection, and no call runs twice.
func raceOp(e *env, r row) error {
	if err := errors.Join(e.dev.obeys(), e.dev.reconnected()); err != nil {
		return err
	}
	results := make(chan error, 3)
	for range cap(results) {
		go func() { results <- e.dev.calls(waits) }() // ends with the hub's time-out
	}
	synctest.Wait()
	e.inject(r)
	e.drop()
	close(e.dev.calling.hold)
	for range cap(results) {
		err := <-results
		undue := errUndue{}
		switch {
		case errors.As(err, &undue):
			return err
		case err == nil && !e.with.next: // answers outlive the connection there
			return errors.New("a call was answered whose connection was gone")
		}
	}
	if err := e.dev.called(answers); err != nil {
		return err
	}
	for _, a := range e.hub.MethodAnswers(e.dev.id) {
		if a.Fate == hubdata.AnswerElsewhere || a.Fate == hubdata.AnswerUnknown &&
			r.fault.Kind != fault.MisnameMethod {
			return fmt.Errorf("an answer is %v", a.Fate)
		}
	}
	return e.happened()
}

package sim_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/bounded"
	"github.com/hubline-iot/hubline/internal/faketime"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
)

// class says which operations a fault can meet, and how it is brought about there.
type class uint8

const (
	atConnect class = iota // needs a connect
	atToken                // needs a token that is put, which each connect of a device brings
	// needs a subscription, or a link for cloud-to-device messages, which each connect of a device
	// brings
	atSubscribe
	atLink    // needs a link for telemetry, which the first message brings
	atPublish // needs a telemetry message
	atSettle  // needs a verdict on a cloud-to-device message
	atPing    // needs a ping
	always    // a state of hub or network
	// needs a request about the twin, which a device that watches its desired properties brings with
	// each connect
	atTwin
	// needs the wish to be told of changes, which each connect of a device that watches brings over
	// AMQP
	atWatch
	atTwinLink   // needs a link for the twin, which each connect of a device that watches brings over AMQP
	atMethodLink // needs a link for methods, which each connect of a device with a method brings over AMQP
	atDesired    // needs a change of desired properties
	atMethod     // needs a call of a method
)

// row is a fault and what the device promises about it.
type row struct {
	name  string
	fault testbroker.Fault
	class class
	// kinds are those of the failures that the status may tell because of it; empty: it must not be
	// noticed at all.
	kinds []transport.Kind
	// terminal: the client gives up, and connects when it is opened again.
	terminal bool
	// perhaps: it depends on the moment whether the status tells.
	perhaps bool
	// refused are the kinds with which a message, or a call about the twin, may fail because of it;
	// the others succeed.
	refused []transport.Kind
	// unsaid: a change of desired properties is not told before the next one.
	unsaid bool
	// uncalled: a call of a method may fail because of it.
	uncalled bool
	// alone: a fault of one device, or one that can be declared for one. Others on the same connection
	// do not notice.
	alone bool
}

const (
	network      = transport.Network
	timeout      = transport.Timeout
	unavailable  = transport.Unavailable
	throttled    = transport.Throttled
	quota        = transport.Quota
	unauthorized = transport.Unauthorized
	notFound     = transport.NotFound
	protocol     = transport.Protocol
)

func kinds(k ...transport.Kind) []transport.Kind { return k }

// reconnects: it happens while a device connects.
func (r row) reconnects() bool {
	return r.class == atConnect || r.class == atToken || r.class == atSubscribe
}

// calls: it happens to what the twin and methods need.
func (r row) calls() bool { return r.class >= atTwin }

// op is an operation, with the fault coming in its middle.
type op struct {
	name string
	// meets says which faults can come in the middle of it.
	meets func(e engine, r row) bool
	run   func(e *env, r row) error
	// unnoticed: the fault may come too late for the status to tell.
	unnoticed bool
}

// A matrix is every fault of the hub over one protocol, and every operation. A protocol is added as
// another.
type matrix struct {
	protocol testbroker.Protocol
	engines  []string // all of the protocol if nil
	rows     []row
	ops      []op
	// rowless are kinds of faults that have no row, and why.
	rowless map[testbroker.FaultKind]string
}

var matrices = []matrix{mqttMatrix, amqpMatrix, httpMatrix}

// From noOperation on there are faults for which no matrix has operations yet. Who adds those moves
// it.
const noOperation = testbroker.DropAfterMethodAnswer + 1

// TestMatrix plays every fault of the hub in the middle of every operation that it can meet. A cell
// is red when the fault did not happen there or the promise was not kept. go test -run TestMatrix
// -v ./internal/sim -all prints the tables.
func TestMatrix(t *testing.T) {
	for _, m := range matrices {
		for _, e := range engines {
			if e.protocol == m.protocol && (m.engines == nil || slices.Contains(m.engines, e.name)) {
				t.Run(e.name, func(t *testing.T) {
					e.skipVariant(t)
					m.play(t, e)
				})
			}
		}
	}
}

// Each kind of fault that the hub has over a protocol has a row there.
func TestMatrixIsComplete(t *testing.T) {
	for _, m := range matrices {
		covered := map[testbroker.FaultKind]bool{}
		for _, r := range m.rows {
			covered[r.fault.Kind] = true
			if r.fault.Kind.Protocols()&m.protocol == 0 {
				t.Errorf("%v: %v does not happen there", m.protocol, r.fault.Kind)
			}
		}
		for k := range noOperation {
			if k.Protocols()&m.protocol != 0 && !covered[k] && m.rowless[k] == "" {
				t.Errorf("%v: the hub's fault %v has no row", m.protocol, k)
			}
		}
	}
	for _, e := range engines {
		if !slices.ContainsFunc(matrices, func(m matrix) bool { return m.protocol == e.protocol }) {
			t.Errorf("%s speaks %v, which has no matrix", e.name, e.protocol)
		}
	}
}

func (m *matrix) play(t *testing.T, with engine) {
	cells := make(map[[2]string]string)
	for _, r := range m.rows {
		for _, o := range m.ops {
			key := [2]string{r.name, o.name}
			if cells[key] != "" {
				t.Fatalf("two rows are called %s", r.name)
			}
			if !with.meets(r) || !o.meets(with, r) {
				cells[key] = "-"
				continue
			}
			t.Run(o.name+"/"+r.name, func(t *testing.T) {
				cells[key] = "RED"
				bounded.Test(t, func(t *testing.T) {
					if err := cell(t, with, o, r); err != nil {
						t.Error(err)
						return
					}
					cells[key] = "ok"
				})
			})
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n%-62s", "")
	for _, o := range m.ops {
		fmt.Fprintf(&b, "%-12s", o.name)
	}
	for _, r := range m.rows {
		fmt.Fprintf(&b, "\n%-62s", r.name)
		for _, o := range m.ops {
			fmt.Fprintf(&b, "%-12s", cells[[2]string{r.name, o.name}])
		}
	}
	t.Log(b.String())
}

// meets says whether the fault can happen to the engine at all.
func (e engine) meets(r row) bool {
	switch {
	case r.fault.Kind == testbroker.RefuseSASL:
		return e.sasl
	case r.class == atToken || r.fault.Link == testbroker.LinkCBSSender || r.fault.Link == testbroker.LinkCBSReceiver:
		return !e.sasl
	}
	return true
}

// cell plays one. When the operation is over and the fault is, everything works.
func cell(t *testing.T, with engine, o op, r row) error {
	faketime.Start()
	e := newEnv(t, with)
	e.row = r
	err := o.run(e, r)
	fired := e.in != nil && e.in.Fired() > 0
	if err == nil && e.dev.client.Status().Reason != device.ClientClosed {
		e.in.Remove()
		synctest.Wait() // what is on its way arrives
		err = e.dev.works()
	}
	if closeErr := e.close(); err == nil {
		err = closeErr
	}
	synctest.Wait()
	switch {
	case err != nil:
		return err
	case !fired:
		return errors.New("the fault did not happen")
	}
	// go-amqp may give the handle of a link that was refused to another one that attaches at the same
	// time before it has detached the first. The hub ends the session of AMQP for it, which is begun
	// anew with both links, and nobody hears of the refusal.
	lost := r.fault.Kind == testbroker.RefuseAttach && e.dev.calling.on
	return e.dev.promised(r, o.unnoticed || lost)
}

// openOp opens the client for the first time.
func openOp(e *env, r row) error {
	e.inject(r)
	if err := e.dev.reconnected(); err != nil {
		return err
	}
	return e.happened()
}

// sendOp sends n messages.
func sendOp(n int) func(e *env, r row) error {
	return func(e *env, r row) error {
		if err := e.dev.reconnected(); err != nil {
			return err
		}
		e.inject(r)
		e.provoke(r)
		e.dev.publish(n)
		if err := e.dev.flushed(); err != nil {
			return err
		}
		return e.happened()
	}
}

// receiveOp receives cloud-to-device messages, to which the handler does something.
func receiveOp(outcome transport.Outcome) func(e *env, r row) error {
	return func(e *env, r row) error {
		e.dev.outcome = outcome // nobody reads it yet
		if err := e.dev.reconnected(); err != nil {
			return err
		}
		e.inject(r)
		e.provoke(r)
		if r.fault.Kind == testbroker.Throttle {
			e.drop()
		}
		if err := e.dev.message(5); err != nil {
			return err
		}
		if err := e.dev.received(outcome); err != nil {
			return err
		}
		return e.happened()
	}
}

// renewOp goes through the end of a token's life, with the fault coming just before the renewal is
// due, after 80 to 85 % of the token's 10 minutes.
func renewOp(e *env, r row) error {
	if err := e.dev.reconnected(); err != nil {
		return err
	}
	e.dev.publish(1)
	if err := e.dev.flushed(); err != nil {
		return err
	}
	time.Sleep(time.Until(e.start.Add(8*time.Minute - time.Millisecond)))
	e.inject(r)
	if r.class != atToken { // which the renewal itself is
		e.provoke(r)
	}
	if r.fault.Kind == testbroker.Throttle {
		e.drop()
	}
	e.dev.publish(3)
	time.Sleep(time.Until(e.start.Add(16 * time.Minute))) // the hub knows no mercy after 15
	return e.dev.flushed()
}

// closeOp closes the client as soon as the fault has happened.
func closeOp(e *env, r row) error {
	if err := e.dev.reconnected(); err != nil {
		return err
	}
	e.inject(r)
	e.provoke(r)
	if r.fault.Kind == testbroker.Throttle {
		e.drop()
	}
	e.dev.publish(20)
	for range 2000 { // until it has happened, and not a moment later
		if synctest.Wait(); e.in.Fired() > 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	return e.dev.closed()
}

// idleOp does nothing until the connection is replaced.
func idleOp(e *env, r row) error {
	if err := e.dev.reconnected(); err != nil {
		return err
	}
	n := e.dev.client.Stats().Connections
	e.inject(r)
	return e.until(3*time.Minute, func() bool { return e.dev.client.Stats().Connections > n }, nil)
}

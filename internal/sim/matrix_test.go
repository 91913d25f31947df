package sim_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
)

// class says which operations a fault can affect, and how the test triggers it there.
type class uint8

const (
	atConnect class = iota // needs a connect
	atToken                // needs a put of a token, which is part of each connect
	// needs a subscription, or a link for cloud-to-device messages, which is part of each connect
	atSubscribe
	atLink    // needs a link for telemetry, which the first message attaches
	atPublish // needs a telemetry message
	atSettle  // needs a verdict on a cloud-to-device message
	atPing    // needs a ping
	always    // a state of hub or network
	// needs a twin request, which is part of each connect of a device that watches its desired
	// properties
	atTwin
	// needs the subscription to changes, which over AMQP is part of each connect of a device that
	// watches
	atWatch
	atTwinLink   // needs a link for the twin, which over AMQP is part of each connect of a device that watches
	atMethodLink // needs a link for methods, which over AMQP is part of each connect of a device with a method
	atDesired    // needs a change of desired properties
	atMethod     // needs a call of a method
)

// row is a fault and the device's promise about it.
type row struct {
	name  string
	fault fault.Fault
	class class
	// kinds are the Kinds of failures that the status may report for it; empty: the status must not
	// report any.
	kinds []transport.Kind
	// terminal: the client gives up, and connects when it is opened again.
	terminal bool
	// perhaps: whether the status reports it depends on timing.
	perhaps bool
	// refused are the Kinds with which a message or a twin call may fail because of it; all others
	// succeed.
	refused []transport.Kind
	// unsaid: the hub does not notify of a change of desired properties before the next one.
	unsaid bool
	// uncalled: a call of a method may fail because of it.
	uncalled bool
	// alone: a fault of one device, or one that can be set for one. Others on the same connection do
	// not notice it.
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

// reconnects reports whether the fault happens while a device connects.
func (r row) reconnects() bool {
	return r.class == atConnect || r.class == atToken || r.class == atSubscribe
}

// calls reports whether the fault affects twin and methods.
func (r row) calls() bool { return r.class >= atTwin }

// op is an operation during which the fault happens.
type op struct {
	name string
	// meets reports whether the fault can happen during the operation.
	meets func(e engine, r row) bool
	run   func(e *env, r row) error
	// unnoticed: the fault may come too late for the status to report it.
	unnoticed bool
}

// matrix has every fault of the hub over one protocol, and every operation. To add a protocol, add
// a matrix.
type matrix struct {
	protocol hubdata.Protocol
	engines  []string // all of the protocol if nil
	rows     []row
	ops      []op
	// rowless has the kinds of faults without a row, and the reasons.
	rowless map[fault.Kind]string
}

var matrices = []matrix{mqttMatrix, brokerMatrix, fiveMatrix, profileMatrix, amqpMatrix, httpMatrix}

// noOperation is the first of the faults for which no matrix has operations yet. Move it when you
// add operations.
const noOperation = fault.DropAfterMethodAnswer + 1

// TestMatrix applies every fault of the hub during every operation that it can affect. A cell fails
// if the fault did not happen or the promise was not kept. Without -all, some cells are skipped.
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

// Each kind of fault of the hub over a protocol has a row there.
func TestMatrixIsComplete(t *testing.T) {
	for _, m := range matrices {
		covered := map[fault.Kind]bool{}
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
	for _, k := range fault.MQTTv5Kinds() {
		if !slices.ContainsFunc(profileMatrix.rows, func(r row) bool { return r.fault.Kind == k }) &&
			profileMatrix.rowless[k] == "" {
			t.Errorf("the fault %v has no row", k)
		}
	}
	for _, e := range engines {
		if !slices.ContainsFunc(matrices, func(m matrix) bool { return m.protocol == e.protocol }) {
			t.Errorf("%s speaks %v, which has no matrix", e.name, e.protocol)
		}
	}
}

// tried reports whether the cell of a matrix is tried: all of them with -all, else one in nine,
// other ones in each row.
func tried(row, column int) bool { return *all || (row+column)%9 == 0 }

func (m *matrix) play(t *testing.T, with engine) {
	names := make(map[string]bool)
	for i, r := range m.rows {
		if names[r.name] {
			t.Fatalf("two rows are called %s", r.name)
		}
		names[r.name] = true
		for j, o := range m.ops {
			if !with.meets(r) || !o.meets(with, r) || !tried(i, j) {
				continue
			}
			testkit.Run(t, o.name+"/"+r.name, func(t *testing.T) {
				if err := cell(t, with, o, r); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// meets reports whether the fault can happen with the engine at all.
func (e engine) meets(r row) bool {
	switch {
	case !e.has(r.fault.Kind):
		return false
	case r.fault.Kind == fault.RefuseSASL:
		return e.sasl
	case r.class == atToken || r.fault.Link == fault.LinkCBSSender || r.fault.Link == fault.LinkCBSReceiver:
		return !e.sasl
	}
	return true
}

// has reports whether a kind of fault can happen with the engine's version of the protocol and its
// features.
func (e engine) has(k fault.Kind) bool {
	switch k {
	case fault.RefusePublish:
		return e.five
	case fault.RefuseAuth, fault.SwallowAuth, fault.SlowAuth:
		return e.auth
	case fault.RefuseTwin:
		return e.twins
	}
	return true
}

// cell tests one cell. After the operation and the fault, everything must work.
func cell(t *testing.T, with engine, o op, r row) error {
	testkit.StartClock()
	e := newEnv(t, with)
	e.row = r
	err := o.run(e, r)
	fired := e.in != nil && e.in.Fired() > 0
	if err == nil && e.dev.client.Status().Reason != device.ReasonClientClosed {
		e.in.Remove()
		synctest.Wait() // until everything in flight has arrived
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
	// After a refused attach, go-amqp may reuse the link's handle for another attach before it has
	// detached the first. The hub then ends the AMQP session; the client begins a new one with both
	// links, and the refusal is not reported.
	lost := r.fault.Kind == fault.RefuseAttach && e.dev.calling.on
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

// receiveOp receives cloud-to-device messages, on which the handler gives the verdict outcome.
func receiveOp(outcome transport.Outcome) func(e *env, r row) error {
	return func(e *env, r row) error {
		e.dev.outcome = outcome // not read by another goroutine yet
		if err := e.dev.reconnected(); err != nil {
			return err
		}
		e.inject(r)
		e.provoke(r)
		if r.fault.Kind == fault.Throttle {
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

// renewOp passes the end of a token's life. The fault comes just before the renewal, which happens
// after 80 to 85 % of the token's 10 minutes.
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
	if r.class != atToken { // the renewal itself triggers those
		e.provoke(r)
	}
	if r.fault.Kind == fault.Throttle {
		e.drop()
	}
	e.dev.publish(3)
	time.Sleep(time.Until(e.start.Add(16 * time.Minute))) // the hub cuts the connection after 15
	return e.dev.flushed()
}

// closeOp closes the client as soon as the fault has happened.
func closeOp(e *env, r row) error {
	if err := e.dev.reconnected(); err != nil {
		return err
	}
	e.inject(r)
	e.provoke(r)
	if r.fault.Kind == fault.Throttle {
		e.drop()
	}
	e.dev.publish(20)
	for range 2000 { // until it has happened, and not later
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

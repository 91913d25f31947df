package sim_test

import (
	"errors"
	"slices"
	"strconv"
	"testing/synctest"
	"time"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
)

var mqttMatrix = matrix{
	protocol: hubdata.MQTT,
	engines:  []string{"paho", "mqtt", "mqtt with the buffers of a board"},
	rows:     mqttRows(),
	ops:      append(mqttOps(), callOps()...),
	rowless:  mqttRowless("a fault of plain brokers"),
}

// mqttRowless returns the kinds of faults without a row. broker is the reason for those of plain
// brokers.
func mqttRowless(broker string) map[fault.Kind]string {
	all := map[fault.Kind]string{
		fault.Forget:        "a lie: see the simulation",
		fault.ForgetSession: "what every connect bears: see the tests of sessions",
	}
	for _, k := range fault.BrokerKinds() {
		all[k] = broker
	}
	return all
}

// mqttOps returns the operations of MQTT, except those of twin and methods.
func mqttOps() []op {
	sends := func(_ engine, r row) bool { return r.class != atPing && r.class != atSettle && !r.calls() }
	return []op{
		{"connect", func(_ engine, r row) bool { return r.reconnects() || r.class == always }, openOp, false},
		{"publish", sends, sendOp(20), false},
		{"receive", func(_ engine, r row) bool {
			// the quota stops the sender, too
			return r.reconnects() || r.class == atSettle || r.class == always && r.fault.Kind != fault.Quota
		}, receiveOp(transport.OutcomeAccept), false},
		{"subscribe", func(_ engine, r row) bool { return r.class == atSubscribe || r.class == always }, subscribeOp, false},
		{"renew", sends, renewOp, true},
		{"close", sends, closeOp, true},
		{"keep-alive", func(_ engine, r row) bool {
			return r.class == atPing || r.fault.Kind == fault.HalfOpen || r.fault.Kind == fault.Absent
		}, idleOp, false},
	}
}

func mqttRows() []row {
	type F = fault.Fault
	rows := []row{
		{name: "RefuseConnect 3", fault: F{Kind: fault.RefuseConnect, Code: 3, Times: 2}, kinds: kinds(unavailable)},
		{name: "SlowConnack", fault: F{Kind: fault.SlowConnack, Delay: 3 * time.Second}},
		{name: "SwallowConnack", fault: F{Kind: fault.SwallowConnack}, kinds: kinds(timeout)},
		{name: "DropConnect", fault: F{Kind: fault.DropConnect}, kinds: kinds(network)},
		{name: "GarbageOnConnect", fault: F{Kind: fault.GarbageOnConnect}, kinds: kinds(network, protocol)},
		{name: "RefuseSubscribe", fault: F{Kind: fault.RefuseSubscribe}, class: atSubscribe, kinds: kinds(unavailable)},
		{name: "DropOnSubscribe", fault: F{Kind: fault.DropOnSubscribe}, class: atSubscribe, kinds: kinds(network)},
		{name: "SwallowSuback", fault: F{Kind: fault.SwallowSuback}, class: atSubscribe, kinds: kinds(timeout)},
		{name: "SlowSuback", fault: F{Kind: fault.SlowSuback, Delay: 3 * time.Second}, class: atSubscribe},
		{name: "LongSuback", fault: F{Kind: fault.LongSuback}, class: atSubscribe, kinds: kinds(network, protocol)},
		{name: "ShortSuback", fault: F{Kind: fault.ShortSuback}, class: atSubscribe, kinds: kinds(network, protocol)},
		{name: "GarbageOnSubscribe", fault: F{Kind: fault.GarbageOnSubscribe}, class: atSubscribe,
			kinds: kinds(network, protocol)},
		{name: "DropBeforePublish", fault: F{Kind: fault.DropBeforePublish}, class: atPublish, kinds: kinds(network)},
		{name: "DropDuringPublish", fault: F{Kind: fault.DropDuringPublish}, class: atPublish, kinds: kinds(network)},
		{name: "DropAfterPublish", fault: F{Kind: fault.DropAfterPublish}, class: atPublish, kinds: kinds(network)},
		{name: "DropAfterPuback", fault: F{Kind: fault.DropAfterPuback}, class: atPublish, kinds: kinds(network)},
		{name: "SlowPuback", fault: F{Kind: fault.SlowPuback, Delay: 3 * time.Second}, class: atPublish},
		{name: "SwallowPuback", fault: F{Kind: fault.SwallowPuback}, class: atPublish, kinds: kinds(timeout)},
		{name: "StrayPuback", fault: F{Kind: fault.StrayPuback}, class: atPublish},
		{name: "DuplicatePuback", fault: F{Kind: fault.DuplicatePuback}, class: atPublish},
		{name: "GarbageOnPublish", fault: F{Kind: fault.GarbageOnPublish}, class: atPublish,
			kinds: kinds(network, protocol)},
		{name: "SwallowPingresp", fault: F{Kind: fault.SwallowPingresp}, class: atPing, kinds: kinds(timeout)},
		{name: "HalfOpen", fault: F{Kind: fault.HalfOpen, For: 20 * time.Second}, class: always,
			kinds: kinds(timeout, network)},
		{name: "Throttle", fault: F{Kind: fault.Throttle, Rate: 2, Limit: 3, For: 20 * time.Second}, class: always,
			kinds: kinds(unavailable, network)},
		{name: "Absent", fault: F{Kind: fault.Absent, For: 20 * time.Second}, class: always, kinds: kinds(network)},
		{name: "Quota", fault: F{Kind: fault.Quota, Limit: -1, For: 20 * time.Second}, class: always,
			kinds: kinds(unavailable, network)},
		{name: "Quota, connects accepted", fault: F{Kind: fault.Quota, Limit: -1, AcceptConnects: true,
			For: 20 * time.Second}, class: always, kinds: kinds(network)},
	}
	for code, k := range map[byte]transport.Kind{1: transport.Unsupported, 2: unauthorized, 4: unauthorized,
		5: unauthorized, 6: protocol, 255: protocol} {
		rows = append(rows, row{name: "RefuseConnect " + strconv.Itoa(int(code)), fault: F{Kind: fault.RefuseConnect,
			Code: code}, kinds: kinds(k), terminal: true})
	}
	return sorted(slices.Concat(rows, belowRows(), callRows()))
}

// belowRows are the faults below the protocol, which all protocols share.
func belowRows() []row {
	type F = fault.Fault
	return []row{
		{name: "MuteHandshake", fault: F{Kind: fault.MuteHandshake}, kinds: kinds(timeout)},
		{name: "CutHandshake", fault: F{Kind: fault.CutHandshake}, kinds: kinds(network)},
		// A single one may be due to damage in transit.
		{name: "NotTLS", fault: F{Kind: fault.NotTLS}, kinds: kinds(network)},
		{name: "OldTLS", fault: F{Kind: fault.OldTLS}, kinds: kinds(network)},
		{name: "ExpiredCertificate", fault: F{Kind: fault.ExpiredCertificate}, kinds: kinds(transport.Untrusted),
			terminal: true},
	}
}

// sorted sorts the rows by the kind of the fault.
func sorted(rows []row) []row {
	slices.SortStableFunc(rows, func(a, b row) int {
		return int(a.fault.Kind)*1000 + int(a.fault.Code) - int(b.fault.Kind)*1000 - int(b.fault.Code)
	})
	return rows
}

// subscribeOp loses the subscription and expects it back.
func subscribeOp(e *env, r row) error {
	if err := e.dev.reconnected(); err != nil {
		return err
	}
	e.inject(r)
	e.drop()
	synctest.Wait()
	if err := e.dev.reconnected(); err != nil {
		return err
	}
	if e.in.Fired() == 0 {
		return errors.New("the fault did not happen in the middle of it")
	}
	e.in.Remove()
	if err := e.dev.message(1); err != nil {
		return err
	}
	return e.dev.received(transport.OutcomeAccept)
}

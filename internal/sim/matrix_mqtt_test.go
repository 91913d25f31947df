package sim_test

import (
	"errors"
	"slices"
	"strconv"
	"testing/synctest"
	"time"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
)

var mqttMatrix = matrix{
	protocol: testbroker.MQTT,
	rows:     mqttRows(),
	ops: append([]op{
		{"connect", func(_ engine, r row) bool { return r.reconnects() || r.class == always }, openOp, false},
		{"publish", func(_ engine, r row) bool { return r.class != atPing && !r.calls() }, sendOp(20), false},
		{"receive", func(_ engine, r row) bool {
			return r.reconnects() || r.class == always && r.fault.Kind != testbroker.Quota // the quota stops the sender, too
		}, receiveOp(transport.Accept), false},
		{"subscribe", func(_ engine, r row) bool { return r.class == atSubscribe || r.class == always }, subscribeOp, false},
		{"renew", func(_ engine, r row) bool { return r.class != atPing && !r.calls() }, renewOp, true},
		{"close", func(_ engine, r row) bool { return r.class != atPing && !r.calls() }, closeOp, true},
		{"keep-alive", func(_ engine, r row) bool {
			return r.class == atPing || r.fault.Kind == testbroker.HalfOpen || r.fault.Kind == testbroker.Absent
		}, idleOp, false},
	}, callOps()...),
	rowless: map[testbroker.FaultKind]string{
		testbroker.Forget:        "a lie: see the simulation",
		testbroker.ForgetSession: "what every connect bears: see the tests of sessions",
	},
}

func mqttRows() []row {
	type F = testbroker.Fault
	rows := []row{
		{name: "RefuseConnect 3", fault: F{Kind: testbroker.RefuseConnect, Code: 3, Times: 2}, kinds: kinds(unavailable)},
		{name: "SlowConnack", fault: F{Kind: testbroker.SlowConnack, Delay: 3 * time.Second}},
		{name: "NoConnack", fault: F{Kind: testbroker.NoConnack}, kinds: kinds(timeout)},
		{name: "DropConnect", fault: F{Kind: testbroker.DropConnect}, kinds: kinds(network)},
		{name: "GarbageOnConnect", fault: F{Kind: testbroker.GarbageOnConnect}, kinds: kinds(network, protocol)},
		{name: "RefuseSubscribe", fault: F{Kind: testbroker.RefuseSubscribe}, class: atSubscribe, kinds: kinds(unavailable)},
		{name: "DropOnSubscribe", fault: F{Kind: testbroker.DropOnSubscribe}, class: atSubscribe, kinds: kinds(network)},
		{name: "SwallowSuback", fault: F{Kind: testbroker.SwallowSuback}, class: atSubscribe, kinds: kinds(timeout)},
		{name: "SlowSuback", fault: F{Kind: testbroker.SlowSuback, Delay: 3 * time.Second}, class: atSubscribe},
		{name: "LongSuback", fault: F{Kind: testbroker.LongSuback}, class: atSubscribe, kinds: kinds(network, protocol)},
		{name: "ShortSuback", fault: F{Kind: testbroker.ShortSuback}, class: atSubscribe, kinds: kinds(network, protocol)},
		{name: "GarbageOnSubscribe", fault: F{Kind: testbroker.GarbageOnSubscribe}, class: atSubscribe,
			kinds: kinds(network, protocol)},
		{name: "DropBeforePublish", fault: F{Kind: testbroker.DropBeforePublish}, class: atPublish, kinds: kinds(network)},
		{name: "DropDuringPublish", fault: F{Kind: testbroker.DropDuringPublish}, class: atPublish, kinds: kinds(network)},
		{name: "DropAfterPublish", fault: F{Kind: testbroker.DropAfterPublish}, class: atPublish, kinds: kinds(network)},
		{name: "DropAfterPuback", fault: F{Kind: testbroker.DropAfterPuback}, class: atPublish, kinds: kinds(network)},
		{name: "DelayPuback", fault: F{Kind: testbroker.DelayPuback, Delay: 3 * time.Second}, class: atPublish},
		{name: "SwallowPuback", fault: F{Kind: testbroker.SwallowPuback}, class: atPublish, kinds: kinds(timeout)},
		{name: "StrayPuback", fault: F{Kind: testbroker.StrayPuback}, class: atPublish},
		{name: "DuplicatePuback", fault: F{Kind: testbroker.DuplicatePuback}, class: atPublish},
		{name: "GarbageOnPublish", fault: F{Kind: testbroker.GarbageOnPublish}, class: atPublish,
			kinds: kinds(network, protocol)},
		{name: "SwallowPingresp", fault: F{Kind: testbroker.SwallowPingresp}, class: atPing, kinds: kinds(timeout)},
		{name: "HalfOpen", fault: F{Kind: testbroker.HalfOpen, For: 20 * time.Second}, class: always,
			kinds: kinds(timeout, network)},
		{name: "Throttle", fault: F{Kind: testbroker.Throttle, Rate: 2, Limit: 3, For: 20 * time.Second}, class: always,
			kinds: kinds(unavailable, network)},
		{name: "Absent", fault: F{Kind: testbroker.Absent, For: 20 * time.Second}, class: always, kinds: kinds(network)},
		{name: "Quota", fault: F{Kind: testbroker.Quota, Limit: -1, For: 20 * time.Second}, class: always,
			kinds: kinds(unavailable, network)},
		{name: "Quota, connects accepted", fault: F{Kind: testbroker.Quota, Limit: -1, AcceptConnects: true,
			For: 20 * time.Second}, class: always, kinds: kinds(network)},
	}
	for code, k := range map[byte]transport.Kind{1: transport.Unsupported, 2: unauthorized, 4: unauthorized,
		5: unauthorized, 6: protocol, 255: protocol} {
		rows = append(rows, row{name: "RefuseConnect " + strconv.Itoa(int(code)), fault: F{Kind: testbroker.RefuseConnect,
			Code: code}, kinds: kinds(k), terminal: true})
	}
	return sorted(slices.Concat(rows, belowRows(), callRows()))
}

// belowRows are the faults below the protocol, which all protocols share.
func belowRows() []row {
	type F = testbroker.Fault
	return []row{
		{name: "MuteHandshake", fault: F{Kind: testbroker.MuteHandshake}, kinds: kinds(timeout)},
		{name: "CutHandshake", fault: F{Kind: testbroker.CutHandshake}, kinds: kinds(network)},
		// A single one may be due to damage in transit.
		{name: "NotTLS", fault: F{Kind: testbroker.NotTLS}, kinds: kinds(network)},
		{name: "OldTLS", fault: F{Kind: testbroker.OldTLS}, kinds: kinds(network)},
		{name: "ExpiredCertificate", fault: F{Kind: testbroker.ExpiredCertificate}, kinds: kinds(transport.Untrusted),
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
	return e.dev.received(transport.Accept)
}

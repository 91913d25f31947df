package sim_test

import (
	"errors"
	"slices"
	"time"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
)

var amqpMatrix = matrix{
	protocol: hubdata.AMQP,
	rows:     amqpRows(),
	ops: append([]op{
		{"open", func(_ engine, r row) bool {
			return r.reconnects() || r.class == always && r.fault.Kind != fault.Quota
		}, openOp, false},
		{"send one", speaks, sendOp(1), false},
		{"window", speaks, sendOp(150), true}, // the status does not report a batch refused because of one message
		{"accept", receives, receiveOp(transport.OutcomeAccept), false},
		{"release", receives, receiveOp(transport.OutcomeRelease), false},
		{"reject", receives, receiveOp(transport.OutcomeReject), false},
		{"renew", speaks, renewOp, true},
		{"close", func(_ engine, r row) bool {
			return r.fault.Kind != fault.DetachWhileIdle && !r.calls()
		}, closeOp, true},
		{"idle", func(_ engine, r row) bool {
			return r.fault.Kind == fault.HalfOpen || r.fault.Kind == fault.Absent
		}, idleOp, false},
		{"two devices", func(e engine, r row) bool { return e.shared && !r.calls() }, twoDevicesOp, true},
	}, callOps()...),
	rowless: map[fault.Kind]string{fault.Forget: "a lie: see the simulation"},
}

// speaks: faults that affect sending.
func speaks(_ engine, r row) bool { return !r.calls() }

// receives: faults that affect receiving. A quota stops the sender, too.
func receives(_ engine, r row) bool {
	return r.reconnects() || r.class == always && r.fault.Kind != fault.Quota
}

// Conditions of AMQP errors.
const (
	decode       = "amqp:decode-error"
	exceeded     = "amqp:resource-limit-exceeded"
	internal     = "amqp:internal-error"
	missing      = "amqp:not-found"
	notAllowed   = "amqp:not-allowed"
	odd          = "com.example:odd"
	throttledNow = "com.microsoft:device-container-throttled"
	tooLarge     = "amqp:link:message-size-exceeded"
	unwelcome    = "amqp:unauthorized-access"
)

func amqpRows() []row {
	return sorted(slices.Concat(amqpConnectRows(), amqpTokenRows(), amqpLinkRows(), amqpMessageRows(), amqpStateRows(),
		belowRows(), callRows(), watchRows(), linkRows()))
}

// amqpConnectRows are faults of a new connection.
func amqpConnectRows() []row {
	type F = fault.Fault
	return []row{
		{name: "RefuseConnect", fault: F{Kind: fault.RefuseConnect, Times: 2}, kinds: kinds(unavailable)},
		{name: "RefuseConnect, " + exceeded, fault: F{Kind: fault.RefuseConnect, Condition: exceeded},
			kinds: kinds(quota)},
		{name: "RefuseConnect, " + unwelcome, fault: F{Kind: fault.RefuseConnect, Condition: unwelcome},
			kinds: kinds(unauthorized), terminal: true},
		{name: "RefuseConnect, " + missing, fault: F{Kind: fault.RefuseConnect, Condition: missing},
			kinds: kinds(notFound), terminal: true},
		{name: "RefuseConnect, " + odd, fault: F{Kind: fault.RefuseConnect, Condition: odd}, kinds: kinds(network)},
		{name: "SlowConnack", fault: F{Kind: fault.SlowConnack, Delay: 3 * time.Second}},
		{name: "SwallowConnack", fault: F{Kind: fault.SwallowConnack}, kinds: kinds(timeout)},
		{name: "DropConnect", fault: F{Kind: fault.DropConnect}, kinds: kinds(network)},
		{name: "GarbageOnConnect", fault: F{Kind: fault.GarbageOnConnect}, kinds: kinds(network, protocol)},
	}
}

// amqpTokenRows are faults of the authentication.
func amqpTokenRows() []row {
	type F = fault.Fault
	return []row{
		{name: "RefuseSASL auth", fault: F{Kind: fault.RefuseSASL, Code: 1}, kinds: kinds(unauthorized), terminal: true},
		{name: "RefuseSASL sys", fault: F{Kind: fault.RefuseSASL, Code: 2}, kinds: kinds(unavailable)},
		{name: "RefuseSASL sys-perm", fault: F{Kind: fault.RefuseSASL, Code: 3}, kinds: kinds(transport.Forbidden),
			terminal: true},
		{name: "RefuseSASL sys-temp", fault: F{Kind: fault.RefuseSASL, Code: 4}, kinds: kinds(unavailable)},
		{name: "RefuseToken 401", fault: F{Kind: fault.RefuseToken, Status: 401}, class: atToken,
			kinds: kinds(unauthorized), terminal: true, alone: true},
		{name: "RefuseToken 403", fault: F{Kind: fault.RefuseToken, Status: 403}, class: atToken, kinds: kinds(quota),
			alone: true},
		{name: "RefuseToken 404", fault: F{Kind: fault.RefuseToken, Status: 404}, class: atToken, kinds: kinds(notFound),
			terminal: true, alone: true},
		{name: "RefuseToken 429", fault: F{Kind: fault.RefuseToken, Status: 429}, class: atToken,
			kinds: kinds(throttled), alone: true},
		{name: "RefuseToken 503", fault: F{Kind: fault.RefuseToken, Status: 503, Times: 2}, class: atToken,
			kinds: kinds(unavailable), alone: true},
		{name: "SlowToken", fault: F{Kind: fault.SlowToken, Delay: 3 * time.Second}, class: atToken, alone: true},
		{name: "SwallowToken", fault: F{Kind: fault.SwallowToken}, class: atToken, kinds: kinds(timeout), alone: true},
		{name: "DropOnToken", fault: F{Kind: fault.DropOnToken}, class: atToken, kinds: kinds(network)},
	}
}

// amqpLinkRows are faults of the links for tokens and messages. The link for cloud-to-device
// messages is attached before the client counts as connected, the link for telemetry with the first
// message. The client retries a lost link once, at once.
func amqpLinkRows() []row {
	type F = fault.Fault
	const fromCloud, messages, tokens = fault.LinkC2D, fault.LinkTelemetry, fault.LinkCBSSender
	return []row{
		{name: "RefuseAttach tokens", fault: F{Kind: fault.RefuseAttach, Link: tokens}, kinds: kinds(unavailable),
			perhaps: true},
		{name: "RefuseAttach messages from the cloud",
			fault: F{Kind: fault.RefuseAttach, Link: fromCloud}, class: atSubscribe,
			kinds: kinds(unavailable), alone: true},
		{name: "RefuseAttach messages from the cloud, " + throttledNow,
			fault: F{Kind: fault.RefuseAttach, Link: fromCloud,
				Condition: throttledNow}, class: atSubscribe, kinds: kinds(throttled), alone: true},
		{name: "RefuseAttach messages from the cloud, " + missing, fault: F{Kind: fault.RefuseAttach, Link: fromCloud,
			Condition: missing}, class: atSubscribe, kinds: kinds(notFound), terminal: true, alone: true},
		{name: "RefuseAttach telemetry", fault: F{Kind: fault.RefuseAttach, Link: messages}, class: atLink,
			kinds: kinds(unavailable), alone: true},
		{name: "RefuseAttach telemetry, " + unwelcome, fault: F{Kind: fault.RefuseAttach, Link: messages,
			Condition: unwelcome}, class: atLink, kinds: kinds(unauthorized), alone: true},
		{name: "SlowAttach tokens", fault: F{Kind: fault.SlowAttach, Link: tokens, Delay: 3 * time.Second}},
		{name: "SlowAttach messages from the cloud",
			fault: F{Kind: fault.SlowAttach, Link: fromCloud, Delay: 3 * time.Second},
			class: atSubscribe, alone: true},
		{name: "SlowAttach telemetry", fault: F{Kind: fault.SlowAttach, Link: messages, Delay: 3 * time.Second},
			class: atLink, alone: true},
		{name: "SwallowAttach tokens", fault: F{Kind: fault.SwallowAttach, Link: tokens}, kinds: kinds(timeout)},
		{name: "SwallowAttach messages from the cloud", fault: F{Kind: fault.SwallowAttach, Link: fromCloud},
			class: atSubscribe,
			kinds: kinds(timeout), alone: true},
		{name: "SwallowAttach telemetry", fault: F{Kind: fault.SwallowAttach, Link: messages}, class: atLink,
			kinds: kinds(timeout), alone: true},
		{name: "DropOnAttach tokens", fault: F{Kind: fault.DropOnAttach, Link: tokens}, kinds: kinds(network)},
		{name: "DropOnAttach messages from the cloud",
			fault: F{Kind: fault.DropOnAttach, Link: fromCloud}, class: atSubscribe,
			kinds: kinds(network)},
		{name: "DropOnAttach telemetry", fault: F{Kind: fault.DropOnAttach, Link: messages}, class: atLink,
			kinds: kinds(network)},
		{name: "WithholdCredit tokens", fault: F{Kind: fault.WithholdCredit, Link: tokens}, kinds: kinds(timeout)},
		{name: "WithholdCredit telemetry", fault: F{Kind: fault.WithholdCredit, Link: messages}, class: atLink,
			kinds: kinds(throttled), alone: true},
		{name: "WithholdCredit telemetry, 3 s", fault: F{Kind: fault.WithholdCredit, Link: messages,
			Delay: 3 * time.Second}, class: atLink, alone: true},
		{name: "DetachWhileIdle tokens", fault: F{Kind: fault.DetachWhileIdle, Link: tokens, Delay: time.Second}},
		{name: "DetachWhileIdle messages from the cloud, early",
			fault: F{Kind: fault.DetachWhileIdle, Link: fromCloud,
				Delay: time.Second}, class: atSubscribe, kinds: kinds(unavailable), alone: true},
		{name: "DetachWhileIdle messages from the cloud",
			fault: F{Kind: fault.DetachWhileIdle, Link: fromCloud,
				Delay: 10 * time.Second}, class: atSubscribe, alone: true},
		{name: "DetachWhileIdle messages from the cloud, unclosed",
			fault: F{Kind: fault.DetachWhileIdle, Link: fromCloud,
				Delay: 10 * time.Second, Unclosed: true}, class: atSubscribe, alone: true},
		{name: "DetachWhileIdle telemetry", fault: F{Kind: fault.DetachWhileIdle, Link: messages,
			Delay: 3 * time.Second}, class: atLink, alone: true},
	}
}

// amqpMessageRows are faults of telemetry messages. If the hub reports the device of a live session
// as unauthorized, the client tries one fresh token.
func amqpMessageRows() []row {
	type F = fault.Fault
	return []row{
		{name: "DropBeforePublish", fault: F{Kind: fault.DropBeforePublish}, class: atPublish, kinds: kinds(network)},
		{name: "DropAfterPublish", fault: F{Kind: fault.DropAfterPublish}, class: atPublish, kinds: kinds(network)},
		{name: "DropAfterPuback", fault: F{Kind: fault.DropAfterPuback}, class: atPublish, kinds: kinds(network)},
		{name: "SlowPuback", fault: F{Kind: fault.SlowPuback, Delay: 3 * time.Second}, class: atPublish, alone: true},
		{name: "SwallowPuback", fault: F{Kind: fault.SwallowPuback}, class: atPublish, kinds: kinds(timeout),
			alone: true},
		{name: "GarbageOnPublish", fault: F{Kind: fault.GarbageOnPublish}, class: atPublish,
			kinds: kinds(network, protocol)},
		{name: "RejectMessage", fault: F{Kind: fault.RejectMessage}, class: atPublish, kinds: kinds(unavailable),
			alone: true},
		{name: "RejectMessage, " + throttledNow, fault: F{Kind: fault.RejectMessage, Condition: throttledNow},
			class: atPublish, kinds: kinds(throttled), alone: true},
		{name: "RejectMessage, " + exceeded, fault: F{Kind: fault.RejectMessage, Condition: exceeded}, class: atPublish,
			kinds: kinds(quota), alone: true},
		{name: "RejectMessage, " + decode, fault: F{Kind: fault.RejectMessage, Condition: decode}, class: atPublish,
			refused: kinds(transport.Invalid), alone: true},
		{name: "RejectMessage, " + tooLarge, fault: F{Kind: fault.RejectMessage, Condition: tooLarge}, class: atPublish,
			refused: kinds(transport.TooLarge), alone: true},
		{name: "RejectMessage, " + odd, fault: F{Kind: fault.RejectMessage, Condition: odd}, class: atPublish,
			refused: kinds(transport.Unknown), alone: true},
		{name: "RejectMessage, " + unwelcome, fault: F{Kind: fault.RejectMessage, Condition: unwelcome},
			class: atPublish, kinds: kinds(unauthorized), alone: true},
		{name: "ReleaseMessage", fault: F{Kind: fault.ReleaseMessage, Times: 2}, class: atPublish,
			kinds: kinds(unavailable), alone: true},
		{name: "ModifyMessage", fault: F{Kind: fault.ModifyMessage}, class: atPublish, kinds: kinds(unavailable),
			alone: true},
		{name: "ModifyMessage, undeliverable here", fault: F{Kind: fault.ModifyMessage, UndeliverableHere: true},
			class: atPublish, refused: kinds(transport.Forbidden), alone: true},
		{name: "CloseOnMessage", fault: F{Kind: fault.CloseOnMessage}, class: atPublish, kinds: kinds(unavailable)},
		{name: "CloseOnMessage, " + unwelcome, fault: F{Kind: fault.CloseOnMessage, Condition: unwelcome},
			class: atPublish, kinds: kinds(unauthorized)},
		{name: "CloseOnMessage, " + odd, fault: F{Kind: fault.CloseOnMessage, Condition: odd}, class: atPublish,
			kinds: kinds(network)},
		{name: "EndOnMessage", fault: F{Kind: fault.EndOnMessage}, class: atPublish, kinds: kinds(unavailable),
			alone: true},
		{name: "EndOnMessage, " + unwelcome, fault: F{Kind: fault.EndOnMessage, Condition: unwelcome}, class: atPublish,
			kinds: kinds(unauthorized), alone: true},
		{name: "DetachOnMessage", fault: F{Kind: fault.DetachOnMessage}, class: atPublish, kinds: kinds(unavailable),
			alone: true},
		{name: "DetachOnMessage, unclosed", fault: F{Kind: fault.DetachOnMessage, Unclosed: true}, class: atPublish,
			kinds: kinds(unavailable, timeout), alone: true},
		{name: "DetachOnMessage, " + internal, fault: F{Kind: fault.DetachOnMessage, Condition: internal},
			class: atPublish, kinds: kinds(unavailable), alone: true},
		{name: "DetachOnMessage, " + notAllowed, fault: F{Kind: fault.DetachOnMessage, Condition: notAllowed},
			class: atPublish, kinds: kinds(unavailable), perhaps: true, refused: kinds(transport.Forbidden), alone: true},
		{name: "DetachOnMessage, " + throttledNow, fault: F{Kind: fault.DetachOnMessage, Condition: throttledNow},
			class: atPublish, kinds: kinds(throttled), alone: true},
		{name: "DetachAfterMessage", fault: F{Kind: fault.DetachAfterMessage}, class: atPublish,
			kinds: kinds(unavailable), alone: true},
	}
}

// amqpStateRows are states of the hub and the network.
func amqpStateRows() []row {
	type F = fault.Fault
	return []row{
		{name: "HalfOpen", fault: F{Kind: fault.HalfOpen, For: 20 * time.Second}, class: always,
			kinds: kinds(timeout, network)},
		{name: "Throttle", fault: F{Kind: fault.Throttle, Rate: 2, Limit: 3, For: 20 * time.Second}, class: always,
			kinds: kinds(throttled), perhaps: true, alone: true},
		{name: "Absent", fault: F{Kind: fault.Absent, For: 20 * time.Second}, class: always, kinds: kinds(network)},
		{name: "Quota", fault: F{Kind: fault.Quota, Limit: -1, For: 20 * time.Second}, class: always,
			kinds: kinds(quota), alone: true},
	}
}

// linkRows are faults of the links for twin and methods. Each pair belongs together: when one link
// is lost, so is the other. A device that uses them attaches them before it is connected.
func linkRows() []row {
	type F = fault.Fault
	var rows []row
	for _, p := range []struct {
		name    string
		class   class
		out, in fault.LinkKind
	}{{"twin", atTwinLink, fault.LinkTwinSender, fault.LinkTwinReceiver}, {"methods", atMethodLink,
		fault.LinkMethodSender, fault.LinkMethodReceiver}} {
		rows = append(rows,
			row{name: "RefuseAttach " + p.name + " in", fault: F{Kind: fault.RefuseAttach, Link: p.in}, class: p.class,
				kinds: kinds(unavailable)},
			row{name: "RefuseAttach " + p.name + " out", fault: F{Kind: fault.RefuseAttach, Link: p.out}, class: p.class,
				kinds: kinds(unavailable)},
			row{name: "RefuseAttach " + p.name + ", " + throttledNow, fault: F{Kind: fault.RefuseAttach, Link: p.in,
				Condition: throttledNow}, class: p.class, kinds: kinds(throttled)},
			row{name: "SlowAttach " + p.name, fault: F{Kind: fault.SlowAttach, Link: p.out, Delay: 3 * time.Second},
				class: p.class},
			row{name: "SwallowAttach " + p.name, fault: F{Kind: fault.SwallowAttach, Link: p.in}, class: p.class,
				kinds: kinds(timeout)},
			row{name: "DropOnAttach " + p.name, fault: F{Kind: fault.DropOnAttach, Link: p.in}, class: p.class,
				kinds: kinds(network)},
			row{name: "DetachWhileIdle " + p.name + " in", fault: F{Kind: fault.DetachWhileIdle, Link: p.in,
				Delay: 10 * time.Second}, class: p.class},
			row{name: "DetachWhileIdle " + p.name + " out", fault: F{Kind: fault.DetachWhileIdle, Link: p.out,
				Delay: 10 * time.Second}, class: p.class},
		)
	}
	// There is no such row for methods: until it sends an answer, the library does not report that an
	// outgoing link is closing because the hub detached it without closing.
	return append(rows, row{name: "DetachWhileIdle twin out, unclosed", fault: F{Kind: fault.DetachWhileIdle,
		Link: fault.LinkTwinSender, Delay: 10 * time.Second, Unclosed: true}, class: atTwinLink})
}

// twoDevicesOp applies the fault to one of two devices on a connection. A fault that does not
// affect the connection must not disturb the other device; both send all their messages.
func twoDevicesOp(e *env, r row) error {
	if err := e.dev.reconnected(); err != nil {
		return err
	}
	other := e.join("dev-2")
	if err := other.reconnected(); err != nil {
		return err
	}
	if n := e.hub.Connections(""); n != 1 {
		return errors.New("the devices do not share a connection")
	}
	e.inject(r)
	e.provoke(r)
	e.dev.publish(20)
	other.publish(20)
	if err := other.flushed(); err != nil {
		return err
	}
	if err := other.message(1); err != nil {
		return err
	}
	if err := other.received(transport.OutcomeAccept); err != nil {
		return err
	}
	if err := e.dev.flushed(); err != nil {
		return err
	}
	if err := e.happened(); err != nil {
		return err
	}
	if r.alone {
		return other.undisturbed()
	}
	return other.promised(r, true)
}

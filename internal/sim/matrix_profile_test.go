package sim_test

import (
	"errors"
	"testing/synctest"
	"time"

	"github.com/hubline-iot/hubline/internal/nextwire"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
)

// profileMatrix has the faults of a hub with the MQTT v5 profile.
var profileMatrix = matrix{
	protocol: hubdata.MQTT,
	engines:  []string{"mqtt, MQTT v5 profile"},
	rows:     profileRows(),
	ops:      profileOps(),
	rowless:  profileRowless(),
}

// profileRowless returns the kinds of faults without a row.
func profileRowless() map[fault.Kind]string {
	all := mqttRowless("")
	for _, k := range []fault.Kind{fault.RefuseAuth, fault.SwallowAuth, fault.SlowAuth} {
		all[k] = "the profile has no enhanced authentication"
	}
	all[fault.StrictIfMatch] = "the client knows the version: see the tests of the dialect"
	all[fault.DropOnReceipt] = "acknowledgements of methods alone: see the tests of sessions"
	return all
}

// profileOps returns the operations. There are no tokens and no messages to the device.
func profileOps() []op {
	var all []op
	for _, o := range append(mqttOps(), callOps()...) {
		switch o.name {
		case "receive", "renew":
			continue
		case "subscribe":
			o.run = profileSubscribeOp
		}
		meets := o.meets
		o.meets = func(e engine, r row) bool { return meets(e, r) && !profileSpares(o.name, r) }
		all = append(all, o)
	}
	return all
}

// profileSpares reports whether an operation makes no request that a fault needs: a connect makes
// none about the twin, and a patch gets no document.
func profileSpares(operation string, r row) bool {
	switch operation {
	case "desired off":
		return r.class == atTwin
	case "patch", "patch if", "throttled":
		return r.fault.Message == "get-response"
	}
	return false
}

// profileSubscribeOp loses the subscription and expects it back.
func profileSubscribeOp(e *env, r row) error {
	if err := errors.Join(e.dev.obeys(), e.dev.reconnected()); err != nil {
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
	return e.dev.called(answers)
}

func profileRows() []row {
	type F = fault.Fault
	const slow = 3 * time.Second
	var rows []row
	for _, r := range fiveRows() {
		k := r.fault.Kind
		if k == fault.RefuseAuth || k == fault.SwallowAuth || k == fault.SlowAuth || k == fault.DropOnReceipt ||
			k == fault.RefuseConnect {
			continue
		}
		if k == fault.DisconnectOnPublish && r.fault.Code == 0x9c { // and no other server is named
			r.kinds, r.terminal = kinds(notFound), true
		}
		rows = append(rows, r)
	}
	for code, kind := range map[byte]transport.Kind{0x80: unavailable, 0x88: unavailable, 0x89: throttled,
		0x9f: throttled} {
		rows = append(rows, row{name: "RefuseConnect " + hexOf(code), fault: F{Kind: fault.RefuseConnect, Code: code},
			kinds: kinds(kind)})
	}
	for code, kind := range map[byte]transport.Kind{0x84: transport.Unsupported, 0x8a: transport.Forbidden} {
		rows = append(rows, row{name: "RefuseConnect " + hexOf(code), fault: F{Kind: fault.RefuseConnect, Code: code},
			kinds: kinds(kind), terminal: true})
	}
	patch := nextwire.Append(nil, &nextwire.DesiredPatch{Version: 1})
	return sorted(append(rows,
		row{name: "WrongSessionPresent", fault: F{Kind: fault.WrongSessionPresent}},
		row{name: "EarlyBirthAck", fault: F{Kind: fault.EarlyBirthAck}},

		row{name: "no birth-ack", fault: F{Kind: fault.SwallowDispatch, Message: "birth-ack"}, kinds: kinds(timeout)},
		row{name: "late birth-ack", fault: F{Kind: fault.SlowDispatch, Message: "birth-ack", Delay: slow}},
		row{name: "birth-ack twice", fault: F{Kind: fault.DuplicateDispatch, Message: "birth-ack"}},
		row{name: "birth-ack with another nonce", fault: F{Kind: fault.MisnameDispatch, Message: "birth-ack"},
			kinds: kinds(timeout)},
		row{name: "birth-ack of another version", fault: F{Kind: fault.RetypeDispatch, Message: "birth-ack"}},
		row{name: "unreadable birth-ack", fault: F{Kind: fault.GarbleDispatch, Message: "birth-ack"},
			kinds: kinds(unavailable)},

		row{name: "get-response of another type", fault: F{Kind: fault.RetypeDispatch, Message: "get-response", Text: "x"},
			class: atTwin, refused: kinds(protocol)},
		row{name: "unreadable get-response", fault: F{Kind: fault.GarbleDispatch, Message: "get-response"},
			class: atTwin, refused: kinds(protocol)},

		row{name: "desired-patch backwards", fault: F{Kind: fault.GarbleDispatch, Message: "desired-patch", Bytes: patch},
			class: atDesired, unsaid: true},
		row{name: "desired-patch with another nonce", fault: F{Kind: fault.MisnameDispatch, Message: "desired-patch"},
			class: atDesired, unsaid: true},

		row{name: "no desired-patch", fault: F{Kind: fault.SwallowDispatch, Message: "desired-patch"}, class: atDesired,
			unsaid: true},
		row{name: "unreadable desired-patch", fault: F{Kind: fault.GarbleDispatch, Message: "desired-patch"},
			class: atDesired, unsaid: true},

		row{name: "no exec", fault: F{Kind: fault.SwallowDispatch, Message: "exec"}, class: atMethod, uncalled: true},
		row{name: "exec of another request", fault: F{Kind: fault.MisnameDispatch, Message: "exec"}, class: atMethod,
			uncalled: true},
		row{name: "exec without an expiry", fault: F{Kind: fault.OmitExpiry, Message: "exec"}, class: atMethod},
		row{name: "probe twice", fault: F{Kind: fault.DuplicateDispatch, Message: "probe"}, class: atMethod},
		row{name: "probe without an expiry", fault: F{Kind: fault.OmitExpiry, Message: "probe"}, class: atMethod},
		row{name: "probe with an expiry of 0", fault: F{Kind: fault.WrongExpiry, Message: "probe"}, class: atMethod,
			uncalled: true},
		row{name: "exec with a short expiry", fault: F{Kind: fault.WrongExpiry, Message: "exec", Delay: time.Second},
			class: atMethod, uncalled: true},
		row{name: "exec without a probe", fault: F{Kind: fault.ExecWithoutProbe}, class: atMethod, uncalled: true},
		row{name: "exec twice", fault: F{Kind: fault.DuplicateDispatch, Message: "exec"}, class: atMethod},
		row{name: "exec with another ready id", fault: F{Kind: fault.GarbleDispatch, Message: "exec",
			Bytes: nextwire.Append(nil, &nextwire.Exec{ReadyID: make([]byte, 16)})}, class: atMethod, uncalled: true},
	))
}

func hexOf(code byte) string {
	const digits = "0123456789abcdef"
	return "0x" + string([]byte{digits[code>>4], digits[code&15]})
}

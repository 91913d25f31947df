package sim_test

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
)

var httpMatrix = matrix{
	protocol: testbroker.HTTP,
	engines:  []string{"http", "http/2"},
	rows:     httpRows(),
	ops: []op{
		{"open", func(_ engine, r row) bool {
			return r.reconnects() || r.class == always && r.fault.Kind != testbroker.Quota
		}, openOp, false},
		{"send one", func(_ engine, r row) bool {
			return r.class != atSettle && r.fault.Kind != testbroker.Throttle // a single request does not notice it
		}, sendOp(1), false},
		{"window", sends, sendOp(150), true}, // the status does not report a batch refused because of one message
		{"accept", looks, receiveOp(transport.Accept), false},
		{"release", looks, receiveOp(transport.Release), false},
		{"reject", looks, receiveOp(transport.Reject), false},
		{"renew", sends, renewOp, true},
		{"close", sends, closeOp, true},
		{"idle", func(_ engine, r row) bool {
			return r.fault.Kind == testbroker.HalfOpen || r.fault.Kind == testbroker.Absent
		}, idleOp, false},
	},
	rowless: map[testbroker.FaultKind]string{
		testbroker.Forget:      "a lie: see the simulation",
		testbroker.CutBlobBody: uploads, testbroker.SlowBlob: uploads, testbroker.DamageBlob: uploads,
		testbroker.ExpireUpload: uploads,
	},
}

// sends: faults that affect sending.
func sends(_ engine, r row) bool { return r.class != atSettle }

// looks: faults that affect receiving. A quota stops the sender, too.
func looks(_ engine, r row) bool {
	return r.reconnects() || r.class == atSettle || r.class == always && r.fault.Kind != testbroker.Quota
}

func httpRows() []row {
	type F = testbroker.Fault
	const telemetry, receive, settle = testbroker.RouteTelemetry, testbroker.RouteReceive, testbroker.RouteSettle
	var rows []row
	add := func(name string, class class, f F, k []transport.Kind, more ...func(*row)) {
		r := row{name: fmt.Sprintf("%v%s", f.Kind, name), fault: f, class: class, kinds: k}
		for _, m := range more {
			m(&r)
		}
		rows = append(rows, r)
	}
	terminal := func(r *row) { r.terminal = true }
	perhaps := func(r *row) { r.perhaps = true }
	refused := func(k transport.Kind) func(*row) { return func(r *row) { r.refused = kinds(k) } }

	// The first request on a connection, which authenticates the device.
	add(" 503", atConnect, F{Kind: testbroker.RefuseConnect, Times: 2}, kinds(unavailable))
	add(" 500", atConnect, F{Kind: testbroker.RefuseConnect, Status: 500}, kinds(unavailable))
	add(" 502", atConnect, F{Kind: testbroker.RefuseConnect, Status: 502}, kinds(unavailable))
	add(" 504", atConnect, F{Kind: testbroker.RefuseConnect, Status: 504}, kinds(timeout))
	add(" 408", atConnect, F{Kind: testbroker.RefuseConnect, Status: 408}, kinds(timeout))
	add(" 429", atConnect, F{Kind: testbroker.RefuseConnect, Status: 429, RetryAfter: 20 * time.Second}, kinds(throttled))
	add(" 429 and a date", atConnect, F{Kind: testbroker.RefuseConnect, Status: 429, RetryAfter: 20 * time.Second,
		RetryAfterDate: true}, kinds(throttled))
	add(" 403", atConnect, F{Kind: testbroker.RefuseConnect, Status: 403}, kinds(quota))
	add(" 401", atConnect, F{Kind: testbroker.RefuseConnect, Status: 401}, kinds(unauthorized), terminal)
	add(" 404", atConnect, F{Kind: testbroker.RefuseConnect, Status: 404}, kinds(notFound), terminal)
	add(" 405", atConnect, F{Kind: testbroker.RefuseConnect, Status: 405}, kinds(transport.Unsupported), terminal)
	add(" 302", atConnect, F{Kind: testbroker.RefuseConnect, Status: 302}, kinds(protocol), terminal)
	add(" 412", atConnect, F{Kind: testbroker.RefuseConnect, Status: 412}, nil) // the expected answer to that request
	add(" disabled", atConnect, F{Kind: testbroker.RefuseConnect, Status: 403, ErrorCode: 403012},
		kinds(transport.Forbidden), terminal)
	add(" failing over", atConnect, F{Kind: testbroker.RefuseConnect, Status: 404, ErrorCode: 404012}, kinds(unavailable))
	add("", atConnect, F{Kind: testbroker.SlowConnack, Delay: 3 * time.Second}, nil)
	add("", atConnect, F{Kind: testbroker.NoConnack}, kinds(timeout))
	add("", atConnect, F{Kind: testbroker.DropConnect}, kinds(network))

	// Polls for cloud-to-device messages, the first of which is part of a connect.
	for _, v := range byStatus(map[int]transport.Kind{401: unauthorized, 404: notFound, 405: transport.Unsupported}) {
		status, k := v.status, v.kind
		times := 1
		if status == 401 {
			times = 2 // the client answers a single one with another token
		}
		add(fmt.Sprintf(" %d, look", status), atSubscribe, F{Kind: testbroker.AnswerStatus, Statuses: []int{status},
			Times: times, Route: receive}, kinds(k), terminal)
	}
	for _, status := range []int{400, 408, 409, 412, 413, 415, 422, 429, 431, 500, 502, 503, 504} {
		// there will be another poll
		add(fmt.Sprintf(" %d, look", status), atSubscribe, F{Kind: testbroker.AnswerStatus, Statuses: []int{status},
			Route: receive}, nil)
	}
	add(" 503, look", atSubscribe, F{Kind: testbroker.AnswerStatusAfter, Route: receive}, nil)

	// Messages.
	for _, v := range byStatus(map[int]transport.Kind{
		403: quota, 408: timeout, 429: throttled, 500: unavailable, 502: unavailable, 503: unavailable, 504: timeout,
		507: quota, 599: unavailable,
	}) {
		status, k := v.status, v.kind
		add(fmt.Sprintf(" %d, message", status), atPublish, F{Kind: testbroker.AnswerStatus, Statuses: []int{status},
			Route: telemetry}, kinds(k))
		add(fmt.Sprintf(" %d, message", status), atPublish, F{Kind: testbroker.AnswerStatusAfter, Statuses: []int{status},
			Route: telemetry}, kinds(k))
	}
	for _, v := range byStatus(map[int]transport.Kind{404: notFound, 405: transport.Unsupported, 302: protocol,
		418: transport.Unknown}) {
		status, k := v.status, v.kind
		add(fmt.Sprintf(" %d, message", status), atPublish, F{Kind: testbroker.AnswerStatus, Statuses: []int{status},
			Route: telemetry}, kinds(k), terminal)
	}
	for _, v := range byStatus(map[int]transport.Kind{400: transport.Invalid, 409: transport.Conflict,
		413: transport.TooLarge, 415: transport.Unsupported, 422: transport.Invalid}) {
		status, k := v.status, v.kind
		add(fmt.Sprintf(" %d, message", status), atPublish, F{Kind: testbroker.AnswerStatus, Statuses: []int{status},
			Route: telemetry}, nil, refused(k))
	}
	// the client tries another token at once
	add(" 401 once, message", atPublish, F{Kind: testbroker.AnswerStatus, Statuses: []int{401}, Route: telemetry}, nil)
	add(" 401 twice, message", atPublish, F{Kind: testbroker.AnswerStatus, Statuses: []int{401}, Times: 2,
		Route: telemetry}, kinds(unauthorized))
	add(" 429 and its time, message", atPublish, F{Kind: testbroker.AnswerStatus, Statuses: []int{429},
		RetryAfter: 40 * time.Second, Route: telemetry}, kinds(throttled))
	add(" in turn, message", atPublish, F{Kind: testbroker.AnswerStatus, Statuses: []int{429, 500, 503}, Route: telemetry},
		kinds(throttled, unavailable))
	for _, kind := range []testbroker.FaultKind{testbroker.DropDuringPublish, testbroker.DropBeforePublish,
		testbroker.DropAfterPublish} {
		add("", atPublish, F{Kind: kind}, kinds(network))
	}
	// an orderly end of an idle connection is not a loss
	add("", atPublish, F{Kind: testbroker.DropAfterPuback}, kinds(network), perhaps)
	add("", atPublish, F{Kind: testbroker.DelayPuback, Delay: 3 * time.Second}, nil)
	add("", atPublish, F{Kind: testbroker.SwallowPuback}, kinds(timeout))
	add("", atPublish, F{Kind: testbroker.GarbageOnPublish}, kinds(network))

	// Faults of any request: messages, polls and verdicts.
	for _, at := range []struct {
		name  string
		class class
		route testbroker.RouteKind
	}{{", message", atPublish, telemetry}, {", look", atSubscribe, receive}, {", verdict", atSettle, settle}} {
		for _, f := range []struct {
			kind  testbroker.FaultKind
			kinds []transport.Kind
		}{
			{testbroker.ResetBeforeRequest, kinds(network)}, {testbroker.ResetAfterRequest, kinds(network)},
			{testbroker.NoAnswer, kinds(timeout)},
			{testbroker.DropDuringAnswer, kinds(network)}, {testbroker.GarbageAnswer, kinds(network)},
			{testbroker.SlowAnswer, nil}, {testbroker.WrongDate, nil},
		} {
			add(at.name, at.class, F{Kind: f.kind, Route: at.route, Delay: 3 * time.Second, Skew: -3 * time.Hour}, f.kinds)
		}
	}
	add(" ahead, message", atPublish, F{Kind: testbroker.WrongDate, Route: telemetry, Skew: 24 * time.Hour}, nil)

	// Verdicts: one that the hub refuses for the moment is repeated; one whose lock was lost is sent
	// with the next delivery.
	for _, status := range []int{302, 400, 405, 408, 409, 412, 413, 418, 429, 500, 503} {
		add(fmt.Sprintf(" %d, verdict", status), atSettle, F{Kind: testbroker.AnswerStatus, Statuses: []int{status},
			Route: settle}, nil)
		add(fmt.Sprintf(" %d, verdict", status), atSettle, F{Kind: testbroker.AnswerStatusAfter, Statuses: []int{status},
			Route: settle}, nil)
	}
	add(" 404, verdict", atSettle, F{Kind: testbroker.AnswerStatus, Statuses: []int{404}, Route: settle}, kinds(notFound),
		terminal)

	// An answer with a body is a refusal or a cloud-to-device message.
	add(", proof", atConnect, F{Kind: testbroker.NoContentLength, Route: settle}, nil)

	// States.
	add("", always, F{Kind: testbroker.HalfOpen, For: 20 * time.Second}, kinds(timeout, network))
	add("", always, F{Kind: testbroker.Throttle, Rate: 2, For: 20 * time.Second}, kinds(throttled), perhaps)
	add("", always, F{Kind: testbroker.Absent, For: 20 * time.Second}, kinds(network))
	add("", always, F{Kind: testbroker.Quota, Limit: -1, For: 20 * time.Second}, kinds(quota))
	return sorted(append(rows, belowRows()...))
}

// answered is a status and its Kind.
type answered struct {
	status int
	kind   transport.Kind
}

func byStatus(all map[int]transport.Kind) []answered {
	var list []answered
	for _, status := range slices.Sorted(maps.Keys(all)) {
		list = append(list, answered{status, all[status]})
	}
	return list
}

// uploads do not belong to a session.
const uploads = "about uploads: see the random faults of fileupload"

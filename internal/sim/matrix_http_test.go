package sim_test

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
)

var httpMatrix = matrix{
	protocol: hubdata.HTTP,
	engines:  []string{"http", "http/2"},
	rows:     httpRows(),
	ops: []op{
		{"open", func(_ engine, r row) bool {
			return r.reconnects() || r.class == always && r.fault.Kind != fault.Quota
		}, openOp, false},
		{"send one", func(_ engine, r row) bool {
			return r.class != atSettle && r.fault.Kind != fault.Throttle // a single request does not notice it
		}, sendOp(1), false},
		{"window", sends, sendOp(150), true}, // the status does not report a batch refused because of one message
		{"accept", looks, receiveOp(transport.OutcomeAccept), false},
		{"release", looks, receiveOp(transport.OutcomeRelease), false},
		{"reject", looks, receiveOp(transport.OutcomeReject), false},
		{"renew", sends, renewOp, true},
		{"close", sends, closeOp, true},
		{"idle", func(_ engine, r row) bool {
			return r.fault.Kind == fault.HalfOpen || r.fault.Kind == fault.Absent
		}, idleOp, false},
	},
	rowless: map[fault.Kind]string{
		fault.Forget:      "a lie: see the simulation",
		fault.CutBlobBody: uploads, fault.SlowBlob: uploads, fault.DamageBlob: uploads,
		fault.ExpireUpload: uploads,
	},
}

// sends: faults that affect sending.
func sends(_ engine, r row) bool { return r.class != atSettle }

// looks: faults that affect receiving. A quota stops the sender, too.
func looks(_ engine, r row) bool {
	return r.reconnects() || r.class == atSettle || r.class == always && r.fault.Kind != fault.Quota
}

// httpRowList collects the rows.
type httpRowList []row

// add adds a row. Its name begins with the kind of the fault.
func (l *httpRowList) add(name string, class class, f fault.Fault, k []transport.Kind, more ...func(*row)) {
	r := row{name: fmt.Sprintf("%v%s", f.Kind, name), fault: f, class: class, kinds: k}
	for _, m := range more {
		m(&r)
	}
	*l = append(*l, r)
}

func terminal(r *row) { r.terminal = true }
func perhaps(r *row)  { r.perhaps = true }

func refused(k transport.Kind) func(*row) { return func(r *row) { r.refused = kinds(k) } }

// Requests of a device.
const (
	telemetry = fault.RouteTelemetry
	receive   = fault.RouteReceive
	settle    = fault.RouteSettle
)

func httpRows() []row {
	var l httpRowList
	l.connects()
	l.polls()
	l.messages()
	l.requests()
	l.verdicts()
	l.states()
	return sorted(append(l, belowRows()...))
}

// connects adds faults of the first request on a connection, which authenticates the device.
func (l *httpRowList) connects() {
	type F = fault.Fault
	l.add(" 503", atConnect, F{Kind: fault.RefuseConnect, Times: 2}, kinds(unavailable))
	l.add(" 500", atConnect, F{Kind: fault.RefuseConnect, Status: 500}, kinds(unavailable))
	l.add(" 502", atConnect, F{Kind: fault.RefuseConnect, Status: 502}, kinds(unavailable))
	l.add(" 504", atConnect, F{Kind: fault.RefuseConnect, Status: 504}, kinds(timeout))
	l.add(" 408", atConnect, F{Kind: fault.RefuseConnect, Status: 408}, kinds(timeout))
	l.add(" 429", atConnect, F{Kind: fault.RefuseConnect, Status: 429, RetryAfter: 20 * time.Second},
		kinds(throttled))
	l.add(" 429 and a date", atConnect, F{Kind: fault.RefuseConnect, Status: 429, RetryAfter: 20 * time.Second,
		RetryAfterDate: true}, kinds(throttled))
	l.add(" 403", atConnect, F{Kind: fault.RefuseConnect, Status: 403}, kinds(quota))
	l.add(" 401", atConnect, F{Kind: fault.RefuseConnect, Status: 401}, kinds(unauthorized), terminal)
	l.add(" 404", atConnect, F{Kind: fault.RefuseConnect, Status: 404}, kinds(notFound), terminal)
	l.add(" 405", atConnect, F{Kind: fault.RefuseConnect, Status: 405}, kinds(transport.Unsupported), terminal)
	l.add(" 302", atConnect, F{Kind: fault.RefuseConnect, Status: 302}, kinds(protocol), terminal)
	l.add(" 412", atConnect, F{Kind: fault.RefuseConnect, Status: 412}, nil) // the expected answer to that request
	l.add(" disabled", atConnect, F{Kind: fault.RefuseConnect, Status: 403, ErrorCode: 403012},
		kinds(transport.Forbidden), terminal)
	l.add(" failing over", atConnect, F{Kind: fault.RefuseConnect, Status: 404, ErrorCode: 404012},
		kinds(unavailable))
	l.add("", atConnect, F{Kind: fault.SlowConnack, Delay: 3 * time.Second}, nil)
	l.add("", atConnect, F{Kind: fault.SwallowConnack}, kinds(timeout))
	l.add("", atConnect, F{Kind: fault.DropConnect}, kinds(network))
}

// polls adds faults of polls for cloud-to-device messages, the first of which is part of a connect.
func (l *httpRowList) polls() {
	type F = fault.Fault
	for _, v := range byStatus(map[int]transport.Kind{401: unauthorized, 404: notFound}) {
		status, k := v.status, v.kind
		times := 1
		if status == 401 {
			times = 2 // the client answers a single one with another token
		}
		l.add(fmt.Sprintf(" %d, look", status), atSubscribe, F{Kind: fault.AnswerStatus, Statuses: []int{status},
			Times: times, Route: receive}, kinds(k), terminal)
	}
	// There will be another poll. Until then the status says what the hub does not have.
	for _, status := range []int{400, 405, 409, 412, 413, 415, 418, 422, 431, 501} {
		l.add(fmt.Sprintf(" %d, look", status), atSubscribe, F{Kind: fault.AnswerStatus, Statuses: []int{status},
			Route: receive}, kinds(transport.Unsupported))
	}
	for _, status := range []int{408, 429, 500, 502, 503, 504} {
		l.add(fmt.Sprintf(" %d, look", status), atSubscribe, F{Kind: fault.AnswerStatus, Statuses: []int{status},
			Route: receive}, nil)
	}
	l.add(" 503, look", atSubscribe, F{Kind: fault.AnswerStatusAfter, Route: receive}, nil)
}

// messages adds faults of telemetry.
func (l *httpRowList) messages() {
	type F = fault.Fault
	for _, v := range byStatus(map[int]transport.Kind{
		403: quota, 408: timeout, 429: throttled, 500: unavailable, 502: unavailable, 503: unavailable, 504: timeout,
		507: quota, 599: unavailable,
	}) {
		status, k := v.status, v.kind
		l.add(fmt.Sprintf(" %d, message", status), atPublish, F{Kind: fault.AnswerStatus, Statuses: []int{status},
			Route: telemetry}, kinds(k))
		l.add(fmt.Sprintf(" %d, message", status), atPublish, F{Kind: fault.AnswerStatusAfter, Statuses: []int{status},
			Route: telemetry}, kinds(k))
	}
	for _, v := range byStatus(map[int]transport.Kind{404: notFound, 405: transport.Unsupported, 302: protocol,
		418: transport.Unknown}) {
		status, k := v.status, v.kind
		l.add(fmt.Sprintf(" %d, message", status), atPublish, F{Kind: fault.AnswerStatus, Statuses: []int{status},
			Route: telemetry}, kinds(k), terminal)
	}
	for _, v := range byStatus(map[int]transport.Kind{400: transport.Invalid, 409: transport.Conflict,
		413: transport.TooLarge, 415: transport.Unsupported, 422: transport.Invalid}) {
		status, k := v.status, v.kind
		l.add(fmt.Sprintf(" %d, message", status), atPublish, F{Kind: fault.AnswerStatus, Statuses: []int{status},
			Route: telemetry}, nil, refused(k))
	}
	// the client tries another token at once
	l.add(" 401 once, message", atPublish, F{Kind: fault.AnswerStatus, Statuses: []int{401}, Route: telemetry}, nil)
	l.add(" 401 twice, message", atPublish, F{Kind: fault.AnswerStatus, Statuses: []int{401}, Times: 2,
		Route: telemetry}, kinds(unauthorized))
	l.add(" 429 and its time, message", atPublish, F{Kind: fault.AnswerStatus, Statuses: []int{429},
		RetryAfter: 40 * time.Second, Route: telemetry}, kinds(throttled))
	l.add(" in turn, message", atPublish, F{Kind: fault.AnswerStatus, Statuses: []int{429, 500, 503},
		Route: telemetry},
		kinds(throttled, unavailable))
	for _, kind := range []fault.Kind{fault.DropDuringPublish, fault.DropBeforePublish,
		fault.DropAfterPublish} {
		l.add("", atPublish, F{Kind: kind}, kinds(network))
	}
	// an orderly end of an idle connection is not a loss
	l.add("", atPublish, F{Kind: fault.DropAfterPuback}, kinds(network), perhaps)
	l.add("", atPublish, F{Kind: fault.SlowPuback, Delay: 3 * time.Second}, nil)
	l.add("", atPublish, F{Kind: fault.SwallowPuback}, kinds(timeout))
	l.add("", atPublish, F{Kind: fault.GarbageOnPublish}, kinds(network))
}

// requests adds faults of any request: messages, polls and verdicts.
func (l *httpRowList) requests() {
	type F = fault.Fault
	for _, at := range []struct {
		name  string
		class class
		route fault.RouteKind
	}{{", message", atPublish, telemetry}, {", look", atSubscribe, receive}, {", verdict", atSettle, settle}} {
		for _, f := range []struct {
			kind  fault.Kind
			kinds []transport.Kind
		}{
			{fault.ResetBeforeRequest, kinds(network)}, {fault.ResetAfterRequest, kinds(network)},
			{fault.SwallowAnswer, kinds(timeout)},
			{fault.DropDuringAnswer, kinds(network)}, {fault.GarbageAnswer, kinds(network)},
			{fault.SlowAnswer, nil}, {fault.WrongDate, nil},
		} {
			l.add(at.name, at.class, F{Kind: f.kind, Route: at.route, Delay: 3 * time.Second, Skew: -3 * time.Hour}, f.kinds)
		}
	}
	l.add(" ahead, message", atPublish, F{Kind: fault.WrongDate, Route: telemetry, Skew: 24 * time.Hour}, nil)
}

// verdicts adds faults of verdicts. One that the hub refuses for the moment is repeated; one whose
// lock was lost is sent with the next delivery.
func (l *httpRowList) verdicts() {
	type F = fault.Fault
	for _, status := range []int{302, 400, 405, 408, 409, 412, 413, 418, 429, 500, 503} {
		l.add(fmt.Sprintf(" %d, verdict", status), atSettle, F{Kind: fault.AnswerStatus, Statuses: []int{status},
			Route: settle}, nil)
		l.add(fmt.Sprintf(" %d, verdict", status), atSettle, F{Kind: fault.AnswerStatusAfter, Statuses: []int{status},
			Route: settle}, nil)
	}
	l.add(" 404, verdict", atSettle, F{Kind: fault.AnswerStatus, Statuses: []int{404}, Route: settle},
		kinds(notFound),
		terminal)

	// An answer with a body is a refusal or a cloud-to-device message.
	l.add(", proof", atConnect, F{Kind: fault.NoContentLength, Route: settle}, nil)
}

// states adds states of the hub and the network.
func (l *httpRowList) states() {
	type F = fault.Fault
	l.add("", always, F{Kind: fault.HalfOpen, For: 20 * time.Second}, kinds(timeout, network))
	l.add("", always, F{Kind: fault.Throttle, Rate: 2, For: 20 * time.Second}, kinds(throttled), perhaps)
	l.add("", always, F{Kind: fault.Absent, For: 20 * time.Second}, kinds(network))
	l.add("", always, F{Kind: fault.Quota, Limit: -1, For: 20 * time.Second}, kinds(quota))
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

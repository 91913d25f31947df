package sim_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// plan holds all random choices of one run, drawn before it begins.
type plan struct {
	seed       uint64
	engine     engine // not drawn: each plan runs with all engines, plus faults of the engine's protocol
	tls        bool
	window     int
	maxOutbox  int
	ackTimeout time.Duration
	stable     time.Duration
	policy     string
	// tokenLife is the validity of tokens. Many runs renew some of them during faults. A connection
	// must live longer than the slowest handler of a cloud-to-device message runs, otherwise the
	// message could not be settled.
	tokenLife time.Duration
	// reopenAfter is the interval at which the application opens a client that gave up.
	reopenAfter time.Duration
	steps       []step
	length      time.Duration
	tail        time.Duration // from the last step to the end of all faults
	hidden      bool          // the ledger does not know that the hub swallows notifications
}

// step is one event at its own time.
type step struct {
	at   time.Duration
	what action
	// messages
	count   int
	expires time.Duration // 0: never
	size    int
	timeout time.Duration // of Send, of a call about the twin, of an answer to a method
	connect time.Duration // how long a method call waits for the device to connect
	// faults
	fault fault.Fault
}

type action uint8

const (
	enqueue action = iota
	send           // count concurrent calls of Send
	inject
	drop
	reconnect
	newPolicy
	message // count messages from the cloud
	detach  // over AMQP the hub ends the target of fault: links, or the session, or the connection
	end
	hangUp
	desire // count changes of the desired properties
	call   // count calls of a method
	report // count patches of the reported properties, sequentially
	read   // count reads of the twin, concurrently

	// With a provisioning service:

	injectService     // a fault of the service
	move              // to hub count; the old one keeps (size 0), removes or disables the device
	remove            // the device from its hub
	rename            // the device, for the next registration
	renewKey          // replace the first key of the enrollment and of the device
	disable           // the device at its hub, for timeout
	disableEnrollment // for timeout
	unenroll          // delete the enrollment, and enroll again after timeout
	restart           // end the device's process, and begin another one after timeout

	actions
)

func (a action) String() string {
	return [actions]string{"enqueue", "send", "inject", "drop", "reconnect", "new policy", "message", "detach", "end",
		"hang up", "desire", "call", "report", "read",
		"inject at the service", "move", "remove", "rename", "renew key", "disable", "disable enrollment", "unenroll",
		"restart"}[a]
}

func (s step) String() string {
	text := fmt.Sprintf("%14v %v", s.at, s.what)
	switch s.what {
	case enqueue:
		text += fmt.Sprintf(" %d of %d B, expiry %v", s.count, s.size, s.expires)
	case send:
		text += fmt.Sprintf(" %d of %d B, time-out %v", s.count, s.size, s.timeout)
	case message, desire:
		text += fmt.Sprintf(" %d", s.count)
	case call, report, read:
		text += fmt.Sprintf(" %d, time-out %v, connecting %v", s.count, s.timeout, s.connect)
	case move:
		text += fmt.Sprintf(" to %s, %d", hubName(s.count), s.size)
	case disable, disableEnrollment, unenroll:
		text += fmt.Sprintf(" for %v", s.timeout)
	case inject, injectService:
		text += fmt.Sprintf(" %+v", s.fault)
	case detach, end, hangUp:
		text += fmt.Sprintf(" %v %s", s.fault.Link, s.fault.Condition)
	}
	return text
}

func (p *plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, %s: tls %v, window %d, queue %d, ack time-out %v, stable %v, token life %v, policy %s\n",
		p.seed, p.engine.name, p.tls, p.window, p.maxOutbox, p.ackTimeout, p.stable, p.tokenLife, p.policy)
	for _, s := range p.steps {
		b.WriteString(s.String() + "\n")
	}
	return b.String()
}

func drawPlan(seed uint64, e engine) *plan {
	p := drawCommon(seed)
	p.engine = e
	p.tls = p.tls || e.name == "http/2" // which takes TLS
	p.tokenLife = durations(rand.New(rand.NewPCG(seed, 4)))(2*time.Minute, 4*time.Minute)
	if draw := drawers[e.protocol]; draw != nil {
		draw(p, rand.New(rand.NewPCG(seed, 100+uint64(e.protocol))))
	}
	if e.five {
		drawFive(p, rand.New(rand.NewPCG(seed, 5)))
	}
	if e.next {
		drawNext(p, rand.New(rand.NewPCG(seed, 6)))
	}
	if e.twins {
		drawTwin(p, rand.New(rand.NewPCG(seed, 3)))
	}
	slices.SortStableFunc(p.steps, func(a, b step) int { return cmp.Compare(a.at, b.at) })
	return p
}

// drawers add steps that only one protocol has.
var drawers = map[hubdata.Protocol]func(p *plan, r *rand.Rand){hubdata.AMQP: drawAMQP, hubdata.HTTP: drawHTTP}

// drawCommon draws the steps that all engines share.
func drawCommon(seed uint64) *plan {
	r := rand.New(rand.NewPCG(seed, 1))
	between := durations(r)
	p := &plan{
		seed: seed, tls: seed%10 == 9,
		window: 1 + r.IntN(100), maxOutbox: 10 + r.IntN(300),
		ackTimeout: between(3*time.Second, 40*time.Second), stable: between(time.Second, time.Minute),
		policy: []string{"documented", "constant"}[r.IntN(2)],
	}
	p.length = between(4*time.Minute, 15*time.Minute)
	add := func(s step) {
		s.at = between(0, p.length)
		p.steps = append(p.steps, s)
	}
	for range 5 + r.IntN(15) {
		s := step{what: enqueue, count: 1 + r.IntN(30), size: 20 + r.IntN(3000)}
		if r.IntN(4) == 0 {
			s.expires = between(time.Millisecond, time.Minute)
		}
		add(s)
	}
	for range r.IntN(5) {
		add(step{what: send, count: 1 + r.IntN(4), size: 20 + r.IntN(200), timeout: between(time.Second, 2*time.Minute)})
	}
	for range 2 + r.IntN(12) {
		add(step{what: inject, fault: drawFault(r, between)})
	}
	for range r.IntN(4) {
		add(step{what: drop})
	}
	for range r.IntN(3) {
		add(step{what: reconnect})
	}
	if r.IntN(3) == 0 {
		add(step{what: newPolicy})
	}
	for range r.IntN(8) {
		add(step{what: message, count: 1 + r.IntN(12)})
	}
	p.tail = between(time.Second, time.Minute)
	p.reopenAfter = between(time.Second, 30*time.Second)
	return p
}

func durations(r *rand.Rand) func(from, to time.Duration) time.Duration {
	return func(from, to time.Duration) time.Duration { return from + time.Duration(r.Int64N(int64(to-from))) }
}

func drawFault(r *rand.Rand, between func(from, to time.Duration) time.Duration) fault.Fault {
	kinds := []fault.Kind{
		fault.RefuseConnect, fault.SlowConnack, fault.SwallowConnack, fault.DropConnect,
		fault.DropDuringPublish, fault.DropBeforePublish, fault.DropAfterPublish, fault.DropAfterPuback,
		fault.SlowPuback, fault.SwallowPuback, fault.HalfOpen, fault.Throttle, fault.Absent,
	}
	f := fault.Fault{Kind: kinds[r.IntN(len(kinds))], After: r.IntN(20), Times: 1 + r.IntN(5)}
	if r.IntN(4) == 0 {
		f.Probability = 0.1 + 0.8*r.Float64()
	}
	switch f.Kind {
	case fault.RefuseConnect:
		f.Code = []byte{1, 2, 3, 3, 3, 4, 5, 6, 200}[r.IntN(9)]
		f.After = 0
	case fault.SlowConnack, fault.SwallowConnack, fault.DropConnect:
		f.After = r.IntN(2)
	case fault.HalfOpen, fault.Throttle, fault.Absent:
		f = fault.Fault{Kind: f.Kind, For: between(time.Second, 90*time.Second)}
		if f.Kind == fault.Throttle {
			f.Rate, f.Limit = 1+30*r.Float64(), 5+r.IntN(60)
		}
	}
	f.Delay = between(time.Millisecond, 20*time.Second)
	return f
}

// drawAMQP adds faults at connections, sessions, links and messages of AMQP.
func drawAMQP(p *plan, r *rand.Rand) {
	between := durations(r)
	links := []fault.LinkKind{fault.LinkAny, fault.LinkTelemetry, fault.LinkC2D,
		fault.LinkCBSSender, fault.LinkCBSReceiver}
	// Conditions with which the hub ends something or refuses messages. Empty: the fault's default.
	conditions := []string{
		"", "", "amqp:internal-error", "amqp:connection:forced", "amqp:connection:framing-error",
		"amqp:session:window-violation", "amqp:link:detach-forced", "amqp:link:stolen",
		"amqp:not-allowed", "amqp:decode-error", "amqp:not-found", "amqp:unauthorized-access", "amqp:resource-limit-exceeded",
		"com.microsoft:device-container-throttled", "com.example:odd",
	}
	kinds := []fault.Kind{
		fault.RefuseConnect, fault.GarbageOnConnect, fault.GarbageOnPublish,
		fault.RefuseAttach, fault.SlowAttach, fault.SwallowAttach, fault.DropOnAttach,
		fault.WithholdCredit, fault.DetachWhileIdle,
		fault.RejectMessage, fault.ReleaseMessage, fault.ModifyMessage, fault.CloseOnMessage,
		fault.EndOnMessage, fault.DetachOnMessage, fault.DetachAfterMessage,
		fault.RefuseSASL, fault.RefuseToken, fault.SlowToken, fault.SwallowToken, fault.DropOnToken,
	}
	for range r.IntN(12) {
		s := step{at: between(0, p.length), what: inject}
		s.fault = fault.Fault{
			Kind: kinds[r.IntN(len(kinds))], After: r.IntN(4), Times: 1 + r.IntN(3), Delay: between(time.Millisecond,
				20*time.Second),
			Condition: conditions[r.IntN(len(conditions))], Link: links[r.IntN(len(links))],
			Unclosed: r.IntN(5) == 0, UndeliverableHere: r.IntN(3) == 0,
			Status: []int{0, 400, 403, 404, 408, 429, 500, 503, 599}[r.IntN(9)], Code: byte(r.IntN(5)),
		}
		if r.IntN(4) == 0 {
			s.fault.Probability = 0.1 + 0.8*r.Float64()
		}
		if r.IntN(8) == 0 {
			s.fault.Delay = 0
		}
		p.steps = append(p.steps, s)
	}
	for range r.IntN(5) {
		p.steps = append(p.steps, step{
			at: between(0, p.length), what: []action{detach, detach, end, hangUp}[r.IntN(4)],
			fault: fault.Fault{Condition: conditions[r.IntN(len(conditions))], Link: links[r.IntN(len(links))]},
		})
	}
}

// drawFive adds faults of MQTT 5.
func drawFive(p *plan, r *rand.Rand) {
	between := durations(r)
	kinds := []fault.Kind{
		fault.RefuseConnect, fault.RefusePublish, fault.RefusePublish, fault.DisconnectOnPublish,
		fault.DisconnectOnPublish, fault.DisconnectWhileIdle, fault.DropOnReceipt, fault.DropOnReceipt, fault.RefuseSubscribe,
		fault.ForgetSession, fault.SlowAuth, fault.SwallowAuth, fault.RefuseAuth,
	}
	codes := []byte{0, 0, 0x80, 0x82, 0x83, 0x87, 0x89, 0x8b, 0x8e, 0x93, 0x97, 0x98, 0x99, 0x9c, 0x9d, 0xa0, 0xff}
	for range r.IntN(12) {
		s := step{at: between(0, p.length), what: inject}
		s.fault = fault.Fault{
			Kind: kinds[r.IntN(len(kinds))], Code: codes[r.IntN(len(codes))], After: r.IntN(4), Times: 1 + r.IntN(3),
			Delay: between(time.Millisecond, 20*time.Second), Description: "because", ServerReference: "other.example.test:8883",
		}
		if s.fault.Kind == fault.RefusePublish {
			s.fault.Code = []byte{0, 0x80, 0x83, 0x87, 0x97, 0x99}[r.IntN(6)] // those that a PUBACK may have
		}
		if r.IntN(4) == 0 {
			s.fault.Probability = 0.1 + 0.8*r.Float64()
		}
		p.steps = append(p.steps, s)
	}
}

// drawNext adds faults of the MQTT v5 profile. There are no messages to the device.
func drawNext(p *plan, r *rand.Rand) {
	between := durations(r)
	p.steps = slices.DeleteFunc(p.steps, func(s step) bool { return s.what == message })
	kinds := fault.MQTTv5Kinds()
	messages := []string{"", "birth-ack", "twin-push", "desired-patch", "get-response", "reported-patch-response",
		"probe", "probe", "exec", "exec"}
	for range r.IntN(16) {
		p.steps = append(p.steps, step{at: between(0, p.length), what: inject, fault: fault.Fault{
			Kind: kinds[r.IntN(len(kinds))], Message: messages[r.IntN(len(messages))], After: r.IntN(3), Times: 1 + r.IntN(3),
			Delay: between(time.Millisecond, 10*time.Second),
		}})
	}
}

// swallowsDesired reports whether f makes notifications of desired properties useless.
func swallowsDesired(f fault.Fault) bool {
	switch f.Kind {
	case fault.SwallowDesired:
		return true
	case fault.SwallowDispatch, fault.MisnameDispatch, fault.RetypeDispatch, fault.GarbleDispatch, fault.SlowDispatch:
		return f.Message == "" || f.Message == "desired-patch"
	}
	return false
}

// drawHTTP adds faults of requests.
func drawHTTP(p *plan, r *rand.Rand) {
	between := durations(r)
	routes := []fault.RouteKind{fault.RouteAny, fault.RouteTelemetry, fault.RouteReceive,
		fault.RouteSettle}
	kinds := []fault.Kind{
		fault.RefuseConnect, fault.AnswerStatus, fault.AnswerStatus, fault.AnswerStatus,
		fault.AnswerStatusAfter, fault.AnswerStatusAfter,
		fault.ResetBeforeRequest, fault.ResetAfterRequest, fault.SwallowAnswer, fault.DropDuringAnswer,
		fault.SlowAnswer, fault.GarbageAnswer,
		fault.WrongDate, fault.NoContentLength, fault.GarbageOnPublish,
	}
	statuses := []int{0, 302, 401, 401, 403, 404, 405, 408, 429, 429, 500, 502, 503, 503, 504, 599}
	for range r.IntN(16) {
		s := step{at: between(0, p.length), what: inject}
		s.fault = fault.Fault{
			Kind: kinds[r.IntN(len(kinds))], After: r.IntN(4), Times: 1 + r.IntN(4), Delay: between(time.Millisecond,
				20*time.Second), Route: routes[r.IntN(len(routes))],
			Status: []int{0, 401, 403, 404, 429, 500, 503, 599}[r.IntN(8)], RetryAfterDate: r.IntN(2) == 0,
			Skew: between(-12*time.Hour, 12*time.Hour),
		}
		if s.fault.Kind == fault.AnswerStatus || s.fault.Kind == fault.AnswerStatusAfter {
			for range 1 + r.IntN(4) {
				s.fault.Statuses = append(s.fault.Statuses, statuses[r.IntN(len(statuses))])
			}
			if s.fault.Route == fault.RouteTelemetry && r.IntN(3) == 0 && s.fault.Kind == fault.AnswerStatus {
				s.fault.Statuses = []int{400, 413}[:1+r.IntN(2)]
			}
		}
		if r.IntN(3) == 0 {
			s.fault.RetryAfter = between(0, time.Minute)
		}
		if r.IntN(4) == 0 {
			s.fault.Probability = 0.1 + 0.8*r.Float64()
		}
		p.steps = append(p.steps, s)
	}
}

// refuses reports whether messages may fail because of f, at most as many as it fires.
func refuses(f fault.Fault) bool {
	switch f.Kind {
	case 0, fault.DetachWhileIdle, fault.RejectMessage, fault.DetachOnMessage,
		fault.DetachAfterMessage, fault.EndOnMessage:
		return f.Condition == "amqp:not-allowed" || f.Condition == "amqp:decode-error" || f.Condition == "com.example:odd"
	case fault.RefusePublish: // codes for which a resend is no help
		return f.Code == 0x87 || f.Code == 0x99
	case fault.ModifyMessage:
		return f.UndeliverableHere
	case fault.AnswerStatus:
		return slices.Contains(f.Statuses, 400)
	}
	return false
}

// has reports whether the plan injects a kind of fault.
func (p *plan) has(k fault.Kind) bool {
	return slices.ContainsFunc(p.steps, func(s step) bool { return s.what == inject && s.fault.Kind == k })
}

// trials reports whether the faults end so many connections at messages that one may be suspected
// as poison, and another one go first.
func (p *plan) trials() bool {
	times := 0
	for _, s := range p.steps {
		if s.what == inject && strings.HasPrefix(s.fault.Kind.String(), "Drop") {
			times += max(1, s.fault.Times)
		}
	}
	return times >= 7
}

// marks reports whether repeated messages have a mark. AMQP has none. MQTT 5 has it until the
// message is answered or the session ends.
func (p *plan) marks() bool {
	return p.engine.protocol == hubdata.MQTT && !p.engine.unmarked && !p.has(fault.ForgetSession) &&
		!p.has(fault.RefusePublish) && !p.has(fault.WrongSessionPresent)
}

// lies reports whether the hub accepts requests and then refuses them over HTTP, with an
// unambiguous status.
func (p *plan) lies() bool {
	return slices.ContainsFunc(p.steps, func(s step) bool {
		return s.fault.Kind == fault.AnswerStatusAfter && slices.ContainsFunc(s.fault.Statuses,
			func(status int) bool { return status < 500 && status != 408 })
	})
}

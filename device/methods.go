package device

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/internal/callback"
	"github.com/hubline-iot/hubline/internal/jsonscan"
	"github.com/hubline-iot/hubline/internal/lifetime"
	"github.com/hubline-iot/hubline/transport"
)

// MethodCall is a call of a direct method.
type MethodCall struct {
	Name string
	// Body is a JSON value, or empty.
	Body []byte
}

// MethodHandler runs a direct method and returns its answer: a status of its choice, an int32 (200
// is usual for success), and a JSON value, or nothing. The handler may keep and change m. ctx ends
// when the client is closed or the caller gives up. A classic hub does not say when that is, and
// Options.MethodTimeout after the call came counts. A later answer is still sent there.
type MethodHandler func(ctx context.Context, m *MethodCall) (status int, body []byte)

const (
	// methodsWaiting is how many calls may wait while Options.MethodLimit calls run.
	methodsWaiting = 16
	// methodsKnown is how many calls of a session are remembered, ended ones included, to detect a
	// call that is delivered twice.
	methodsKnown = 32
	// methodsUnsent limits the answers that wait for a session that takes none: this many of
	// handlers, beyond those of the calls that run and wait, and this many refusals.
	methodsUnsent = 32
	// methodsBytes limits the total size of the bodies of calls and answers. Up to MethodLimit answers
	// may exceed it.
	methodsBytes = 4 << 20
	// maxMethodName is the maximum length in bytes of a call's name and of its reference. Hubs use a
	// fraction of it.
	maxMethodName = 1 << 10
	// maxPayload is the maximum size in bytes of a method's request or answer that a hub takes
	// ("Understand and invoke direct methods from IoT Hub").
	maxPayload = 128 << 10
)

// Statuses of the client's own answers.
const (
	statusNoMethod = 404
	statusTooLarge = 413 // too large for the session's buffer
	statusFailed   = 500 // the handler panicked, or its answer is invalid
	statusBusy     = 503
)

const (
	tooManyCalls = `{"message":"the device has too many pending calls"}`
	tooLateToRun = `{"message":"the device was too busy to run the call in its time"}`
)

type handler struct {
	name   string
	handle MethodHandler
}

// methods is the feature for direct methods: a monitor of the pending calls. Each handler runs on
// its own goroutine; the loop hands answers to the session.
type methods struct {
	poke func()
	set  *settings
	ctx  *lifetime.Context // of handlers; ends with Close

	mu       sync.Mutex
	handlers []handler
	session  uint32
	up       bool   // the session counts as up: the loop takes answers
	gone     bool   // the session has ended, and the loop has not heard of it
	id       uint32 // of the latest answer, without the methodIDs bit
	waiting  []*methodRun
	running  int
	answers  []methodAnswer
	unsent   int           // answers of handlers in answers; the others are refusals
	bytes    int           // of the bodies in waiting, in running calls and in answers
	known    []*methodRef  // of the session: all pending ones, and the latest that ended
	ended    chan struct{} // Close waits for it: closed when no handler runs and no answer can go; else nil
	totals   struct{ calls, refused, lost, doubled, panics uint64 }
}

type methodRun struct {
	call    MethodCall
	handle  MethodHandler
	ref     *methodRef
	session uint32
	until   time.Time // its deadline
	size    int       // of the body as received; the handler may change the body
}

// methodRef is the hub's reference for a call.
type methodRef struct {
	text  []byte
	name  string
	ended bool
	once  bool   // its answer goes to any session
	sent  uint32 // the request id of its answer; 0: not handed over, or reported lost
}

type methodAnswer struct {
	ref     *methodRef
	status  int
	body    []byte
	refusal bool // of a call that did not run
}

// methodIDs is the bit that marks the request ids of answers. Twin requests have lower ids.
const methodIDs = 1 << 31

// deliver handles a call.
func (m *methods) deliver(d *transport.Delivery) bool {
	if d.Kind != transport.FeatureMethods {
		return false
	}
	if len(d.Name) > maxMethodName || len(d.Ref) > maxMethodName {
		return false
	}
	m.mu.Lock()
	var taken bool
	answered := true
	if d.Probe != nil {
		taken = m.wouldRunLocked(d)
	} else {
		taken, answered = m.takeLocked(d)
	}
	m.mu.Unlock()
	if !answered {
		m.lost(string(d.Name))
	}
	if t := m.set.Trace; d.Probe != nil && !taken && t != nil && t.MethodRefused != nil {
		name, why := string(d.Name), *d.Probe
		_ = callback.Run("Trace.MethodRefused", func() { t.MethodRefused(name, why) })
	}
	return taken
}

// takeLocked runs, queues or refuses a call. answered is false when even the refusal has no room.
func (m *methods) takeLocked(d *transport.Delivery) (taken, answered bool) {
	if slices.ContainsFunc(m.known, func(ref *methodRef) bool { return string(ref.text) == string(d.Ref) }) {
		m.totals.doubled++
		return true, true
	}
	if m.ctx.Err() != nil {
		return false, true
	}
	handle := m.handlerOfLocked(string(d.Name))
	status, why := 0, ""
	switch {
	case d.Msg == nil:
		status, why = statusTooLarge, `{"message":"the device has no room for a call of that size"}`
	case handle == nil:
		status, why = statusNoMethod, `{"message":"the device has no such method"}`
	case m.fullLocked(len(d.Msg.Body)):
		status, why = statusBusy, tooManyCalls
	}
	if status != 0 && !m.roomToRefuseLocked() {
		return true, false
	}
	r := &methodRun{
		call: MethodCall{Name: string(d.Name)}, session: m.session, handle: handle,
		until: time.Now().Add(m.set.MethodTimeout),
	}
	if d.Msg != nil && !d.Msg.Expires.IsZero() {
		r.until = d.Msg.Expires
	}
	r.ref = &methodRef{text: append([]byte(nil), d.Ref...), name: r.call.Name, once: d.Once}
	m.rememberLocked(r.ref)
	if status != 0 {
		m.refuseLocked(r, status, why)
		return true, true
	}
	r.call.Body = append([]byte(nil), d.Msg.Body...)
	r.size = len(r.call.Body)
	m.bytes += r.size
	m.totals.calls++
	if m.running < m.set.MethodLimit {
		m.running++
		m.poke() // the loop serves a handler during a token renewal: see drains
		go m.run(r)
	} else {
		m.waiting = append(m.waiting, r)
	}
	return true, true
}

// wouldRunLocked answers a question about a call, or counts what the session has refused.
func (m *methods) wouldRunLocked(d *transport.Delivery) bool {
	switch {
	case *d.Probe == transport.Conflict:
		m.totals.doubled++
		return false
	case *d.Probe != transport.Unknown: // the session has refused it
	case m.handlerOfLocked(string(d.Name)) == nil:
		*d.Probe = transport.NotFound
	case m.ctx.Err() != nil || m.fullLocked(0):
		*d.Probe = transport.Throttled
	default:
		return true
	}
	m.totals.refused++
	return false
}

// fullLocked reports whether there is no room for a call with a body of size bytes.
func (m *methods) fullLocked(size int) bool {
	return m.bytes+size > methodsBytes ||
		m.running+len(m.waiting)+m.unsent >= m.set.MethodLimit+methodsWaiting+methodsUnsent ||
		m.running == m.set.MethodLimit && len(m.waiting) == methodsWaiting
}

func (m *methods) roomToRefuseLocked() bool { return len(m.answers)-m.unsent < methodsUnsent }

// rememberLocked adds a call to the known ones, and forgets the oldest ended one when there are
// many.
func (m *methods) rememberLocked(ref *methodRef) {
	if len(m.known) >= methodsKnown {
		if i := slices.IndexFunc(m.known, func(k *methodRef) bool { return k.ended }); i >= 0 {
			m.known = slices.Delete(m.known, i, i+1)
		}
	}
	m.known = append(m.known, ref)
}

func (m *methods) handlerOfLocked(name string) MethodHandler {
	var other MethodHandler
	for _, h := range m.handlers {
		switch h.name {
		case name:
			return h.handle
		case "":
			other = h.handle
		}
	}
	return other
}

// refuseLocked answers a call that is not run. roomToRefuseLocked is true.
func (m *methods) refuseLocked(r *methodRun, status int, body string) {
	m.totals.refused++
	r.ref.ended = true
	m.answerLocked(methodAnswer{r.ref, status, []byte(body), true})
}

// answerLocked queues an answer to a call of the current session for the loop.
func (m *methods) answerLocked(a methodAnswer) {
	if !a.refusal {
		m.unsent++
	}
	m.bytes += len(a.body)
	m.answers = append(m.answers, a)
	m.poke()
}

// run runs calls until none waits, and ends. Up to MethodLimit of it run at a time.
func (m *methods) run(r *methodRun) {
	var status int
	var body []byte
	done := false
	defer func() { // also when the handler ends the goroutine
		m.mu.Lock()
		defer m.mu.Unlock()
		r.ref.ended = true
		m.bytes -= r.size
		if !done {
			m.totals.panics++
			status, body = statusFailed, []byte(`{"message":"the method failed"}`)
		}
		if r.session == m.session || r.ref.once {
			m.answerLocked(methodAnswer{r.ref, status, body, false})
		} else {
			m.mu.Unlock()
			m.lost(r.call.Name)
			m.mu.Lock()
		}
		if next := m.nextLocked(time.Now()); next != nil {
			go m.run(next)
			return
		}
		m.running--
		m.endLocked()
	}()
	ctx, end := lifetime.WithinTime(m.ctx, time.Until(r.until))
	defer end()
	panicked := callback.Protect(func() { status, body = r.handle(ctx, &r.call) }, m.set.Trace.handlerPanic)
	switch {
	case panicked:
		return
	case int(int32(status)) != status: // the integer that AMQP carries, and that hubs read over MQTT
		status, body = m.badAnswer(r, "has a status that is no number of 32 bits")
	case len(body) > maxPayload:
		status, body = m.badAnswer(r, "is larger than 128 KiB")
	case len(body) > 0 && !jsonscan.Valid(body):
		status, body = m.badAnswer(r, "is not JSON in UTF-8, nested 64 deep at most")
	}
	done = true
}

// badAnswer records that a handler's answer is invalid, and returns the answer to send instead.
func (m *methods) badAnswer(r *methodRun, what string) (status int, body []byte) {
	m.mu.Lock()
	m.totals.panics++
	m.mu.Unlock()
	m.set.Trace.handlerPanic(errors.New("the answer of method " + quoted(r.call.Name) + " " + what))
	return statusFailed, []byte(`{"message":"the method's answer ` + what + `"}`)
}

// nextLocked takes the next waiting call, nil for none. It refuses a call whose time has ended,
// because the hub may have given it up and reported that to the caller. It also refuses a call
// while earlier answers use up the memory.
func (m *methods) nextLocked(now time.Time) *methodRun {
	for len(m.waiting) > 0 && m.ctx.Err() == nil {
		r := m.waiting[0]
		m.waiting = slices.Delete(m.waiting, 0, 1)
		why := tooManyCalls
		switch {
		case !now.Before(r.until):
			why = tooLateToRun
		case m.bytes <= methodsBytes:
			return r
		}
		m.totals.refused++
		r.ref.ended = true
		m.bytes -= r.size
		m.answerLocked(methodAnswer{r.ref, statusBusy, []byte(why), false}) // its slot was reserved when it came
	}
	return nil
}

func (m *methods) feature() *feature {
	return &feature{wants: m.wants, begin: m.begin, serve: m.serve, busy: m.busy, over: m.over, end: m.end, reply: m.reply,
		deliver: m.deliver, fill: m.fill}
}

func (m *methods) begin(transport.Session) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.up = true
}

func (m *methods) wants() (always, now transport.Features) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.handlers) > 0 {
		always = transport.FeatureMethods
	}
	return always, 0
}

// serve hands answers to the session that brought the calls. Those that come meanwhile wait for the
// next turn.
func (m *methods) serve(l *loop, _ time.Time) time.Time {
	m.mu.Lock()
	for n := len(m.answers); !m.gone && n > 0; n-- {
		a := m.answers[0]
		m.id = max((m.id+1)%methodIDs, firstID)
		a.ref.sent = methodIDs | m.id
		r := transport.Request{ID: a.ref.sent, Op: transport.OpRespond, Ref: a.ref.text, Status: a.status, Body: a.body}
		m.mu.Unlock()
		l.conn.do(r)

		m.mu.Lock()
		if !m.gone { // see reply
			m.answers = slices.Delete(m.answers, 0, 1)
			m.bytes -= len(a.body)
			if !a.refusal {
				m.unsent--
			}
		}
	}
	m.endLocked()
	m.mu.Unlock()
	return time.Time{}
}

// reply reports that a session did not send an answer. One for any session stays for the next, if
// this one ended before it took the answer: the loop is about to hear of that.
func (m *methods) reply(id uint32, r transport.Reply) {
	if id < methodIDs || r.Err == nil {
		return
	}
	m.mu.Lock()
	i := slices.IndexFunc(m.known, func(ref *methodRef) bool { return ref.sent == id })
	name, kept := "", false
	if i >= 0 {
		ref := m.known[i]
		name, ref.sent = ref.name, 0
		kept = ref.once && len(m.answers) > 0 && m.answers[0].ref == ref && transport.KindOf(r.Err) == transport.Network
		m.gone = m.gone || kept
	}
	m.mu.Unlock()
	if i >= 0 && !kept {
		m.lost(name)
	}
}

func (m *methods) lost(name string) {
	m.mu.Lock()
	m.totals.lost++
	m.mu.Unlock()
	if t := m.set.Trace; t != nil && t.AnswerLost != nil {
		_ = callback.Run("Trace.AnswerLost", func() { t.AnswerLost(name) })
	}
}

// busy reports whether there are calls whose answers the end of the session would lose.
func (m *methods) busy() (handlers, calls bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.running > 0 || len(m.answers) > 0, false
}

// over discards the waiting calls and answers, because the hub gives up a session's calls when it
// ends, unless they outlive it. Running handlers continue.
func (m *methods) over(*loop) {
	m.mu.Lock()
	m.session++
	m.up, m.gone = false, false
	var answers []methodAnswer
	var waiting []*methodRun
	m.answers = slices.DeleteFunc(m.answers, func(a methodAnswer) bool {
		if !a.ref.once {
			answers = append(answers, a)
		}
		return !a.ref.once
	})
	m.waiting = slices.DeleteFunc(m.waiting, func(r *methodRun) bool {
		if !r.ref.once {
			waiting = append(waiting, r)
		}
		return !r.ref.once
	})
	m.known = slices.DeleteFunc(m.known, func(ref *methodRef) bool { return !ref.once })
	for _, a := range answers {
		m.bytes -= len(a.body)
		if !a.refusal {
			m.unsent--
		}
	}
	for _, r := range waiting {
		m.bytes -= r.size
	}
	m.endLocked()
	m.mu.Unlock()
	for _, a := range answers {
		m.lost(a.ref.name)
	}
	for _, r := range waiting {
		m.lost(r.call.Name)
	}
}

func (m *methods) end() <-chan struct{} {
	m.ctx.End()
	m.mu.Lock()
	defer m.mu.Unlock()
	ended := make(chan struct{})
	m.ended = ended
	m.endLocked()
	return ended
}

// endLocked lets Close go on when it need not wait for handlers and answers. A session gets none
// before it is up.
func (m *methods) endLocked() {
	if m.ended != nil && m.running == 0 && (len(m.answers) == 0 || !m.up) {
		close(m.ended)
		m.ended = nil
	}
}

func (m *methods) fill(s *Stats) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := &m.totals
	s.MethodCalls, s.MethodsRefused, s.AnswersLost, s.MethodsDoubled = t.calls, t.refused, t.lost, t.doubled
	s.HandlerPanics += t.panics
}

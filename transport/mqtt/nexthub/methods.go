package nexthub

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/internal/nextwire"
	"github.com/hubline-iot/hubline/transport"
)

// methods is the state of direct methods, which outlives a connection. The service asks with a
// Probe before it sends an Exec with the parameters. The pair of the request's id and of the id in
// our Ready is a token for one run, so that no repetition of a message runs a method twice.
//
//	          Probe, taken          Exec in time
//	(none) ----------------> ready ---------------> running
//	   ^                       |                       |
//	   +--- end of the token, Exec too late: Abandon --+--- Result, end of the budget
type methods struct {
	calls      []call
	newID      func() (nextwire.ID, error)
	connection int // the number of the connection
}

// outcome is what follows from a message or from the time.
type outcome struct {
	send   *transport.Message // nil: nothing is sent
	run    bool               // the application runs the method
	method string
	event  transport.Kind // for transport.Delivery.Probe; 0: nothing
}

// call is a token, or a method that runs.
type call struct {
	id, ready nextwire.ID
	name      string
	timeout   time.Duration // to answer, by the probe
	answerBy  time.Time     // until when the service waits for Ready
	connected int           // the connection on which Ready was sent
	running   bool
	until     time.Time // end of the token or of the budget; zero: none
}

// maxCalls bounds the tokens and the methods that run.
const maxCalls = 16

// defaultConnectTimeout is how long the service waits for the answer to a Probe.
const defaultConnectTimeout = 30 * time.Second

// enough is the least time that an answer is sent for: a second, as expiries are in whole seconds,
// but for what passes until a packet is read and handled.
const enough = time.Second - 50*time.Millisecond

// margin is the time that answers need on their way, of a response time-out.
func margin(timeout time.Duration) time.Duration {
	return min(max((timeout/10).Truncate(time.Second), time.Second), 10*time.Second)
}

// knows reports whether a request was accepted before, so that its Probe is a repetition, which
// needs no answer: the service has ours, or will have it.
func (m *methods) knows(id nextwire.ID) bool { return m.find(id) >= 0 }

// judge returns why a probe is refused without asking the application, 0 if it is not.
func (m *methods) judge(p *nextwire.Probe) nextwire.RejectReason {
	timeout := responseTimeout(p)
	switch {
	case p.Method == "" || len(p.Method) > nextwire.MaxMethodName || strings.IndexByte(p.Method, 0) >= 0:
		return nextwire.RejectMethodNotFound
	case timeout > 0 && timeout <= margin(timeout): // Decision: a method needs no time beyond the margin.
		return nextwire.RejectInsufficientTime
	case len(m.calls) >= maxCalls:
		return nextwire.RejectDeviceBusy
	}
	return 0
}

func responseTimeout(p *nextwire.Probe) time.Duration {
	return time.Duration(p.ResponseTimeout) * time.Second
}

// refusedAs are the kinds for transport.Delivery.Probe.
var refusedAs = [...]transport.Kind{nextwire.RejectMethodNotFound: transport.NotFound,
	nextwire.RejectInsufficientTime: transport.Expired, nextwire.RejectDeviceBusy: transport.Throttled}

// probe answers a Probe that expires at that time, zero for never; reason is why it is refused, 0
// if it is not.
func (m *methods) probe(now time.Time, id nextwire.ID, p *nextwire.Probe, expires time.Time,
	reason nextwire.RejectReason) outcome {
	// Decision: without an expiry the service counts as waiting for its default time.
	remaining := defaultConnectTimeout
	if !expires.IsZero() {
		remaining = expires.Sub(now)
	}
	o := outcome{method: p.Method}
	if remaining < enough {
		o.event = transport.Expired
		return o
	}
	if reason == 0 {
		ready, err := m.newID()
		if err == nil {
			timeout := responseTimeout(p)
			m.calls = append(m.calls, call{id: id, ready: ready, name: p.Method, timeout: timeout,
				answerBy: now.Add(remaining), until: now.Add(remaining + timeout + margin(timeout))})
			o.send = m.ready(&m.calls[len(m.calls)-1])
			return o
		}
		reason = nextwire.RejectDeviceBusy // a token must not be guessed
	}
	o.event = refusedAs[reason]
	refusal := nextwire.ProbeAck{Rejected: &nextwire.Rejected{Reason: reason}}
	o.send = envelope(nextwire.TypeProbeAck, id, &refusal, expires)
	return o
}

// ready says on this connection that the token may be used.
func (m *methods) ready(c *call) *transport.Message {
	c.connected = m.connection
	return envelope(nextwire.TypeProbeAck, c.id, &nextwire.ProbeAck{Ready: &nextwire.Ready{ID: c.ready[:]}}, c.answerBy)
}

// exec takes an Exec that expires at that time, zero for never. It uses the token before the method
// runs.
func (m *methods) exec(now time.Time, id nextwire.ID, e *nextwire.Exec, expires time.Time) outcome {
	i := m.find(id)
	if i < 0 || m.calls[i].running || string(m.calls[i].ready[:]) != string(e.ReadyID) ||
		m.calls[i].ended(now) {
		return outcome{event: transport.Conflict}
	}
	c := &m.calls[i]
	// Decision: an expiry of 0 is no time, not the lack of an expiry.
	if !expires.IsZero() && expires.Sub(now) <= margin(c.timeout) {
		return m.abandon(i, now, nextwire.AbandonInsufficientTime)
	}
	c.running, c.until = true, expires
	return outcome{run: true, method: c.name}
}

var errTooLate = errors.New("the answer of the method came too late: the caller has given up")

// result returns the message with the answer of a method that runs. The error says that it is too
// late.
func (m *methods) result(now time.Time, id nextwire.ID, status int32, body []byte) (*transport.Message, error) {
	i := m.find(id)
	if i < 0 || !m.calls[i].running {
		return nil, errTooLate
	}
	until := m.calls[i].until
	m.calls = slices.Delete(m.calls, i, i+1)
	if !until.IsZero() && until.Sub(now) < enough {
		return nil, errTooLate
	}
	return envelope(nextwire.TypeResult, id, &nextwire.Result{Status: status, Body: body}, until), nil
}

// next gives up a token that has ended, or offers one again whose connection has ended while the
// service may have waited for it. Otherwise it says when to call it again, zero for after another
// call. A method that runs longer than its budget loses its place without a word.
func (m *methods) next(now time.Time) (o outcome, at time.Time) {
	m.calls = slices.DeleteFunc(m.calls, func(c call) bool { return c.running && c.ended(now) })
	for i := range m.calls {
		switch c := &m.calls[i]; {
		case c.ended(now):
			return m.abandon(i, now, nextwire.AbandonReadyWaitTimeout), time.Time{}
		case !c.running && c.connected != m.connection && c.answerBy.Sub(now) >= enough:
			return outcome{send: m.ready(c)}, time.Time{}
		case !c.until.IsZero() && (at.IsZero() || c.until.Before(at)):
			at = c.until
		}
	}
	return outcome{}, at
}

func (c *call) ended(now time.Time) bool { return !c.until.IsZero() && !now.Before(c.until) }

// abandon drops call i, then says so, within the caller's response time-out.
func (m *methods) abandon(i int, now time.Time, reason nextwire.AbandonReason) outcome {
	c := m.calls[i]
	m.calls = slices.Delete(m.calls, i, i+1)
	var expires time.Time
	if c.timeout > 0 {
		expires = now.Add(c.timeout)
	}
	return outcome{method: c.name, event: transport.Expired,
		send: envelope(nextwire.TypeAbandon, c.id, &nextwire.Abandon{ReadyID: c.ready[:], Reason: reason}, expires)}
}

// drop forgets a call whose Ready could not be sent, or that the application did not take.
func (m *methods) drop(id nextwire.ID) {
	if i := m.find(id); i >= 0 {
		m.calls = slices.Delete(m.calls, i, i+1)
	}
}

func (m *methods) find(id nextwire.ID) int {
	return slices.IndexFunc(m.calls, func(c call) bool { return c.id == id })
}

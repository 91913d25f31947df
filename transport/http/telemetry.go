package http

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/hubline-iot/hubline/internal/hubhttp"
	"github.com/hubline-iot/hubline/internal/operr"
	"github.com/hubline-iot/hubline/internal/statuscode"
	"github.com/hubline-iot/hubline/transport"
)

// telemetry sends messages. Its goroutine has one request in flight: two concurrent requests could
// overtake each other, and one request of up to 500 messages is enough for a device's message rate.
type telemetry struct {
	s         *session
	requester requester
	wake      chan struct{} // capacity 1: the queue is not empty

	items          []transport.Item // taken from the queue, in order
	done           int              // number of items that are resolved
	transient      *refusal         // why the remaining items cannot be sent for the moment
	transientCount int              // number of messages in the request that got transient
	buf            []byte           // the body of a batch
	limit          int              // largest body of a batch; smaller after the hub refused one as too large
	singleTooLarge bool             // since the last too large batch, a single message was too large as well

	// guarded by session.mu
	queue    []transport.Item
	refusing bool // messages are being refused for the moment
	late     bool // queue has messages that the caller chose before it learned of a refusal
}

const (
	// minBatch is the lower bound of limit.
	minBatch = 4 << 10
	// keepItems is the largest capacity of items that is kept for reuse.
	keepItems = 1024
)

// run sends queued messages until the session ends.
func (t *telemetry) run() {
	s := t.s
	defer t.requester.close()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-t.wake:
			if !t.sendQueued() {
				return
			}
		case <-t.requester.gone():
			if err := t.requester.discard(); err != nil {
				s.fail(lost(err))
				return
			}
		case <-t.requester.unused():
			t.requester.close()
			t.buf, t.items = nil, nil // free the buffers of an idle session
		}
	}
}

// enqueue appends a batch to the queue, unless the session has ended.
func (t *telemetry) enqueue(batch []transport.Item) {
	s := t.s
	s.mu.Lock()
	if !s.ended {
		t.late = t.late || t.refusing || s.cfg.Refused != nil && s.cfg.Refused()
		t.queue = append(t.queue, batch...)
	}
	s.mu.Unlock()
	notify(t.wake)
}

// sendQueued sends all queued messages in order. If the hub takes nothing for the moment, all
// queued messages are reported with that error, and those that were on their way to the queue
// meanwhile. So the order is kept and the hub gets no request until the client sends again. It
// returns false when the session is ending.
func (t *telemetry) sendQueued() bool {
	for t.s.ctx.Err() == nil {
		late := t.takeQueue(false)
		if len(t.items) == 0 {
			return true
		}
		t.done = 0
		if late && t.transient != nil {
			t.refuse()
			continue
		}
		t.transient = nil
		if _, ok := t.sendFirst(t.items); !ok {
			if t.transient == nil {
				return false
			}
			t.refuse()
			continue
		}
		t.items = append(t.items[:0], t.items[t.done:]...)
		if len(t.items) == 0 && cap(t.items) > keepItems {
			t.items = nil
		}
	}
	return false
}

// refuse reports all messages with the error of the latest transient refusal.
func (t *telemetry) refuse() {
	t.takeQueue(true)
	e := t.transient.operation(transport.OpSend)
	if outcomeUnknown(t.transient) {
		t.report(t.items[t.done:t.done+t.transientCount], operr.OutcomeUnknown(e))
		t.transientCount = 0 // those refused later were not in a request
	}
	t.report(t.items[t.done:], e)
	t.items = t.items[:0]
	t.s.mu.Lock()
	t.refusing = false
	t.s.mu.Unlock()
}

// outcomeUnknown reports whether the hub may have accepted the messages of a transient refusal.
// That is false for a limit, and true if the request was cancelled, timed out or failed at the hub.
func outcomeUnknown(r *refusal) bool {
	return r.Kind == transport.Unavailable || r.Kind == transport.Timeout || r.cause.Status >= 500
}

// takeQueue moves the queue to items and reports messages that cannot be sent. late: there were
// messages that the caller chose before it learned of a refusal. With refusing, such are also those
// that are queued before the refusal is reported.
func (t *telemetry) takeQueue(refusing bool) (late bool) {
	s := t.s
	s.mu.Lock()
	queue := t.queue
	late, t.refusing = t.late, refusing
	t.queue, t.late = nil, false
	s.mu.Unlock()
	for _, item := range queue {
		if e := check(item.Msg); e != nil {
			s.cfg.Sink.Done(item.Tag, e)
		} else {
			t.items = append(t.items, item)
		}
	}
	return late
}

// sendFirst sends the first messages in one request and returns how many they are. ok is false if
// no more can be sent.
func (t *telemetry) sendFirst(items []transport.Item) (n int, ok bool) {
	s := t.s
	q, n := t.request(items)
	if q == nil {
		t.report(items[:1], errNotPlain(items[0].Msg))
		return 1, true
	}
	began := time.Now()
	_, refused, err := s.do(s.ctx, &t.requester, q)
	if refused == nil {
		s.sizer.observe(len(q.Body), time.Since(began), err == nil)
	}
	switch {
	case s.ctx.Err() != nil:
		return n, false
	case err != nil:
		s.fail(lost(err))
		return n, false
	case refused == nil:
		t.succeed(items[:n])
		return n, true
	case refused.About == statuscode.Identity:
		s.fail(refused.connection(transport.OpRun))
		return n, false
	case refused.About == statuscode.Moment:
		t.transient, t.transientCount = refused, n
		return n, false
	case n == 1:
		t.singleTooLarge = t.singleTooLarge || refused.Kind == transport.TooLarge
		t.report(items[:1], refused.operation(transport.OpSend))
		return n, true
	}
	// The refusal is about one of the messages, or about their number.
	before := t.limit
	if refused.Kind == transport.TooLarge {
		t.limit, t.singleTooLarge = max(minBatch, len(q.Body)/2), false
	}
	ok = t.sendAll(items[:n/2]) && t.sendAll(items[n/2:n])
	if refused.Kind == transport.TooLarge && t.singleTooLarge {
		t.limit = before // one message was too large, not their number
	}
	return n, ok
}

// sendAll sends these messages, and reports whether more can be sent.
func (t *telemetry) sendAll(items []transport.Item) bool {
	for len(items) > 0 {
		n, ok := t.sendFirst(items)
		if !ok {
			return false
		}
		items = items[n:]
	}
	return true
}

// request returns the request for the first messages and their number. A single message goes in its
// plain form if that loses nothing. It returns nil if the first message cannot be sent at all.
func (t *telemetry) request(items []transport.Item) (*hubhttp.Request, int) {
	first := items[0].Msg
	if t.s.opt.Batch == 1 || len(items) == 1 || t.alone(first) {
		if fitsHeaders(first, false) {
			return t.plain(first), 1
		}
		items = items[:1]
	}
	if cap(t.buf) > 2*batchBytes {
		t.buf = nil
	}
	t.buf = append(t.buf[:0], '[')
	n, limit := 0, min(t.limit, t.s.sizer.batch())
	for n < len(items) && n < t.s.opt.Batch {
		m := items[n].Msg
		if n > 0 && t.alone(m) {
			break
		}
		end := len(t.buf)
		if n > 0 {
			t.buf = append(t.buf, ',')
		}
		t.buf = appendEntry(t.buf, m)
		if len(t.buf)+len("]") > limit && (n > 0 || len(t.buf)+len("]") > batchBytes) {
			t.buf = t.buf[:end]
			break
		}
		n++
	}
	switch {
	case n > 1 || n == 1 && !fitsHeaders(first, false):
		t.buf = append(t.buf, ']')
		return t.batch(t.buf), n
	case fitsHeaders(first, true):
		return t.plain(first), 1
	}
	return nil, 1
}

// alone reports whether m goes faster in a request of its own, and loses nothing in it.
func (t *telemetry) alone(m *transport.Message) bool {
	return t.s.sizer.alone(len(m.Body)) && fitsHeaders(m, false)
}

// errNotPlain returns the error for a message that is too large for a batch and whose properties do
// not fit into headers.
func errNotPlain(m *transport.Message) *transport.Error {
	size, fix := len(appendEntry(nil, m))+len("[]"), "split it, or "
	if m.Size()-len(m.Body) > len(m.Body) {
		fix = ""
	}
	return failed(transport.OpSend, transport.TooLarge, errors.New("message of "+strconv.Itoa(m.Size())+
		" bytes does not fit into a request: it takes "+strconv.Itoa(size)+" bytes as JSON, of "+strconv.Itoa(batchBytes)+
		", and its properties do not fit into headers, which are printable ASCII of "+strconv.Itoa(headerBytes)+
		" bytes in all; "+fix+"send fewer or shorter properties"))
}

// plain returns the request for a single message. It omits header iothub-to, which official SDKs
// send: that only repeats the address and counts against the hub's size limit.
func (t *telemetry) plain(m *transport.Message) *hubhttp.Request {
	h := t.s.header()
	h["Content-Type"] = []string{plainType}
	addHeaders(h, m)
	return newRequest(http.MethodPost, t.s.urls.events, h, m.Body)
}

func (t *telemetry) batch(body []byte) *hubhttp.Request {
	h := t.s.header()
	h["Content-Type"] = []string{batchType}
	return newRequest(http.MethodPost, t.s.urls.events, h, body)
}

func (t *telemetry) succeed(items []transport.Item) {
	for i := range items {
		t.s.cfg.Sink.Done(items[i].Tag, nil)
	}
	t.done += len(items)
}

func (t *telemetry) report(items []transport.Item, err *transport.Error) {
	for i := range items {
		t.s.cfg.Sink.Done(items[i].Tag, err)
	}
	t.done += len(items)
}

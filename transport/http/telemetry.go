package http

import (
	"cmp"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/internal/operr"
	"github.com/hubline-iot/hubline/internal/statuscode"
	"github.com/hubline-iot/hubline/transport"
)

// telemetry sends messages. Its goroutine makes one request at a time: two at a time may overtake
// each other, and as one carries 500 messages the pace of a device does not need more.
type telemetry struct {
	s    *session
	lane lane
	wake chan struct{} // capacity 1: there is something in the queue

	items []transport.Item // taken from the queue, in order
	done  int              // so many of them are answered
	later *refusal         // why the others have to wait
	asked int              // so many messages that was about
	buf   []byte           // the body of a batch
	limit int              // the longest body of a batch; less once the hub refused one as too large
	alone bool             // a message alone was too large for it, since it refused a batch

	queue []transport.Item // guarded by session.mu
}

const (
	// leastLimit is the least that limit becomes.
	leastLimit = 4 << 10
	// keepItems bounds the memory that is kept for items.
	keepItems = 1024
)

// pace is the longest body of a batch that the link carries in good time. A client takes a
// connection for dead on which the oldest message waits for long (Options.Timeout,
// device.Options.AckTimeout), and all of a batch waits as long as the whole: over a slow link,
// large batches would be cut off and sent again for ever. It belongs to the Transport, for a
// session that ends so is the one that has learnt most. The zero value is that of a link of which
// nothing is known. It is safe for concurrent use.
type pace struct {
	mu    sync.Mutex
	bytes int // 0: firstPace
}

const (
	// firstPace is where it begins. Batches double while they take less than quickBatch, and are
	// halved when they take more than slowBatch.
	firstPace  = 32 << 10
	quickBatch = 3 * time.Second
	slowBatch  = 12 * time.Second
)

// now is the longest body at this moment.
func (p *pace) now() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return cmp.Or(p.bytes, firstPace)
}

// learn is told of a body, how long it was under way, and whether it was taken; if not, the session
// is over.
func (p *pace) learn(size int, took time.Duration, taken bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := cmp.Or(p.bytes, firstPace)
	switch {
	case took > slowBatch || !taken && took > quickBatch:
		if size > leastLimit { // what is shorter was not slow because of its length
			p.bytes = max(min(now, size)/2, leastLimit)
		}
	case taken && took < quickBatch && size > now/4: // small ones tell nothing of large ones
		p.bytes = min(2*now, batchBytes)
	}
}

// run is the goroutine.
func (t *telemetry) run() {
	s := t.s
	defer t.lane.hangUp()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-t.wake:
			if !t.sendQueued() {
				return
			}
		case <-t.lane.gone():
			if err := t.lane.retire(); err != nil {
				s.fail(lost(err))
				return
			}
		case <-t.lane.unused():
			t.lane.hangUp()
			t.buf, t.items = nil, nil // who says little needs little
		}
	}
}

// sendQueued sends all that waits, in order. What the hub does not take at the moment is reported,
// with all that waits behind it, so that the order is kept and the hub is left alone until the
// client sends again. False: the session is at its end.
func (t *telemetry) sendQueued() bool {
	for t.s.ctx.Err() == nil {
		t.takeIn()
		if len(t.items) == 0 {
			return true
		}
		t.done, t.later = 0, nil
		if _, going := t.some(t.items); !going {
			if t.later == nil {
				return false
			}
			t.takeIn()
			e := t.later.operation(transport.OpSend)
			if open(t.later) {
				t.report(t.items[t.done:t.done+t.asked], operr.OutcomeUnknown(e))
			}
			t.report(t.items[t.done:], e)
			t.items = t.items[:0]
			continue
		}
		t.items = append(t.items[:0], t.items[t.done:]...)
		if len(t.items) == 0 && cap(t.items) > keepItems {
			t.items = nil
		}
	}
	return false
}

// open says whether the hub may have taken in what it refused for the moment: not when it did so
// for a limit, but when it was cancelled, took too long or failed.
func open(r *refusal) bool {
	return r.Kind == transport.Unavailable || r.Kind == transport.Timeout || r.cause.Status >= 500
}

// takeIn adds what is in the queue, but for what cannot be sent.
func (t *telemetry) takeIn() {
	s := t.s
	s.mu.Lock()
	queue := t.queue
	t.queue = nil
	s.mu.Unlock()
	for _, item := range queue {
		if e := check(item.Msg); e != nil {
			s.cfg.Sink.Done(item.Tag, e)
		} else {
			t.items = append(t.items, item)
		}
	}
}

// some sends the first messages, as many as go into one request, and returns how many. False: no
// more can be sent.
func (t *telemetry) some(items []transport.Item) (n int, going bool) {
	s := t.s
	q, n := t.request(items)
	if q == nil {
		t.report(items[:1], errNotPlain(items[0].Msg.Size()))
		return 1, true
	}
	began := time.Now()
	_, refused, err := s.do(s.ctx, &t.lane, q)
	if refused == nil {
		s.pace.learn(len(q.body), time.Since(began), err == nil)
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
		t.later, t.asked = refused, n
		return n, false
	case n == 1:
		t.alone = t.alone || refused.Kind == transport.TooLarge
		t.report(items[:1], refused.operation(transport.OpSend))
		return n, true
	}
	// It is about one of them, or about their number.
	before := t.limit
	if refused.Kind == transport.TooLarge {
		t.limit, t.alone = max(leastLimit, len(q.body)/2), false
	}
	going = t.all(items[:n/2]) && t.all(items[n/2:n])
	if refused.Kind == transport.TooLarge && t.alone {
		t.limit = before // it was about one
	}
	return n, going
}

// all sends these messages, and reports whether more can be sent.
func (t *telemetry) all(items []transport.Item) bool {
	for len(items) > 0 {
		n, going := t.some(items)
		if !going {
			return false
		}
		items = items[n:]
	}
	return true
}

// request makes the request for the first messages, and returns for how many. A message goes alone
// in its plain form where nothing is lost by that. Nil: the first cannot be sent at all.
func (t *telemetry) request(items []transport.Item) (*request, int) {
	first := items[0].Msg
	if t.s.opt.Batch == 1 || len(items) == 1 {
		if fitsHeaders(first, false) {
			return t.plain(first), 1
		}
		items = items[:1]
	}
	if cap(t.buf) > 2*batchBytes {
		t.buf = nil
	}
	t.buf = append(t.buf[:0], '[')
	n, size, limit := 0, 0, min(t.limit, t.s.pace.now())
	for n < len(items) && n < t.s.opt.Batch {
		m := items[n].Msg
		if size += m.Size(); n > 0 && size > transport.MaxMessageSize {
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

// errNotPlain is the error for a message that is too large for a batch, and has what headers do not
// carry.
func errNotPlain(size int) *transport.Error {
	e := operr.TooLarge(size, transport.MaxMessageSize)
	return failed(transport.OpSend, transport.TooLarge, errors.Join(e.Err, errOnlyBatch))
}

var errOnlyBatch = errors.New("it has properties that are not printable ASCII or longer than 8 KB, which HTTP " +
	"carries only in messages of up to about 190 KB")

// plain is the request for a message alone. Header iothub-to, which official SDKs send, would only
// repeat the address, and count against the hub's limit of size.
func (t *telemetry) plain(m *transport.Message) *request {
	h := t.s.header()
	h["Content-Type"] = []string{plainType}
	addHeaders(h, m)
	return &request{http.MethodPost, t.s.urls.events, h, m.Body}
}

func (t *telemetry) batch(body []byte) *request {
	h := t.s.header()
	h["Content-Type"] = []string{batchType}
	return &request{http.MethodPost, t.s.urls.events, h, body}
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

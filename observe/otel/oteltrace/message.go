package oteltrace

import (
	"context"
	"errors"
	"sync"
	"time"
	"weak"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/transport"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// mostAttempts is how many attempts of a message become spans: the last ones.
const mostAttempts = 128

// message is the record of a message with a span that records. The client's goroutines only note
// times in it; the span's methods, which may call an exporter, are called when the message has its
// result. The record does not keep the message in memory: it waits for the exporter longer than the
// message for its result.
type message struct {
	span    trace.Span
	start   time.Time
	key     key            // of the copy that is sent
	receipt device.Receipt // if the caller brought none
	watched device.Watched
	counted bool // in Tracer.waiting; guarded by Tracer.mu

	mu       sync.Mutex
	finished bool                 // the span ends; what sessions still report comes too late
	id       string               // of the message as it was sent
	peer     []attribute.KeyValue // client and server of the latest attempt
	attempts []attempt            // in order; the last one may be open
	handed   int                  // number of attempts
	first    time.Time            // start of the first one
}

// attempt is one hand-over to a connection.
type attempt struct {
	start, end time.Time // end is zero until there is an answer or the connection is lost
	err        error     // nil: acknowledged
	lost       bool      // the connection ended before an answer
}

// handOver notes that the message was handed to a session. It returns false, and notes nothing, if
// the span ends already.
func (m *message) handOver(at time.Time, id string, peer []attribute.KeyValue) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.finished {
		return false
	}
	if m.handed++; m.handed == 1 {
		m.first, m.id = at, id
	}
	m.peer = peer
	if len(m.attempts) == mostAttempts {
		m.attempts = append(m.attempts[:0], m.attempts[1:]...)
	}
	m.attempts = append(m.attempts, attempt{start: at})
	return true
}

// answered notes how the latest attempt ended. A Send whose context ended returns before that, so
// the answer may come after the end of the span.
func (m *message) answered(at time.Time, err error, lost bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.finished {
		return
	}
	if a := &m.attempts[len(m.attempts)-1]; a.end.IsZero() {
		a.end, a.err, a.lost = at, err, lost
	}
}

// follow makes the message known to the sessions, and with watched awaits its result.
func (t *Tracer) follow(m *message, watched bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m.key != (key{}) {
		t.live[m.key] = m
		t.traced.Store(int32(len(t.live)))
	}
	if m.counted = watched; !watched {
		return
	}
	if t.waiting++; !t.running {
		t.running = true
		go t.collect()
	}
}

// key identifies a message and its copies by the address of their first property, which no other
// message has. It is weak: no key of a later message at the same address is equal to it.
type key = weak.Pointer[transport.Property]

// keyOf returns the key of m, the zero key if m has no properties.
func keyOf(m *transport.Message) key {
	if len(m.Properties) == 0 {
		return key{}
	}
	return weak.Make(&m.Properties[0])
}

// find returns the followed message that msg is, or is a copy of; nil if there is none.
func (t *Tracer) find(msg *transport.Message) *message {
	if len(msg.Properties) == 0 || t.traced.Load() == 0 {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.live[keyOf(msg)]
}

// forget ends follow.
func (t *Tracer) forget(m *message) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.live, m.key)
	t.traced.Store(int32(len(t.live)))
	if !m.counted {
		return
	}
	m.counted = false
	if t.waiting--; t.waiting == 0 {
		select {
		case t.wake <- struct{}{}:
		default:
		}
	}
}

// collect ends the spans of messages with results. One goroutine runs it while messages wait; the
// last result ends it.
func (t *Tracer) collect() {
	for {
		t.Flush()
		t.mu.Lock()
		if t.waiting == 0 {
			t.running = false
			t.mu.Unlock()
			return
		}
		t.mu.Unlock()
		select {
		case <-t.results.Ready():
		case <-t.wake:
		}
	}
}

// Flush ends the spans of all messages that have their results; another goroutine does that soon
// after each result. Call it between Client.Close and the end of the provider.
func (t *Tracer) Flush() {
	t.ending <- struct{}{}
	defer func() { <-t.ending }()
	for w := t.results.Next(); w != nil; w = t.results.Next() {
		t.finish(w.Value.(*message), w.Err, w.At)
	}
}

// finish ends the span of a message, and makes those of its attempts if there were several.
func (t *Tracer) finish(m *message, err error, at time.Time) {
	t.forget(m)
	m.mu.Lock()
	id, peer, attempts, handed, first := m.id, m.peer, m.attempts, m.handed, m.first
	m.finished, m.attempts = true, nil
	m.mu.Unlock()

	if n := len(attempts); n > 0 {
		if a := &attempts[n-1]; a.end.IsZero() {
			a.end, a.err, a.lost = at, err, true
		}
		attrs := append([]attribute.KeyValue{KeyAttempts.Int(handed), KeyQueued.Float64(first.Sub(m.start).Seconds())},
			peer...)
		if id != "" {
			attrs = append(attrs, semconv.MessagingMessageID(id))
		}
		m.span.SetAttributes(attrs...)
		if a := attempts[0]; n > 1 || a.lost || a.err != nil && errfilter.Retryable(a.err) {
			t.reportAttempts(m.span, attempts, peer)
		}
	}
	failed(m.span, err)
	m.span.End(trace.WithTimestamp(at))
	t.open.Add(-1)
}

// reportAttempts makes a span for each attempt, with a link to the one before.
func (t *Tracer) reportAttempts(parent trace.Span, attempts []attempt, peer []attribute.KeyValue) {
	ctx := trace.ContextWithSpan(context.Background(), parent)
	var before trace.SpanContext
	for _, a := range attempts {
		options := append(t.options(trace.SpanKindClient,
			append(peer[:len(peer):len(peer)], semconv.MessagingOperationName("attempt"))...), trace.WithTimestamp(a.start))
		if before.IsValid() {
			options = append(options, trace.WithLinks(trace.Link{SpanContext: before}))
		}
		_, span := t.tracer.Start(ctx, "attempt", options...)
		failed(span, a.err)
		span.End(trace.WithTimestamp(a.end))
		before = span.SpanContext()
	}
}

// failed gives span the status of err, which may be nil.
func failed(span trace.Span, err error) {
	if err == nil {
		return
	}
	why := semconv.ErrorTypeOther
	switch kind := transport.KindOf(err); {
	case errors.Is(err, errNotReturned):
		why = semconv.ErrorTypeKey.String("panic")
	case kind != transport.Unknown:
		why = semconv.ErrorTypeKey.String(kind.String())
	}
	span.SetAttributes(why)
	if errors.Is(err, transport.ErrOutcomeUnknown) {
		span.SetAttributes(KeyOutcomeUnknown.Bool(true))
	}
	span.SetStatus(codes.Error, err.Error())
}

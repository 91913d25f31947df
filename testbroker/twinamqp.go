package testbroker

import (
	"slices"
	"strings"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
)

// twinLinks is what stands behind the links for twins.
type twinLinks struct{ front *amqpFront }

// Values of the annotation "resource".
const (
	reportedResource = "/properties/reported"
	desiredResource  = "/properties/desired"
	noticeResource   = "/notifications/twin/properties/desired"
)

// amqpOperations is what the annotation "operation" may be, and what "resource" must be then; empty
// = anything.
var amqpOperations = map[string]struct {
	operation TwinOperation
	resource  string
}{
	"GET":    {TwinGet, ""},
	"PATCH":  {TwinPatch, reportedResource},
	"PUT":    {TwinSubscribe, noticeResource},
	"DELETE": {TwinUnsubscribe, noticeResource},
}

func (twinLinks) joined(*amqpPair) {}

func (t twinLinks) parted(p *amqpPair) { t.front.listenOn(p, false) }

// ask takes a request.
func (t twinLinks) ask(p *amqpPair, m *wire.Message) *wire.Error {
	var correlation any
	if m.Properties != nil {
		correlation = m.Properties.CorrelationID
	}
	if correlation == nil {
		return wire.Errorf(wire.InvalidField, "request without a correlation id")
	}
	if !p.receives() {
		return wire.Errorf(wire.PreconditionFailed, "no receiver is attached for the answer")
	}
	r := TwinRequest{DeviceID: p.id.device, ModuleID: p.id.module, RequestID: idText(correlation), Body: m.Body(),
		Protocol: AMQP}
	name, resource := m.MessageAnnotations.Text("operation"), m.MessageAnnotations.Text("resource")
	known, ok := amqpOperations[strings.ToUpper(name)]
	r.Operation = known.operation
	var wrong error
	switch {
	case !ok:
		wrong = t.front.hub.serviceError(codeInvalidOperation, "operation %q", name)
	case known.resource != "" && !strings.EqualFold(resource, known.resource):
		wrong = t.front.hub.serviceError(codeInvalidOperation, "resource %q of operation %s", resource, name)
	}
	if version, ok := m.MessageAnnotations.Get("version"); ok && version != nil && r.Operation == TwinPatch {
		if r.Base, ok = wholeNumber(version); !ok || r.Base < 1 {
			wrong = t.front.hub.serviceError(codeArgumentInvalid, "version that is not a number from 1 on")
		}
	}
	t.front.hub.askTwin(&amqpAsker{p, correlation}, r, wrong)
	return nil
}

// wholeNumber reads a whole number of any type of AMQP.
func wholeNumber(v any) (int64, bool) {
	switch v := v.(type) {
	case int8:
		return int64(v), true
	case int16:
		return int64(v), true
	case int32:
		return int64(v), true
	case int64:
		return v, true
	case uint8:
		return int64(v), true
	case uint16:
		return int64(v), true
	case uint32:
		return int64(v), true
	case uint64:
		return int64(v), v < 1<<63
	}
	return 0, false
}

// receives says whether an answer can go anywhere.
func (p *amqpPair) receives() bool {
	p.conn.hub.mu.Lock()
	defer p.conn.hub.mu.Unlock()
	return p.receiver != nil
}

// listenOn begins or ends notifications on a pair of links.
func (f *amqpFront) listenOn(p *amqpPair, on bool) {
	h := f.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	all := slices.DeleteFunc(slices.Clone(f.listening[p.id]), func(other *amqpPair) bool { return other == p })
	if on && p.whole {
		all = append(all, p)
	}
	if len(all) == 0 {
		delete(f.listening, p.id)
		return
	}
	f.listening[p.id] = all
}

// An amqpAsker is a client that has sent a request.
type amqpAsker struct {
	pair        *amqpPair
	correlation any
}

func (a *amqpAsker) client() *conn { return a.pair.conn.c }

func (a *amqpAsker) taken() bool { return true } // a disposition follows

func (a *amqpAsker) listen(on bool) { a.pair.conn.front.listenOn(a.pair, on) }

// answer sends an answer: the status is an int and the version a long, which some clients insist
// on, and there is one data section.
func (a *amqpAsker) answer(ans twinAnswer, wrong bool) bool {
	annotations := wire.Map{{Key: wire.Symbol("status"), Value: int32(ans.status)}}
	if ans.version > 0 {
		annotations = append(annotations, wire.Pair{Key: wire.Symbol("version"), Value: ans.version})
	}
	if ans.retryAfter > 0 {
		annotations = append(annotations, wire.Pair{Key: wire.Symbol("retry-after"), Value: int32(seconds(ans.retryAfter))})
	}
	correlation := a.correlation
	if wrong {
		correlation = otherID(correlation)
	}
	return a.pair.answer(&wire.Message{
		MessageAnnotations: annotations, Properties: &wire.Properties{CorrelationID: correlation}, Data: [][]byte{ans.body},
	})
}

// otherID is an id of the same type.
func otherID(id any) any {
	switch id := id.(type) {
	case string:
		return id + "-other"
	case wire.UUID:
		id[15] ^= 0xff
		return id
	case uint64:
		return id + 1<<32
	case []byte:
		return append(slices.Clone(id), '-')
	}
	return "other"
}

// An amqpListener is a client that is told of changes of desired properties.
type amqpListener struct{ pair *amqpPair }

func (l amqpListener) client() *conn { return l.pair.conn.c }

// tell sends a change: without a correlation id, which is how clients know it.
func (l amqpListener) tell(ch change) {
	l.pair.answer(&wire.Message{
		MessageAnnotations: wire.Map{
			{Key: wire.Symbol("resource"), Value: desiredResource}, {Key: wire.Symbol("version"), Value: ch.version},
		},
		Properties: &wire.Properties{}, Data: [][]byte{ch.body},
	})
}

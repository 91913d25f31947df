package amqpfront

import (
	"slices"
	"strings"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
)

// twinLinks is the facility of twin links.
type twinLinks struct{ front *Front }

// Values of the annotation "resource".
const (
	reportedResource = "/properties/reported"
	desiredResource  = "/properties/desired"
	noticeResource   = "/notifications/twin/properties/desired"
)

// twinOperations maps the values of the annotation "operation" to the operation and the required
// "resource"; empty = any.
var twinOperations = map[string]struct {
	operation hubdata.TwinOperation
	resource  string
}{
	"GET":    {hubdata.TwinGet, ""},
	"PATCH":  {hubdata.TwinPatch, reportedResource},
	"PUT":    {hubdata.TwinSubscribe, noticeResource},
	"DELETE": {hubdata.TwinUnsubscribe, noticeResource},
}

func (twinLinks) joined(*pair) {}

func (t twinLinks) parted(p *pair) { t.front.listenOn(p, false) }

func (t twinLinks) ask(p *pair, m *wire.Message) *wire.Error {
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
	r := hubdata.TwinRequest{DeviceID: p.id.Device, ModuleID: p.id.Module, RequestID: idText(correlation), Body: m.Body(),
		Protocol: hubdata.AMQP}
	name, resource := m.MessageAnnotations.Text("operation"), m.MessageAnnotations.Text("resource")
	known, ok := twinOperations[strings.ToUpper(name)]
	r.Operation = known.operation
	var wrong error
	switch {
	case !ok:
		wrong = t.front.hub.ServiceError(hub.CodeInvalidOperation, "operation %q", name)
	case known.resource != "" && !strings.EqualFold(resource, known.resource):
		wrong = t.front.hub.ServiceError(hub.CodeInvalidOperation, "resource %q of operation %s", resource, name)
	}
	if version, ok := m.MessageAnnotations.Get("version"); ok && version != nil && r.Operation == hubdata.TwinPatch {
		if r.Base, ok = wire.Whole(version); !ok || r.Base < 1 {
			wrong = t.front.hub.ServiceError(hub.CodeArgumentInvalid, "version that is not a number from 1 on")
		}
	}
	t.front.hub.AskTwin(&asker{p, correlation}, r, wrong)
	return nil
}

// receives reports whether the pair has a receiver for answers.
func (p *pair) receives() bool {
	p.conn.front.mu.Lock()
	defer p.conn.front.mu.Unlock()
	return p.receiver != nil
}

// listenOn begins or ends notifications on a pair of links.
func (f *Front) listenOn(p *pair, on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := slices.DeleteFunc(slices.Clone(f.listening[p.id]), func(other *pair) bool { return other == p })
	if on && p.whole {
		all = append(all, p)
	}
	if len(all) == 0 {
		delete(f.listening, p.id)
		return
	}
	f.listening[p.id] = all
}

// An asker is a client that has sent a request.
type asker struct {
	pair        *pair
	correlation any
}

func (a *asker) Client() *hub.Conn { return a.pair.conn.c }

func (a *asker) Taken() bool { return true } // a disposition follows

func (a *asker) Listen(on bool) { a.pair.conn.front.listenOn(a.pair, on) }

// Answer sends an answer with one data section. The status is an int and the version a long, as
// some clients require.
func (a *asker) Answer(ans hub.TwinAnswer, wrong bool) bool {
	annotations := wire.Map{{Key: wire.Symbol("status"), Value: int32(ans.Status)}}
	if ans.Version > 0 {
		annotations = append(annotations, wire.Pair{Key: wire.Symbol("version"), Value: ans.Version})
	}
	if ans.RetryAfter > 0 {
		annotations = append(
			annotations,
			wire.Pair{Key: wire.Symbol("retry-after"), Value: int32(hub.Seconds(ans.RetryAfter))},
		)
	}
	correlation := a.correlation
	if wrong {
		correlation = otherID(correlation)
	}
	return a.pair.answer(&wire.Message{
		MessageAnnotations: annotations, Properties: &wire.Properties{CorrelationID: correlation}, Data: [][]byte{ans.Body},
	})
}

// otherID returns a different id of the same type.
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

// A desiredListener is a client that receives changes of desired properties.
type desiredListener struct{ pair *pair }

func (l desiredListener) Client() *hub.Conn { return l.pair.conn.c }

// Tell sends a change without a correlation id, by which clients recognize it.
func (l desiredListener) Tell(ch hub.Change) {
	l.pair.answer(&wire.Message{
		MessageAnnotations: wire.Map{
			{Key: wire.Symbol("resource"), Value: desiredResource}, {Key: wire.Symbol("version"), Value: ch.Version},
		},
		Properties: &wire.Properties{}, Data: [][]byte{ch.Body},
	})
}

package amqp

import (
	"errors"

	"github.com/Azure/go-amqp"

	"github.com/hubline-iot/hubline/transport"
)

// methods is the pair for direct methods, and the answers that are not sent yet.
type methods struct {
	pair

	// Guarded by session.mu.
	answers map[*amqp.Message]uint32 // values are the ids of their requests
	bytes   int                      // of their bodies
}

// Bounds of the answers that wait for credit. Further answers fail.
const (
	maxAnswers     = 64
	maxAnswerBytes = 4 << 20
)

var errAnswersWait = errors.New("the hub takes no answers: 64 answers, or 4 MB of them, are queued")

func (c *methods) init(s *session) {
	c.pair = pair{
		s: s, name: "methods", address: s.addr.methods, settleMode: amqp.SenderSettleModeSettled, onMessage: c.call,
		onSent: func(m *amqp.Message) { c.take(m) }, onUnsent: c.tooLarge, onLost: c.lost,
		onRefused: func(error) func() { return c.lost() },
	}
}

// The Ref of a call is its correlation id: a byte for its type, and the id.
const (
	refUUID = 'u'
	refText = 's'
)

// call delivers a call. One without a name or a correlation id is ignored.
func (c *methods) call(m *amqp.Message) {
	name, _ := m.ApplicationProperties["IoThub-methodname"].(string)
	if m.Properties == nil || name == "" {
		return
	}
	var ref []byte
	switch id := m.Properties.CorrelationID.(type) {
	case amqp.UUID:
		ref = append([]byte{refUUID}, id[:]...)
	case string:
		ref = append([]byte{refText}, id...)
	default:
		return
	}
	c.s.cfg.Sink.Deliver(&transport.Delivery{Kind: transport.FeatureMethods, Name: []byte(name), Ref: ref,
		Msg: &transport.Message{Body: bodyOf(m)}})
}

// respond sends the answer to a call.
func (c *methods) respond(r *transport.Request) {
	var id any
	switch {
	case len(r.Ref) == 17 && r.Ref[0] == refUUID:
		id = amqp.UUID(r.Ref[1:])
	case len(r.Ref) > 1 && r.Ref[0] == refText:
		id = string(r.Ref[1:])
	default:
		return
	}
	m := &amqp.Message{
		Properties:            &amqp.MessageProperties{CorrelationID: id},
		ApplicationProperties: map[string]any{"IoThub-status": int32(r.Status)},
	}
	c.s.mu.Lock()
	over, full := c.s.over, len(c.answers) >= maxAnswers || c.bytes+len(r.Body) > maxAnswerBytes
	if !over && !full {
		if c.answers == nil {
			c.answers = make(map[*amqp.Message]uint32)
		}
		m.Data = [][]byte{append([]byte(nil), r.Body...)}
		c.answers[m] = r.ID
		c.bytes += len(r.Body)
		c.sendLocked(m)
	}
	c.s.mu.Unlock()
	switch {
	case over:
		c.replyFailed(r.ID, transport.Network, errLinkLost)
	case full:
		c.replyFailed(r.ID, transport.Unavailable, errAnswersWait)
	}
}

// take removes an answer from the unsent ones.
func (c *methods) take(m *amqp.Message) (id uint32, ok bool) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if id, ok = c.answers[m]; ok {
		delete(c.answers, m)
		c.bytes -= len(m.Data[0])
	}
	return id, ok
}

// tooLarge reports an answer that exceeds the hub's limit.
func (c *methods) tooLarge(m *amqp.Message, err error) {
	if id, ok := c.take(m); ok {
		c.replyFailed(id, transport.TooLarge, err)
	}
}

// lost fails the unsent answers: the hub gave up their calls with the link. session.mu is held for
// lost, and must not be held for report.
func (c *methods) lost() (report func()) {
	answers := c.answers
	c.answers, c.bytes = nil, 0
	return func() {
		for _, id := range answers {
			c.replyFailed(id, transport.Network, errLinkLost)
		}
	}
}

// end is lost for the end of the session. It locks session.mu.
func (c *methods) end() {
	c.s.mu.Lock()
	report := c.lost()
	c.s.mu.Unlock()
	report()
}

func (c *methods) replyFailed(id uint32, kind transport.Kind, why error) {
	c.s.cfg.Sink.Reply(id, transport.Reply{Err: failed(transport.OpRespond, kind, why)})
}

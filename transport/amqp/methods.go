package amqp

import (
	"errors"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp/internal/message"
)

// methods is the pair for direct methods, whose queue has the answers that are not sent yet.
type methods struct{ pair }

// Bounds of the answers that wait for credit. Further answers fail.
const (
	maxAnswers     = 64
	maxAnswerBytes = 4 << 20
)

var errAnswersWait = errors.New("the hub takes no answers: 64 answers, or 4 MB of them, are queued")

func (c *methods) init(s *session) {
	c.pair.init(s, "methods", s.addr.methods)
	c.onMessage, c.onUnsent = c.call, c.tooLarge
	c.opened, c.lost, c.refused = c.flushAnswers, c.unsent, func(error) func() { return c.unsent() }
}

// flushAnswers sends the answers that came while the links were lost. session.mu is held for
// flushAnswers, and must not be held for report.
func (c *methods) flushAnswers() (report func()) {
	refused := c.flushLocked()
	return func() { c.refuse(refused) }
}

// The Ref of a call is its correlation id: a byte for its type, and the id.
const (
	refUUID = 'u'
	refText = 's'
)

// call delivers a call. One without a name or a correlation id is ignored.
func (c *methods) call(m *wire.Message) {
	name := m.ApplicationProperties.Text("IoThub-methodname")
	if m.Properties == nil || name == "" {
		return
	}
	var ref []byte
	switch id := m.Properties.CorrelationID.(type) {
	case wire.UUID:
		ref = append([]byte{refUUID}, id[:]...)
	case string:
		ref = append([]byte{refText}, id...)
	default:
		return
	}
	body, _ := message.Body(m)
	c.s.cfg.Sink.Deliver(&transport.Delivery{Kind: transport.FeatureMethods, Name: []byte(name), Ref: ref,
		Msg: &transport.Message{Body: body}})
}

// respond sends the answer to a call.
func (c *methods) respond(r *transport.Request) {
	var id any
	switch {
	case len(r.Ref) == 17 && r.Ref[0] == refUUID:
		id = wire.UUID(r.Ref[1:])
	case len(r.Ref) > 1 && r.Ref[0] == refText:
		id = string(r.Ref[1:])
	default:
		return
	}
	m := bodyMessage(r.Body, id)
	m.ApplicationProperties = wire.Map{{Key: "IoThub-status", Value: int32(r.Status)}}
	c.s.mu.Lock()
	over, full := c.s.over, len(c.queue) >= maxAnswers
	bytes := len(r.Body)
	for _, q := range c.queue {
		bytes += len(q.message)
	}
	full = full || bytes > maxAnswerBytes
	var refused []unsent
	if !over && !full {
		refused = c.sendLocked(r.ID, m)
	}
	c.s.mu.Unlock()
	c.s.flush()
	c.refuse(refused)
	switch {
	case over:
		c.replyFailed(r.ID, transport.Network, errLinkLost)
	case full:
		c.replyFailed(r.ID, transport.Unavailable, errAnswersWait)
	}
}

// tooLarge reports an answer that exceeds the hub's limit.
func (c *methods) tooLarge(id uint32, err error) { c.replyFailed(id, transport.TooLarge, err) }

// unsent fails the unsent answers: the hub gave up their calls with the link. session.mu is held,
// and must not be held for report.
func (c *methods) unsent() (report func()) {
	answers := c.queue
	c.queue = nil
	c.stopTimerLocked()
	return func() {
		for _, q := range answers {
			c.replyFailed(q.id, transport.Network, errLinkLost)
		}
	}
}

// end is unsent for the end of the session. It locks session.mu.
func (c *methods) end() {
	c.s.mu.Lock()
	report := c.unsent()
	c.s.mu.Unlock()
	report()
}

func (c *methods) replyFailed(id uint32, kind transport.Kind, why error) {
	c.s.cfg.Sink.Reply(id, transport.Reply{Err: failed(transport.OpRespond, kind, why)})
}

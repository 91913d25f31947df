package amqp

import (
	"errors"

	"github.com/Azure/go-amqp"

	"github.com/hubline-iot/hubline/transport"
)

// methods is the pair for direct methods, and what was answered on it.
type methods struct {
	pair

	// Guarded by session.mu.
	answers map[*amqp.Message]uint32 // that were not sent yet, by the ids of their requests
	bytes   int                      // of their bodies
}

// Answers that the hub gives no credit for, or does not read, are bounded: the link keeps this
// many, with this many bytes, and replies to further ones that they were not sent.
const (
	maxAnswers     = 64
	maxAnswerBytes = 4 << 20
)

var errAnswersWait = errors.New("the hub takes no answers: too many of them wait")

func (c *methods) init(s *session) {
	c.pair = pair{
		s: s, name: "methods", address: s.addr.methods, wait: amqp.SenderSettleModeSettled, take: c.take,
		given: func(m *amqp.Message) {
			c.answered(m)
		}, unsent: c.unsent, lost: c.lost, refused: func(error) func() { return c.lost() },
	}
}

// A call's Ref is its correlation id: a byte for the type, and the id.
const (
	refUUID = 'u'
	refText = 's'
)

// take takes a call. One that cannot be answered is left alone.
func (c *methods) take(m *amqp.Message) {
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
	c.s.cfg.Sink.Deliver(&transport.Delivery{Kind: transport.Methods, Name: []byte(name), Ref: ref,
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
		c.tell(r.ID, transport.Network, errLinkLost)
	case full:
		c.tell(r.ID, transport.Unavailable, errAnswersWait)
	}
}

// answered takes an answer out of those that were not sent.
func (c *methods) answered(m *amqp.Message) (id uint32, ok bool) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if id, ok = c.answers[m]; ok {
		delete(c.answers, m)
		c.bytes -= len(m.Data[0])
	}
	return id, ok
}

// unsent tells of an answer that is larger than the hub takes.
func (c *methods) unsent(m *amqp.Message, err error) {
	if id, ok := c.answered(m); ok {
		c.tell(id, transport.TooLarge, err)
	}
}

// lost tells that what was not sent will not be: the hub has given the calls up with the link.
func (c *methods) lost() (tell func()) {
	answers := c.answers
	c.answers, c.bytes = nil, 0
	return func() {
		for _, id := range answers {
			c.tell(id, transport.Network, errLinkLost)
		}
	}
}

// end is lost for the end of the session.
func (c *methods) end() {
	c.s.mu.Lock()
	tell := c.lost()
	c.s.mu.Unlock()
	tell()
}

func (c *methods) tell(id uint32, kind transport.Kind, why error) {
	c.s.cfg.Sink.Reply(id, transport.Reply{Err: failed(transport.OpRespond, kind, why)})
}

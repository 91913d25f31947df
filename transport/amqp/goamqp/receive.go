package goamqp

import (
	"context"
	"encoding/binary"
	"errors"
	"strconv"
	"sync"
	"time"

	raw "github.com/Azure/go-amqp"

	"github.com/hubline-iot/hubline/internal/amqpclient"
	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/internal/scrub"
	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
	"github.com/hubline-iot/hubline/transport/amqp/internal/message"
)

// received is an unsettled message.
type received struct {
	*raw.Message
	since   time.Time
	earlier int // deliveries before this one
}

// deliver delivers a message. One that cannot be read, or whose body has no bytes, is rejected.
func (s *session) deliver(l *raw.Receiver, m *raw.Message) {
	encoded, err := m.MarshalBinary()
	var decoded *wire.Message
	if err == nil {
		decoded, err = wire.DecodeTolerant(encoded)
	}
	if err != nil {
		_ = l.RejectMessage(s.ctx, m, &raw.Error{Condition: raw.ErrCondDecodeError, Description: scrub.Peer(err.Error())})
		return
	}
	if _, ok := message.Body(decoded); !ok {
		_ = l.RejectMessage(s.ctx, m, &raw.Error{Condition: raw.ErrCondNotImplemented, Description: message.NoBody})
		return
	}
	s.mu.Lock()
	s.number++
	number := s.number
	s.unsettled[number] = received{m, time.Now(), message.DeliveriesBefore(decoded)}
	s.mu.Unlock()
	inbound, redelivered := message.Inbound(decoded, s.opt.Addresses == nil)
	ref := binary.BigEndian.AppendUint32(nil, number)
	if !s.cfg.Sink.Deliver(&transport.Delivery{Kind: transport.FeatureMessages, Ref: ref, Redelivered: redelivered,
		Msg: &inbound}) {
		s.background(func() { s.dispose(number, transport.OutcomeRelease) })
	}
}

// dispose settles a message, for Release after a delay: a hub delivers it again at once.
func (s *session) dispose(number uint32, o transport.Outcome) {
	if o != transport.OutcomeAccept && o != transport.OutcomeReject {
		s.mu.Lock()
		m := s.unsettled[number]
		s.mu.Unlock()
		wait := time.NewTimer(time.Until(times.ReleaseAt(time.Now(), m.since, m.earlier)))
		defer wait.Stop()
		select {
		case <-wait.C:
		case <-s.ctx.Done():
			return
		}
	}
	s.mu.Lock()
	m, l := s.unsettled[number].Message, s.receiver
	delete(s.unsettled, number)
	s.mu.Unlock()
	switch {
	case m == nil:
	case o == transport.OutcomeAccept:
		_ = l.AcceptMessage(s.ctx, m)
	case o == transport.OutcomeReject:
		_ = l.RejectMessage(s.ctx, m, nil)
	default:
		_ = l.ReleaseMessage(s.ctx, m)
	}
}

// tokens puts tokens to the hub over a pair of links to $cbs, one at a time.
type tokens struct {
	mu  sync.Mutex // held during an exchange
	out *raw.Sender
	in  *raw.Receiver
	n   int
}

const cbs, cbsReply = "$cbs", "cbs"

// open attaches the links.
func (t *tokens) open(ctx context.Context, c *raw.Conn) error {
	on, err := c.NewSession(ctx, nil)
	if err != nil {
		return err
	}
	if t.out, err = on.NewSender(ctx, cbs, nil); err != nil {
		return err
	}
	t.in, err = on.NewReceiver(ctx, cbs, &raw.ReceiverOptions{TargetAddress: cbsReply, Credit: 10})
	return err
}

// put puts a token and waits for the answer.
func (t *tokens) put(ctx context.Context, audience, token string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n++
	id, to, replyTo := "put-token-"+strconv.Itoa(t.n), cbs, cbsReply
	err := t.out.Send(ctx, &raw.Message{
		Properties: &raw.MessageProperties{MessageID: id, To: &to, ReplyTo: &replyTo},
		ApplicationProperties: map[string]any{"operation": "put-token", "type": "servicebus.windows.net:sastoken",
			"name": audience},
		Value: token,
	}, nil)
	for err == nil {
		var m *raw.Message
		if m, err = t.in.Receive(ctx, nil); err != nil {
			break
		}
		if err = t.in.AcceptMessage(ctx, m); err != nil {
			break
		}
		if m.Properties == nil || m.Properties.CorrelationID != id {
			continue // a late answer
		}
		status, ok := m.ApplicationProperties["status-code"]
		if !ok {
			status = m.ApplicationProperties["statusCode"]
		}
		switch n, _ := strconv.Atoi(message.ValueText(status)); n {
		case 0:
			return amqpclient.ErrNoStatus
		case 200, 202:
			return nil
		default:
			text, _ := m.ApplicationProperties["status-description"].(string)
			return &amqp.TokenError{Status: n, Description: scrub.Peer(text)}
		}
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return &transport.Error{Kind: transport.Timeout, Err: context.DeadlineExceeded}
	}
	return err
}

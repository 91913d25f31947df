package paho

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"sync"
	"time"

	paho "github.com/eclipse/paho.mqtt.golang"

	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/internal/scrub"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
)

// A session is one connection, on a client of paho that is used only once.
//
// Send and Do call paho's Publish and Subscribe on their caller's goroutine, with the send side's
// token. The end of the session keeps the token, so nothing is sent afterwards. The goroutine
// confirm, a child of Run, waits for the tokens of messages; paho's routing goroutine delivers.
type session struct {
	cfg     transport.Config
	info    transport.Info
	dialect dialect.Session
	// atMostOnce sends all telemetry with QoS 0.
	atMostOnce bool
	guard      *guard
	client     paho.Client

	// lost is closed when paho has reported the loss of the connection, closed when it has
	// disconnected. After either its goroutines have ended.
	lost, closed chan struct{}
	closeOnce    sync.Once
	ending       chan struct{}  // closed when Run begins to end the session
	sending      chan struct{}  // capacity 1; the send side's token
	unconfirmed  chan published // in the order of sending; its capacity is the window
	children     sync.WaitGroup // of Run: confirm, and one for each SUBSCRIBE
	topicBuf     []byte         // owned by the holder of the send side's token

	backlog mqttwire.Backlog
	message mqttwire.Inbound // guarded by backlog.Passing
	in      []byte           // a PUBLISH; owned by paho's routing goroutine, as routed is
	routed  uint64           // number of PUBLISHes from paho
}

// published is a message that paho has taken.
type published struct {
	tag   uint16
	qos0  bool
	token paho.Token
}

func newSession(cfg *transport.Config, token transport.Token, d dialect.Session, maxSize int, g *guard) *session {
	s := &session{
		cfg: *cfg, dialect: d, guard: g,
		lost: make(chan struct{}), closed: make(chan struct{}), ending: make(chan struct{}),
		sending: make(chan struct{}, 1), unconfirmed: make(chan published, cfg.Window),
	}
	s.backlog.Sink, s.backlog.Pass, s.backlog.Limit = cfg.Sink, s.pass, mqttwire.MaxBacklog
	s.backlog.Hold()
	g.progress = cfg.Progress
	s.info.MaxSize = maxSize
	if !token.Fixed {
		s.info.Expires = token.Expires
	}
	return s
}

// Info returns the size limit and the token's expiry.
func (s *session) Info() transport.Info { return s.info }

// Progress implements transport.Progressor.
func (s *session) Progress() (at time.Time, waits bool) { return s.guard.Progress() }

// Run waits for the end. It returns when the connection is closed and all goroutines have ended.
func (s *session) Run(ctx context.Context) error {
	s.children.Go(s.confirm)
	s.backlog.Release()
	select {
	case <-s.lost:
		close(s.ending)
		s.sending <- struct{}{} // never given back
		s.children.Wait()
		return loss(s.guard.failure())
	case <-ctx.Done():
		s.disconnect()
		return mqttwire.Loss(transport.Network, ctx.Err())
	}
}

// loss returns the error for the end of a live session.
func loss(err error) error {
	kind := transport.Network
	if errors.Is(err, mqttwire.ErrNoPong) || errors.Is(err, os.ErrDeadlineExceeded) {
		kind = transport.Timeout
	}
	return mqttwire.Loss(kind, scrub.Cause(err))
}

const (
	// disconnectLimit bounds disconnect; with the time that a Publish blocks it is below a second.
	disconnectLimit = 500 * time.Millisecond
	// disconnectWait is how long paho waits until DISCONNECT is written.
	disconnectWait = 250 // ms
)

// disconnect sends DISCONNECT and waits for all goroutines.
func (s *session) disconnect() {
	limit := time.AfterFunc(disconnectLimit, func() { s.guard.fail(errClosed) })
	defer limit.Stop()
	close(s.ending)
	s.sending <- struct{}{} // never given back
	s.client.Disconnect(disconnectWait)
	select {
	case <-s.closed:
	case <-s.lost: // the connection failed first
	}
	s.children.Wait()
}

// enter takes the send side's token. It returns false when the session has ended or is ending.
func (s *session) enter() bool {
	select {
	case s.sending <- struct{}{}:
		return true
	default:
		return false
	}
}

func (s *session) exit() { <-s.sending }

// Send hands the batch to paho, until the connection fails or the session ends.
func (s *session) Send(batch []transport.Item) {
	if !s.enter() {
		return
	}
	defer s.exit()
	for i := range batch {
		it := &batch[i]
		p, refused := s.dialect.Publication(it.Msg)
		if refused == nil {
			refused = s.fits(&p)
		}
		if refused != nil {
			s.cfg.Sink.Done(it.Tag, refused)
			continue
		}
		body := p.Msg.Body
		if p.Msg != it.Msg { // the dialect's, until its next Publication
			body = bytes.Clone(body)
		}
		qos0 := p.AtMostOnce || s.atMostOnce
		token := s.publish(s.topic(&p), qos(qos0), p.Retain, body)
		if token == nil {
			return
		}
		s.unconfirmed <- published{it.Tag, qos0, token}
	}
}

func (s *session) fits(p *dialect.Publication) *transport.Error {
	return mqttwire.Fits(p.Msg, s.info.MaxSize, len(p.Topic)+p.Suffix)
}

// topic returns the whole topic of p.
func (s *session) topic(p *dialect.Publication) string {
	if p.Suffix == 0 {
		return p.Topic
	}
	s.topicBuf = s.dialect.AppendSuffix(append(s.topicBuf[:0], p.Topic...), p.Msg)
	return string(s.topicBuf)
}

// publish hands the body to paho, which reads it until it gives the packet to guard. It returns nil
// when the connection was lost or the session ends.
func (s *session) publish(topic string, qos byte, retain bool, body []byte) paho.Token {
	return s.handOver(func() paho.Token { return s.client.Publish(topic, qos, retain, body) })
}

// handOver repeats a call that paho gives up after a while because the network is slow. It returns
// nil when the connection was lost or the session ends.
func (s *session) handOver(call func() paho.Token) paho.Token {
	for !isClosed(s.ending) {
		token := call()
		if !isClosed(token.Done()) {
			return token
		}
		switch err := token.Error(); {
		case err == nil || errors.Is(err, paho.ErrInvalidTopicMultilevel):
			return token
		case errors.Is(err, paho.ErrNotConnected):
			return nil
		case !strings.Contains(err.Error(), "timeout"): // such as that all packet ids are in use
			s.guard.fail(err)
			return nil
		}
	}
	return nil
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// confirm reports messages as acknowledged, or with QoS 0 as written, in the order of sending. The
// tokens of messages whose outcome is unknown have an error, or are not complete.
func (s *session) confirm() {
	for {
		select {
		case p := <-s.unconfirmed:
			select {
			case <-p.token.Done():
			case <-s.ending:
			}
			var result error
			if p.qos0 {
				result = transport.ErrWritten
			}
			if isClosed(p.token.Done()) && p.token.Error() == nil {
				s.cfg.Sink.Done(p.tag, result)
			}
		case <-s.ending:
			return
		}
	}
}

// Do hands a SUBSCRIBE or PUBLISH to paho. The PUBACK of an OpSettle is written to the connection:
// paho's Ack would need its message to be kept until then.
func (s *session) Do(r *transport.Request) {
	switch {
	case r.Op == transport.OpPing: // paho does that
	case !s.enter():
		s.unsent(r)
	default:
		defer s.exit()
		s.request(r)
	}
}

func (s *session) request(r *transport.Request) {
	switch r.Op {
	case transport.OpSettle:
		// PUBACK is MQTT's only outcome; without one the hub delivers again. Without a reference there
		// may be room for another message.
		if r.Outcome != transport.OutcomeRelease && len(r.Ref) == 2 {
			_, _ = s.guard.Write(mqttwire.AppendAck(nil, mqttwire.Puback, binary.BigEndian.Uint16(r.Ref), 0))
		}
		if len(r.Ref) == 2 {
			s.backlog.Settled(r.Ref)
		}
		s.room()
	case transport.OpSubscribe:
		s.subscribe(r)
	case transport.OpTwinGet, transport.OpTwinPatch, transport.OpRespond, transport.OpIssue:
		topic, qos, ok := s.dialect.AppendRequest(nil, r)
		switch {
		case !ok:
			s.reply(r, mqttwire.Refused(r.Op, transport.Unsupported, errUnsupported))
		case len(r.Body) > s.info.MaxSize || len(topic) > mqttwire.MaxText:
			e := mqttwire.TooLarge(len(r.Body), len(r.Body), s.info.MaxSize)
			e.Op = r.Op
			s.reply(r, e)
		case s.publish(string(topic), qos, false, bytes.Clone(r.Body)) == nil:
			s.unsent(r)
		}
	default:
		s.reply(r, mqttwire.Refused(r.Op, transport.Unsupported, errUnsupported))
	}
}

var errUnsupported = errors.New("not available with this dialect; messages need Commands in a topic map")

func (s *session) reply(r *transport.Request, err error) {
	s.cfg.Sink.Reply(r.ID, transport.Reply{Err: err})
}

// unsent replies that an answer to a method, or a request for a certificate, was not sent. Requests
// for the twin are repeated by the client on the next connection.
func (s *session) unsent(r *transport.Request) {
	if r.Op == transport.OpRespond || r.Op == transport.OpIssue {
		s.reply(r, mqttwire.Refused(r.Op, transport.Network, errClosed))
	}
}

// subscribe subscribes to the filters of a request, one SUBSCRIBE for each.
func (s *session) subscribe(r *transport.Request) {
	if r.Want == 0 {
		s.reply(r, nil)
		return
	}
	filters := s.dialect.Filters(r.Want)
	if len(filters) == 0 {
		s.reply(r, mqttwire.Refused(r.Op, transport.Unsupported, errUnsupported))
		return
	}
	tokens := make([]paho.Token, 0, len(filters))
	for _, f := range filters {
		token := s.handOver(func() paho.Token { return s.client.Subscribe(f.Topic, f.QoS, nil) })
		if token == nil {
			return // the connection was lost
		}
		tokens = append(tokens, token)
	}
	id, messages := r.ID, r.Want&transport.FeatureMessages != 0
	s.children.Go(func() {
		err, live := s.granted(filters, tokens)
		if live {
			s.cfg.Sink.Reply(id, transport.Reply{Err: err})
		}
		if live && err == nil && messages {
			s.backlog.Subscribed()
			s.room()
		}
	})
}

// granted returns nil when all filters are granted, or else why not. live is false when the session
// ends first.
func (s *session) granted(filters []dialect.Filter, tokens []paho.Token) (_ error, live bool) {
	for i, token := range tokens {
		select {
		case <-token.Done():
		case <-s.ending:
			return nil, false
		}
		if err := token.Error(); errors.Is(err, paho.ErrInvalidTopicMultilevel) {
			return mqttwire.Refused(transport.OpSubscribe, transport.Invalid, err), true
		} else if err != nil {
			return nil, false // the connection was lost
		}
		for _, code := range token.(*paho.SubscribeToken).Result() { // one, for the one filter
			if !mqttwire.Granted(code) {
				return mqttwire.Refused(transport.OpSubscribe, mqttwire.SubackMeaning(code).Kind,
					&mqttwire.SubackError{Filter: filters[i].Topic, Code: code}), true
			}
		}
	}
	return nil, true
}

package mqtt

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	paho "github.com/eclipse/paho.mqtt.golang"

	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/internal/wire"
)

// A session is one connection, on one client of the library that is never used again.
//
// Run's goroutine is the only one that calls the library's Publish and Subscribe, which may hold their caller for a while. Send and Do put
// what they are given into a queue for it. Answers are taken from the connection's bytes (the methods connack, puback, suback), on the library's reading
// goroutine: its own tokens never complete when the connection is lost. Cloud-to-device messages come on its routing goroutine.
type session struct {
	cfg    transport.Config
	info   transport.Info
	topics wire.Topics
	conn   *conn
	client paho.Client

	// lost is closed when the library has reported the loss of the connection, closed (capacity 1, made by goodbye) gets a value when it has disconnected. After
	// either its goroutines are done.
	lost    chan struct{}
	closed  chan struct{}
	wake    chan struct{} // capacity 1: there is something in the queue, or beatDue is set
	beatDue atomic.Bool   // it is time to look whether the connection wants a ping

	mu      sync.Mutex // guards what follows; held for memory only
	items   []transport.Item
	reqs    []subscribe
	ended   bool
	flights map[uint16]flight // by packet id

	// Of Run's goroutine.
	spareItems []transport.Item
	spareReqs  []subscribe
	now        flight // what Publish or Subscribe was called for
	again      bool
	nowID      uint16 // the packet id it got, 0 for none
	topicBuf   []byte

	// Of the routing goroutine.
	message *wire.Inbound // nil before the first
}

// flight is a packet that waits for its answer: a PUBLISH, or a SUBSCRIBE when it has filters.
type flight struct {
	tag     uint16
	req     uint32
	filters []string
}

// subscribe is an OpSubscribe, or with an unsupported op the wish for its refusal.
type subscribe struct {
	id   uint32
	op   transport.Op
	want transport.Features
}

func newSession(cfg *transport.Config, token transport.Token) *session {
	s := &session{
		cfg:    *cfg,
		topics: wire.NewTopics(cfg.Creds),
		lost:   make(chan struct{}),
		wake:   make(chan struct{}, 1),
	}
	s.flights = make(map[uint16]flight) // it and the queues grow with use: an idle session is small
	s.info.MaxSize = transport.MaxMessageSize
	if !token.Fixed {
		s.info.Expires = token.Expires
	}
	return s
}

// Info tells the size limit and the token's renewal.
func (s *session) Info() transport.Info { return s.info }

// Send puts the batch into the queue. It does not block.
func (s *session) Send(batch []transport.Item) {
	s.mu.Lock()
	if !s.ended {
		s.items = append(s.items, batch...)
	}
	s.mu.Unlock()
	poke(s.wake)
}

// Do puts the request into the queue, but for OpSettle, whose PUBACK goes straight to the connection. It does not block.
func (s *session) Do(r *transport.Request) {
	switch r.Op {
	case transport.OpSettle:
		// PUBACK is all that MQTT has; without one the hub delivers again.
		if r.Outcome != transport.Release && len(r.Ref) == 2 {
			_, _ = s.conn.Write([]byte{typePuback << 4, 2, r.Ref[0], r.Ref[1]})
		}
		return
	case transport.OpPing, transport.OpRespond:
		return // one-way, and not asked for
	}
	s.mu.Lock()
	if !s.ended {
		s.reqs = append(s.reqs, subscribe{r.ID, r.Op, r.Want})
	}
	s.mu.Unlock()
	poke(s.wake)
}

// Run is the session's life, and the sender.
func (s *session) Run(ctx context.Context) error {
	close(s.conn.open)
	err := s.serve(ctx)
	s.mu.Lock()
	s.ended = true
	s.items, s.reqs = nil, nil
	s.mu.Unlock()
	return err
}

// serve returns when the connection is gone and all goroutines are joined.
func (s *session) serve(ctx context.Context) error {
	beat := time.AfterFunc(s.conn.keepAlive(), func() {
		s.beatDue.Store(true)
		poke(s.wake)
	})
	defer beat.Stop()
	for {
		select {
		case <-s.wake:
			s.sendQueued(ctx)
			if s.beatDue.CompareAndSwap(true, false) {
				beat.Reset(s.conn.keepAlive())
			}
		case <-s.conn.dead:
			<-s.lost
			<-s.conn.flushed
			return lossError(s.conn.failure())
		case <-ctx.Done():
			s.goodbye()
			return &transport.Error{Kind: transport.Network, Scope: transport.Connection, Op: transport.OpRun, Proto: proto, Err: ctx.Err()}
		}
	}
}

const (
	// goodbyeLimit is when a goodbye is cut off.
	goodbyeLimit = 700 * time.Millisecond
	// disconnectWait is how long the library may take to hand the DISCONNECT over; it does not wait for the network.
	disconnectWait = 250 // ms
)

// goodbye sends DISCONNECT and joins all goroutines.
func (s *session) goodbye() {
	s.closed = make(chan struct{}, 1)
	limit := time.AfterFunc(goodbyeLimit, func() { s.conn.fail(errAborted) })
	s.client.Disconnect(disconnectWait)
	<-s.conn.flushed
	limit.Stop()
	select {
	case <-s.closed:
	case <-s.lost: // the connection was quicker
	}
}

// sendQueued empties the queue, unless the connection dies or ctx ends.
func (s *session) sendQueued(ctx context.Context) {
	s.mu.Lock()
	items, reqs := s.items, s.reqs
	s.items, s.reqs = s.spareItems[:0], s.spareReqs[:0]
	s.mu.Unlock()
	for i := range reqs {
		s.request(reqs[i])
	}
	for i := range items {
		if !s.conn.waitRoom(ctx.Done()) {
			break
		}
		s.publish(ctx, &items[i])
		items[i].Msg = nil
	}
	s.spareItems, s.spareReqs = items, reqs
}

// publish hands one message to the library.
func (s *session) publish(ctx context.Context, it *transport.Item) {
	if size := it.Msg.Size(); size > s.info.MaxSize {
		s.tooLarge(it.Tag, size, s.info.MaxSize)
		return
	}
	topic := s.topics.Telemetry
	if wire.HasBag(it.Msg) {
		s.topicBuf = wire.AppendBag(append(s.topicBuf[:0], topic...), it.Msg)
		if len(s.topicBuf) > wire.MaxTopic {
			s.tooLarge(it.Tag, len(s.topicBuf), wire.MaxTopic)
			return
		}
		topic = string(s.topicBuf)
	}
	s.now, s.again = flight{tag: it.Tag}, it.Again
	for ctx.Err() == nil {
		s.nowID = 0
		token := s.client.Publish(topic, 1, false, it.Msg.Body)
		if token.Error() == nil || s.conn.failure() != nil {
			return
		}
		// The library did not take the packet within libraryWait although the connection lives: the machine is slow. The
		// packet was not sent and its id stays unused.
		if s.nowID == 0 {
			return // it noticed a loss before we did
		}
		s.land(s.nowID)
	}
}

func (s *session) tooLarge(tag uint16, size, limit int) {
	s.cfg.Sink.Done(tag, wire.TooLarge(size, limit))
}

// request hands one SUBSCRIBE to the library, or replies at once.
func (s *session) request(r subscribe) {
	if r.op != transport.OpSubscribe || r.want&^transport.Messages != 0 {
		s.cfg.Sink.Reply(r.id, transport.Reply{Err: wire.Refused(r.op, transport.Unsupported, errors.New("not available over this transport"))})
		return
	}
	if r.want == 0 {
		s.cfg.Sink.Reply(r.id, transport.Reply{})
		return
	}
	s.now, s.nowID = flight{req: r.id}, 0
	token := s.client.SubscribeMultiple(map[string]byte{s.topics.Messages: 1}, nil)
	switch err := token.Error(); {
	case err == nil || s.conn.failure() != nil:
	case s.nowID != 0:
		s.land(s.nowID)
		s.cfg.Sink.Reply(r.id, transport.Reply{Err: wire.Refused(r.op, transport.Timeout, err)})
	case errors.Is(err, paho.ErrNotConnected): // it noticed a loss before we did
	default: // no filter can be made from this id
		s.cfg.Sink.Reply(r.id, transport.Reply{Err: wire.Refused(r.op, transport.Invalid, err)})
	}
}

// connack is called by the framer. The library knows codes 0 to 5 only and takes all others for success.
func (s *session) connack(code byte) error {
	if code != 0 {
		return &ConnackError{Code: code}
	}
	return nil
}

// puback is called by the framer.
func (s *session) puback(id uint16) error {
	s.mu.Lock()
	f, ok := s.flights[id]
	if ok && f.filters == nil {
		delete(s.flights, id)
	}
	s.mu.Unlock()
	switch {
	case !ok: // answered before, or never sent
	case f.filters != nil:
		return violation("the hub answered a SUBSCRIBE with PUBACK")
	default:
		s.cfg.Sink.Done(f.tag, nil)
	}
	return nil
}

// pingresp is called by the framer.
func (s *session) pingresp() { s.conn.pong() }

// suback is called by the framer. What does not fit the SUBSCRIBE must not reach the library, which would panic.
func (s *session) suback(id uint16, codes []byte) error {
	f := s.land(id)
	if len(f.filters) != len(codes) || len(codes) == 0 {
		return violation("the hub sent a SUBACK that answers no SUBSCRIBE")
	}
	var reply transport.Reply
	for i, code := range codes {
		if !wire.Granted(code) {
			reply.Err = wire.Refused(transport.OpSubscribe, wire.SubackMeaning(code).Kind, &SubackError{Filter: f.filters[i], Code: code})
			break
		}
	}
	s.cfg.Sink.Reply(f.req, reply)
	return nil
}

// land takes a packet out of the flights.
func (s *session) land(id uint16) flight {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.flights[id]
	delete(s.flights, id)
	return f
}

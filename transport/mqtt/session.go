package mqtt

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	paho "github.com/eclipse/paho.mqtt.golang"

	"github.com/hubline-iot/hubline/internal/dialer"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
	"github.com/hubline-iot/hubline/transport/mqtt/internal/wire"
)

// A session is one connection, on a client of the library that is used only once.
//
// Send and Do call the library's Publish and Subscribe on their caller's goroutine, with the send
// side's token. The end of the session keeps the token, so nothing is sent, and no message touched,
// afterwards. The library may block them for libraryWait after a loss, else only while the network
// accepts no data. Acknowledgements are taken from the connection's bytes (the methods connack,
// puback, suback), on the library's reading goroutine: its own tokens never complete when the
// connection is lost. Publications of the hub arrive on its routing goroutine.
type session struct {
	cfg     transport.Config
	info    transport.Info
	dialect dialect.Session
	// atMostOnce sends all telemetry with QoS 0.
	atMostOnce bool
	conn       *conn
	client     paho.Client

	// lost is closed when the library has reported the loss of the connection. closed (capacity 1,
	// made by disconnect) gets a value when it has disconnected. After either its goroutines have
	// ended.
	lost          chan struct{}
	closed        chan struct{}
	sending       chan struct{} // capacity 1; holding the send side's token means having put a value into it
	disconnecting chan struct{} // closed when disconnect begins

	mu   sync.Mutex              // guards subs; never held during I/O
	subs map[uint16]subscription // SUBSCRIBEs in flight, by packet id; nil before the first

	// Owned by the holder of the send side's token.
	subscribing func(error) // for the answer to the current call of Subscribe
	subscribeID uint16      // the packet id of its SUBSCRIBE, 0 for none
	topicBuf    []byte

	early early
	// Owned by the routing goroutine, and until early is empty by Run's.
	message *wire.Inbound // nil before the first
	topicIn []byte        // of the message
}

// subscription is a SUBSCRIBE that waits for its SUBACK.
type subscription struct {
	answered func(error)
	filters  []string
}

// A message's packet id is MaxUint16 minus its tag. The library counts the ids of its SUBSCRIBEs
// from 1 to lastSubID. issueID is that of requests for certificates, whose PUBACK is ignored: only
// the answer counts.
const (
	issueID   = math.MaxUint16 - transport.MaxTags
	lastSubID = issueID - 1
)

// subIDMask makes of the library's id of a SUBSCRIBE the one on the network, and back: the library
// counts from 1, as brokers do for their messages, and some brokers refuse a SUBSCRIBE with the id
// of a message of theirs that is not acknowledged.
var subIDMask = [2]byte{issueID >> 8, issueID & 0xff}

func packetID(tag uint16) uint16 { return math.MaxUint16 - tag }
func tagOf(id uint16) uint16     { return math.MaxUint16 - id }

func newSession(cfg *transport.Config, token transport.Token, d dialect.Session, maxSize int) *session {
	s := &session{
		cfg:           *cfg,
		dialect:       d,
		lost:          make(chan struct{}),
		sending:       make(chan struct{}, 1),
		disconnecting: make(chan struct{}),
	}
	s.info.MaxSize = maxSize
	if !token.Fixed {
		s.info.Expires = token.Expires
	}
	return s
}

// Info returns the size limit and the token's expiry.
func (s *session) Info() transport.Info { return s.info }

// enter takes the send side's token. It returns false when the session has ended or is ending, or
// the token is taken.
func (s *session) enter() bool {
	select {
	case s.sending <- struct{}{}:
		return true
	default:
		return false
	}
}

func (s *session) leave() { <-s.sending }

// Send hands the batch to the library, until the connection fails or disconnect begins.
func (s *session) Send(batch []transport.Item) {
	if !s.enter() {
		return
	}
	defer s.leave()
	s.conn.announce(len(batch))
	space := 0
	for i := range batch {
		if space <= 0 {
			if space = s.conn.waitForSpace(s.disconnecting); space <= 0 {
				return
			}
		}
		n := s.publish(&batch[i])
		if n == 0 {
			s.conn.withdraw()
		}
		space -= n
	}
}

// Progress implements transport.Progressor.
func (s *session) Progress() time.Time { return dialer.Progress(s.conn.socket) }

// Do hands a SUBSCRIBE or PUBLISH to the library. The PUBACK of an OpSettle is written to the
// connection directly.
func (s *session) Do(r *transport.Request) {
	switch r.Op {
	case transport.OpSettle:
		// PUBACK is MQTT's only outcome; without one the hub delivers again. waitForSpace blocks while
		// the hub reads nothing.
		if r.Outcome != transport.Release && len(r.Ref) == 2 && s.conn.waitForSpace(s.disconnecting) > 0 {
			_, _ = s.conn.Write([]byte{typePuback << 4, 2, r.Ref[0], r.Ref[1]})
		}
		return
	case transport.OpPing:
		return // keepAlive pings
	default: // the other ops follow
	}
	if s.enter() {
		s.request(r)
		s.leave()
	} else {
		s.replyUnsent(r)
	}
}

// Run starts the keep-alive and waits for the end. It returns when the connection is closed and all
// goroutines have ended.
func (s *session) Run(ctx context.Context) error {
	s.conn.start()
	s.deliverEarly()
	beat := time.NewTimer(s.conn.keepAlive())
	defer beat.Stop()
	for {
		select {
		case <-beat.C:
			beat.Reset(s.conn.keepAlive())
		case <-s.conn.dead:
			<-s.lost
			<-s.conn.flushed
			s.sending <- struct{}{} // never given back
			return lossError(s.conn.failure())
		case <-ctx.Done():
			s.disconnect()
			return &transport.Error{Kind: transport.Network, Scope: transport.Connection, Op: transport.OpRun, Proto: proto,
				Err: ctx.Err()}
		}
	}
}

const (
	// disconnectLimit bounds disconnect.
	disconnectLimit = 700 * time.Millisecond
	// disconnectWait is how long the library may take to write the DISCONNECT to conn; it does not
	// wait for the network.
	disconnectWait = 250 // ms
)

// disconnect sends DISCONNECT and waits for all goroutines.
func (s *session) disconnect() {
	s.closed = make(chan struct{}, 1)
	limit := time.AfterFunc(disconnectLimit, func() { s.conn.fail(errAborted) })
	close(s.disconnecting)
	s.sending <- struct{}{} // never given back
	s.client.Disconnect(disconnectWait)
	<-s.conn.flushed
	limit.Stop()
	select {
	case <-s.closed:
	case <-s.lost: // the connection failed first
	}
}

// publish hands one message to the library. It returns the number of bytes of topic and payload, 0
// when no packet will be written for it.
func (s *session) publish(it *transport.Item) int {
	p, err := s.prepare(it.Msg)
	if err != nil {
		s.cfg.Sink.Done(it.Tag, err)
		return 0
	}
	topic := s.topic(&p)
	how := publication{id: packetID(it.Tag), again: it.Again}
	if p.AtMostOnce || s.atMostOnce {
		how = publication{atMostOnce: true, tag: it.Tag}
	}
	body := p.Msg.Body // once it is acknowledged, the message is the caller's
	for !s.isDisconnecting() {
		err := s.publishPaho(topic, body, p.Retain, how)
		if err == nil {
			return len(topic) + len(body)
		}
		// Either the connection was lost, or the library did not take the packet within libraryWait
		// although the connection is alive, because the machine or the network is slow.
		if errors.Is(err, paho.ErrNotConnected) || s.conn.failure() != nil {
			break
		}
	}
	return 0
}

// prepare returns how the message is sent, or an error about it alone.
func (s *session) prepare(m *transport.Message) (dialect.Publication, error) {
	p, refused := s.dialect.Publication(m)
	if refused != nil {
		return p, refused
	}
	return p, s.fits(&p)
}

// fits returns an error that says which part of p is too large.
func (s *session) fits(p *dialect.Publication) error {
	if size := p.Msg.Size(); size > s.info.MaxSize {
		return wire.TooLarge(size, len(p.Msg.Body), s.info.MaxSize)
	}
	if n := len(p.Topic) + p.Suffix; n > wire.MaxTopic {
		return wire.LongTopic(n)
	}
	return nil
}

// topic returns the whole topic of p.
func (s *session) topic(p *dialect.Publication) string {
	if p.Suffix == 0 {
		return p.Topic
	}
	s.topicBuf = s.dialect.AppendSuffix(append(s.topicBuf[:0], p.Topic...), p.Msg)
	return string(s.topicBuf)
}

// publishPaho hands a PUBLISH to the library. With an error the library did not take it.
func (s *session) publishPaho(topic string, body []byte, retain bool, p publication) error {
	s.conn.expect(p)
	err := s.client.Publish(topic, 0, retain, body).Error()
	if err != nil {
		s.conn.unexpect()
	}
	return err
}

func (s *session) isDisconnecting() bool {
	select {
	case <-s.disconnecting:
		return true
	default:
		return false
	}
}

// request hands one SUBSCRIBE or PUBLISH to the library, or replies at once.
func (s *session) request(r *transport.Request) {
	switch r.Op {
	case transport.OpSubscribe:
		s.subscribe(r)
	case transport.OpTwinGet, transport.OpTwinPatch, transport.OpRespond, transport.OpIssue:
		topic, qos, ok := s.dialect.AppendRequest(nil, r)
		if !ok {
			s.unsupported(r)
			return
		}
		var p publication
		if qos > 0 {
			p.id = issueID
		}
		s.publishRequest(r, topic, p)
	default:
		s.unsupported(r)
	}
}

func (s *session) unsupported(r *transport.Request) {
	s.cfg.Sink.Reply(r.ID, transport.Reply{Err: wire.Refused(r.Op, transport.Unsupported, errUnsupported)})
}

func (s *session) subscribe(r *transport.Request) {
	if r.Want == 0 {
		s.cfg.Sink.Reply(r.ID, transport.Reply{})
		return
	}
	wanted := s.dialect.Filters(r.Want)
	if len(wanted) == 0 {
		s.unsupported(r)
		return
	}
	id := r.ID
	if err := s.subscribePaho(wanted, func(err error) { s.cfg.Sink.Reply(id, transport.Reply{Err: err}) }); err != nil {
		s.cfg.Sink.Reply(id, transport.Reply{Err: err})
	}
}

// subscribePaho hands a SUBSCRIBE to the library. answered is called on the reading goroutine, with
// what the hub answers. With an error it is not called.
func (s *session) subscribePaho(wanted []dialect.Filter, answered func(error)) error {
	filters := make(map[string]byte, len(wanted))
	for _, f := range wanted {
		filters[f.Topic] = f.QoS
	}
	s.subscribing, s.subscribeID = answered, 0
	token := s.client.SubscribeMultiple(filters, nil)
	switch err := token.Error(); {
	case err == nil || s.conn.failure() != nil:
	case s.subscribeID != 0:
		s.takeSubscription(s.subscribeID)
		return wire.Refused(transport.OpSubscribe, transport.Timeout, err)
	case errors.Is(err, paho.ErrNotConnected): // the library noticed the loss before conn did
	default: // the device id makes an invalid filter
		return wire.Refused(transport.OpSubscribe, transport.Invalid, err)
	}
	return nil
}

// publishRequest publishes a request for the twin or for a certificate, or an answer to a method.
// When the library does not take it within libraryWait, the client repeats requests for the twin on
// the next connection.
func (s *session) publishRequest(r *transport.Request, topic []byte, p publication) {
	if len(r.Body) > s.info.MaxSize || len(topic) > wire.MaxTopic {
		e := wire.TooLarge(len(r.Body), len(r.Body), s.info.MaxSize)
		e.Op = r.Op
		s.cfg.Sink.Reply(r.ID, transport.Reply{Err: e})
		return
	}
	if s.conn.waitForSpace(s.disconnecting) > 0 {
		err := s.publishPaho(string(topic), append([]byte(nil), r.Body...), false, p)
		if err == nil && s.conn.failure() == nil {
			return
		}
	}
	s.replyUnsent(r)
}

// replyUnsent replies that an answer to a method, or a request for a certificate, was not sent.
// Requests for the twin are repeated by the client on the next connection.
func (s *session) replyUnsent(r *transport.Request) {
	if r.Op == transport.OpRespond || r.Op == transport.OpIssue {
		s.cfg.Sink.Reply(r.ID, transport.Reply{Err: wire.Refused(r.Op, transport.Network, errClosed)})
	}
}

// connack is called by the framer. The library knows only the codes 0 to 5 and takes all others for
// success.
func (s *session) connack(code byte) error {
	if code != 0 {
		return &ConnackError{Code: code}
	}
	return nil
}

// puback is called by the framer.
func (s *session) puback(id uint16) error {
	if id > issueID {
		if tag := tagOf(id); s.conn.acked(tag) {
			s.cfg.Sink.Done(tag, nil)
		}
	} else if id == issueID {
		notify(s.early.acked)
	} else if s.takeSubscription(id^issueID).filters != nil {
		return violation("the hub answered a SUBSCRIBE with PUBACK")
	}
	return nil
}

// pingresp is called by the framer.
func (s *session) pingresp() { s.conn.pong() }

// suback is called by the framer. A SUBACK that does not match its SUBSCRIBE must not reach the
// library, which would panic.
func (s *session) suback(id uint16, codes []byte) error {
	sub := s.takeSubscription(id)
	if len(sub.filters) != len(codes) || len(codes) == 0 {
		return violation("the hub sent a SUBACK that answers no SUBSCRIBE")
	}
	var refused error
	for i, code := range codes {
		if !wire.Granted(code) {
			refused = wire.Refused(transport.OpSubscribe, wire.SubackMeaning(code).Kind, &SubackError{Filter: sub.filters[i],
				Code: code})
			break
		}
	}
	sub.answered(refused)
	return nil
}

// takeSubscription removes and returns the SUBSCRIBE with this id; the result has no filters if
// there is none.
func (s *session) takeSubscription(id uint16) subscription {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := s.subs[id]
	delete(s.subs, id)
	return sub
}

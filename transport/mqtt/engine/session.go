package engine

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/internal/ascii"
	"github.com/hubline-iot/hubline/internal/errchain"
	"github.com/hubline-iot/hubline/internal/lifetime"
	"github.com/hubline-iot/hubline/internal/mqttpacket"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
	"github.com/hubline-iot/hubline/transport/mqtt/internal/wire"
)

// live is a session as its client holds it. The compiler for boards links a description of each
// type that an interface holds, with the types of its fields, and all of their methods count as
// used. A function hides them.
type live struct{ own func() *session }

var (
	_ transport.Session    = (*live)(nil)
	_ transport.Progressor = (*live)(nil)
)

func (s *session) hidden() *live  { return &live{own: s.self} }
func (s *session) self() *session { return s }

func (l *live) Info() transport.Info          { return l.own().Info() }
func (l *live) Run(ctx context.Context) error { return l.own().Run(ctx) }
func (l *live) Send(batch []transport.Item)   { l.own().Send(batch) }
func (l *live) Do(r *transport.Request)       { l.own().Do(r) }
func (l *live) Progress() time.Time           { return l.own().Progress() }

// A session is one connection.
//
// Run's goroutine reads and never writes, so it always notices a dead connection; by closing it,
// Run unblocks a stuck writer. Send and Do write on their caller's goroutine, with the write side's
// token. disconnect and the end of Run keep the token, so nothing is written, and no message
// touched, afterwards. The Sink may be called with the token held: no Sink waits for anything that
// needs it.
type session struct {
	t       *core
	conn    Conn
	sink    transport.Sink
	info    transport.Info
	dialect dialect.Session

	backlog      backlog
	writing      chan struct{} // capacity 1; holding the write side's token means having put a value into it
	disconnected chan struct{} // closed when disconnect has ended

	// Owned by the reading goroutine: Dial's, then Run's.
	unread      int       // bytes in the read buffer that are not handled yet
	kept        int       // bytes of whole packets among them that waited for Run
	skip        int       // bytes still to read of a packet that does not fit
	filled      bool      // the latest read filled the read buffer
	deadlineSet time.Time // when the read deadline was last moved

	// Owned by the holder of the write side's token.
	lastID        uint16
	writeBegan    time.Time // start of the present Send or Do, or its latest progress
	writeProgress time.Time // latest progress of a slow write

	mu  sync.Mutex // guards the fields below; never held during I/O
	err error      // the first failure
	// handshakeUnacked: the message of the handshake was written and not acknowledged.
	handshakeUnacked bool
	verdicts
	subs [maxSubs]subscription
}

// subscription is a SUBSCRIBE that waits for its SUBACK; id is zero when there is none.
type subscription struct {
	id   uint16
	req  uint32
	want transport.Features
}

// maxSubs is the most subscriptions in flight.
const maxSubs = 4

func newSession(t *core, cfg *transport.Config, token transport.Token, d dialect.Session, c Conn) *session {
	s := &session{
		t: t, conn: c, sink: cfg.Sink, dialect: d,
		writing: make(chan struct{}, 1), disconnected: make(chan struct{}), lastID: transport.MaxTags,
	}
	clear(t.unacked)
	s.info = transport.Info{MaxSize: transport.MaxMessageSize, KeepAlive: t.opt.KeepAlive}
	if !token.Fixed {
		s.info.Expires = token.Expires
	}
	return s
}

// readTimeout is how long the hub may send nothing.
func (s *session) readTimeout() time.Duration { return s.info.KeepAlive + s.t.opt.PingTimeout }

// Info returns the size limit, the ping interval and the token's expiry.
func (s *session) Info() transport.Info { return s.info }

// Progress implements transport.Progressor. It returns the connection's progress, if the connection
// reports it, or else the latest progress of a slow write. It must not run concurrently with Send
// or Do.
func (s *session) Progress() time.Time {
	if p, ok := s.conn.(transport.Progressor); ok {
		return p.Progress()
	}
	return s.writeProgress
}

// Run reads until the connection ends or ctx does.
func (s *session) Run(ctx context.Context) error {
	stop := lifetime.AfterFunc(ctx, s.disconnect) // ends by closing disconnected
	err := s.read()
	s.sayGoodbye(err)
	s.fail(err)
	if stop() {
		s.writing <- struct{}{} // never given back; the connection is closed, so its holder leaves soon
	} else {
		<-s.disconnected
	}
	err = s.failure()
	ended := ctx.Err()
	var why error
	if v := s.t.newer(); v != nil {
		why = v.end(err)
	}
	s.t.busy.Store(false)
	switch {
	case ended != nil:
		return wire.Loss(transport.Network, ended)
	case why != nil:
		return why
	case wire.TimedOut(err) || errchain.Same(err, wire.ErrNoPong):
		return wire.Loss(transport.Timeout, err)
	}
	return wire.Loss(transport.Network, err)
}

const (
	// disconnectLimit bounds disconnect.
	disconnectLimit = 600 * time.Millisecond
	// maxIncoming caps a packet's remaining length. The largest packets from a hub carry the JSON of a
	// method or twin.
	maxIncoming = 1 << 20
	// minRead and maxRead are the smallest and the largest size of the read buffer between large
	// packets; it grows when reads fill it.
	minRead, maxRead = 256, 8 << 10
)

// disconnect sends DISCONNECT and closes. It runs on its own goroutine when Run's context ends.
func (s *session) disconnect() {
	fired := make(chan struct{})
	limit := time.AfterFunc(disconnectLimit, func() { // unblocks a stuck write
		s.fail(errAborted)
		close(fired)
	})
	s.writing <- struct{}{} // never given back
	var buf [2]byte
	_, _ = s.conn.Write(mqttpacket.AppendDisconnect(buf[:0]))
	if !limit.Stop() {
		<-fired
	}
	s.fail(errClosed)
	close(s.disconnected)
}

// sayGoodbye sends DISCONNECT on a connection that this side ends for err, if the peer is to know.
func (s *session) sayGoodbye(err error) {
	packet := s.goodbye(err)
	if packet == nil {
		return
	}
	late := make(chan struct{})
	limit := time.AfterFunc(disconnectLimit, func() { // unblocks a stuck write
		s.fail(err)
		close(late)
	})
	select {
	case s.writing <- struct{}{}:
		_, _ = s.conn.Write(packet)
		<-s.writing
	case <-late:
	}
	if !limit.Stop() {
		<-late
	}
}

// goodbye returns the DISCONNECT for err; nil for none. Without it the peer would publish the will.
func (s *session) goodbye(err error) []byte {
	if v := s.t.newer(); v != nil {
		return v.goodbye(s, err)
	}
	if errchain.Has(err, errBehind) {
		return mqttpacket.AppendDisconnect(nil)
	}
	return nil
}

// fail records the first failure and closes the connection, which unblocks reads and writes.
func (s *session) fail(err error) {
	s.mu.Lock()
	first := s.err == nil
	if first {
		s.err = err
	}
	s.mu.Unlock()
	if first {
		_ = s.conn.Close()
	}
}

// failure returns the first failure, nil as long as there is none.
func (s *session) failure() error {
	s.mu.Lock()
	err := s.err
	s.mu.Unlock()
	return err
}

// read reads and handles packets until the connection ends, and returns why it ended.
func (s *session) read() error {
	for {
		want, err := s.handlePackets()
		if err != nil {
			return err
		}
		space := s.readSpace(want)
		if at := s.nextReadDeadline(); !at.IsZero() {
			_ = s.conn.SetReadDeadline(at)
		}
		n, err := s.conn.Read(space)
		if n == 0 {
			switch {
			case err == nil:
				return io.ErrNoProgress
			case errchain.Same(err, io.EOF):
				return wire.HubClosed{}
			case wire.TimedOut(err):
				if s.stillProgressing() || s.wasStopped() {
					continue
				}
				return wire.ErrNoPong
			}
			return err
		}
		s.filled = n == len(space)
		if n <= s.skip {
			s.skip -= n
			continue
		}
		s.unread += copy(space, space[s.skip:n])
		s.skip = 0
	}
}

// stillProgressing reports whether the connection has progressed with bytes that precede a ping's
// answer within PingTimeout; if so it extends the read deadline.
func (s *session) stillProgressing() bool {
	p, ok := s.conn.(transport.Progressor)
	if !ok {
		return false
	}
	now, until := time.Now(), p.Progress().Add(s.t.opt.PingTimeout)
	if !now.Before(until) {
		return false
	}
	s.deadlineSet = now
	_ = s.conn.SetReadDeadline(until)
	return true
}

// wasStopped reports whether the read deadline passed so long ago that the process must have been
// stopped, by a signal or with its virtual machine. Then the answer may be in the socket: the read
// is repeated, with a new deadline.
func (s *session) wasStopped() bool {
	return time.Since(s.deadlineSet) > s.readTimeout()+time.Second
}

// handlePackets handles the whole packets in the read buffer and moves the rest to its front. It
// returns the least number of bytes missing from the packet there.
func (s *session) handlePackets() (want int, err error) {
	in := s.t.in[:s.unread]
	for want = 1; len(in) > 0; {
		h, ok, err := s.next(in)
		if err != nil {
			return 0, err
		}
		if !ok {
			break
		}
		size := h.Size + h.Body
		if size > len(in) {
			want = size - len(in)
			if fixed := s.t.opt.ReadBuffer; fixed > 0 && size > fixed {
				if len(in) < fixed && h.Type == mqttpacket.Publish {
					break // missed needs its topic
				}
				if h.Type == mqttpacket.Publish {
					s.missed(h, in[h.Size:], size)
				}
				s.skip, s.unread = want, 0
				return 1, nil
			}
			break
		}
		if err := s.handle(h, in[h.Size:size]); err != nil {
			return 0, err
		}
		in = in[size:]
	}
	s.unread = copy(s.t.in, in)
	return want, nil
}

// next reads the header of the packet at the beginning of in, and checks its size. It returns false
// when in ends within the header.
func (s *session) next(in []byte) (h mqttpacket.Header, ok bool, err error) {
	if v := s.t.newer(); v != nil {
		return v.next(in)
	}
	h, ok, err = mqttpacket.Next(in)
	switch {
	case err != nil:
		err = wire.Violation{Err: err}
	case ok && h.Body > bodyLimit(h.Type):
		err = tooLongPacket(h)
	}
	return h, ok, err
}

func tooLongPacket(h mqttpacket.Header) wire.Violation {
	return wire.NewViolation("the hub sent a packet of type " + ascii.Itoa(int(h.Type)) + " with " +
		ascii.Itoa(h.Body) + " bytes")
}

// bodyLimit returns the most bytes that a hub may send in a packet's body.
func bodyLimit(t mqttpacket.Type) int {
	if t == mqttpacket.Publish {
		return maxIncoming
	}
	return 2 + maxSubackCodes
}

// maxSubackCodes is the most return codes in a SUBACK that the session reads: one more than it ever
// expects.
const maxSubackCodes = dialect.MaxFilters + 1

// handle processes one packet. Some hubs send DISCONNECT before they close, though 3.1.1 allows it
// to clients only.
func (s *session) handle(h mqttpacket.Header, body []byte) error {
	if v := s.t.newer(); v != nil {
		return v.handle(s, h, body)
	}
	switch h.Type {
	case mqttpacket.Puback:
		id, err := mqttpacket.ReadID(body)
		if err != nil {
			return wire.Violation{Err: err}
		}
		return s.puback(id)
	case mqttpacket.Publish:
		return s.incoming(h.Flags, body)
	case mqttpacket.Suback:
		id, codes, err := mqttpacket.ReadSuback(body)
		if err != nil {
			return wire.Violation{Err: err}
		}
		return s.suback(id, codes)
	case mqttpacket.Pingresp, mqttpacket.Disconnect:
		if err := mqttpacket.ReadEmpty(body); err != nil {
			return wire.Violation{Err: err}
		}
		return nil
	case mqttpacket.Connack:
		return wire.NewViolation("the hub sent a second CONNACK") // [MQTT-3.2.0-1]
	case mqttpacket.Connect, mqttpacket.Subscribe, mqttpacket.Unsubscribe, mqttpacket.Unsuback, mqttpacket.Pingreq,
		mqttpacket.Pubrec, mqttpacket.Pubrel, mqttpacket.Pubcomp, mqttpacket.Auth:
	}
	return wire.NewViolation("the hub sent a packet of type " + ascii.Itoa(int(h.Type)) + ", which is not for clients")
}

// puback reports the message as done. A PUBACK for a message that is not written yet, or was
// acknowledged before, is ignored: until a message is written, Send may read it.
func (s *session) puback(id uint16) error {
	if s.answeredMessage(id - 1) {
		s.sink.Done(id-1, nil)
		return nil
	}
	return s.acknowledged(id)
}

// handshakeTag is the tag of the message of a handshake, which no other message has. Its packet id
// is none of nextID.
const handshakeTag = lastPacketID - 1

const lastPacketID = 65535

// wrote records that the peer may have the message from now on.
func (s *session) wrote(tag uint16) {
	s.mu.Lock()
	if tag == handshakeTag {
		s.handshakeUnacked, s.t.handshake = true, true
	} else {
		s.t.unacked.Add(tag)
		s.t.inFlight.Add(tag)
		s.t.unsent.Remove(tag)
	}
	s.mu.Unlock()
}

// answeredMessage records an acknowledgement. It returns false if no message with this tag waited
// for one on this connection.
func (s *session) answeredMessage(tag uint16) (ours bool) {
	s.mu.Lock()
	if tag == handshakeTag {
		if ours = s.handshakeUnacked; ours {
			s.handshakeUnacked, s.t.handshake = false, false
		}
	} else if ours = s.t.unacked.Remove(tag); ours {
		s.t.inFlight.Remove(tag)
	}
	s.mu.Unlock()
	return ours
}

// mayHave reports whether the peer may have a copy of a message that was handed over before. A peer
// that speaks MQTT 5 says when it has forgotten the session. Otherwise another Transport of the
// client may have written the message.
func (s *session) mayHave(tag uint16) (may bool) {
	s.mu.Lock()
	switch {
	case tag == handshakeTag:
		may = s.t.handshake
	case s.t.newer() != nil:
		may = s.t.inFlight.Has(tag)
	default:
		may = !s.t.unsent.Has(tag)
	}
	s.mu.Unlock()
	return may
}

// took begins the record of a batch: messages that were not handed over before have no earlier
// copy. It returns false when the connection has failed.
func (s *session) took(batch []transport.Item) bool {
	s.mu.Lock()
	for i := range batch {
		if tag := batch[i].Tag; !batch[i].Again {
			s.t.inFlight.Remove(tag)
			s.t.unsent.Add(tag)
		}
	}
	ok := s.err == nil
	s.mu.Unlock()
	return ok
}

// acknowledged handles a PUBACK for no message of Send.
func (s *session) acknowledged(id uint16) error {
	if _, ok := s.takeSubscription(id); ok {
		return wire.NewViolation("the hub answered a SUBSCRIBE with PUBACK")
	}
	return nil // acknowledged before, or never sent
}

// suback replies to the OpSubscribe.
func (s *session) suback(id uint16, codes []byte) error {
	sub, filters, err := s.answered(id, len(codes))
	if err != nil {
		return err
	}
	var reply transport.Reply
	for i, code := range codes {
		if !wire.Granted(code) {
			reply.Err = wire.Refused(transport.OpSubscribe, wire.SubackMeaning(code).Kind, &SubackError{Filter: filters[i].Topic,
				Code: code})
			break
		}
	}
	return s.subscribedTo(sub, reply)
}

// subscribedTo replies to the OpSubscribe.
func (s *session) subscribedTo(sub subscription, reply transport.Reply) error {
	s.sink.Reply(sub.req, reply)
	if reply.Err == nil && sub.want&transport.FeatureMessages != 0 {
		return s.nowSubscribed()
	}
	return nil
}

// answered removes and returns the subscription of a SUBACK, and its filters.
func (s *session) answered(id uint16, codes int) (subscription, []dialect.Filter, error) {
	sub, ok := s.takeSubscription(id)
	filters := s.dialect.Filters(sub.want)
	if !ok || codes != len(filters) {
		return sub, nil, wire.NewViolation("the hub sent a SUBACK that answers no SUBSCRIBE")
	}
	return sub, filters, nil
}

// missed reports a PUBLISH of size bytes that does not fit into the read buffer. body is the
// beginning of the packet's body.
func (s *session) missed(h mqttpacket.Header, body []byte, size int) {
	if in, err := mqttpacket.ReadPublish(h.Flags, body); err == nil {
		in.Body = nil
		s.backlog.mu.Lock()
		defer s.backlog.mu.Unlock()
		s.dialect.Missed(s.sink, in.Topic, s.delivery(&in), size, s.t.opt.ReadBuffer)
	}
}

// delivery returns the delivery of a PUBLISH, in the Transport's memory, which is allocated once.
func (s *session) delivery(in *mqttpacket.Incoming) *transport.Delivery {
	if s.t.message == nil {
		s.t.message = new(wire.Inbound)
	}
	return s.t.message.Delivery(in.Body, in.ID, in.Retain, in.Dup)
}

// takeSubscription removes and returns the subscription with this id; ok is false without one.
func (s *session) takeSubscription(id uint16) (sub subscription, ok bool) {
	s.mu.Lock()
	for i := range s.subs {
		if s.subs[i].id == id {
			sub, ok = s.subs[i], true
			s.subs[i] = subscription{}
			break
		}
	}
	s.mu.Unlock()
	return sub, ok
}

// nextReadDeadline returns the read deadline to set now, or zero if it was moved less than
// deadlineInterval ago. The caller sets it: with one more stack frame above the socket, an idle
// session's stack has 4 KB instead of 2.
func (s *session) nextReadDeadline() time.Time {
	now := time.Now()
	if now.Sub(s.deadlineSet) < s.t.opt.deadlineInterval() {
		return time.Time{}
	}
	s.deadlineSet = now
	return now.Add(s.readTimeout())
}

// readSpace returns the free part of the read buffer, with space for want bytes at least.
func (s *session) readSpace(want int) []byte {
	t := s.t
	if t.opt.ReadBuffer > 0 {
		return t.in[s.unread:] // handlePackets skips a packet that does not fit
	}
	size := max(len(t.in), minRead)
	switch {
	case s.unread+want > size:
		size = s.unread + want
	case s.filled && size < maxRead:
		size *= 2
	case s.unread == 0 && size > maxRead:
		size = maxRead // shrinks after a large packet
	}
	if size != len(t.in) {
		grown := make([]byte, size)
		copy(grown, t.in[:s.unread])
		t.in = grown
	}
	return t.in[s.unread:]
}

package lean

import (
	"context"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/internal/mqttpacket"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/internal/wire"
)

// A session is one connection.
//
// Run's goroutine reads and never writes, so it always notices death; by closing the connection it
// frees a writer that is stuck. Send and Do write on their caller's goroutine, under the write
// side's token; who takes leave keeps the token, so nothing is written, and no message touched,
// afterwards. The Sink may be called with the token: nothing that a Sink waits for could need it.
type session struct {
	t      *Transport
	conn   Conn
	sink   transport.Sink
	info   transport.Info
	topics wire.Topics

	writing chan struct{} // the write side's token is taken by a value in it; capacity 1
	parted  chan struct{} // closed when goodbye is over

	// Of whoever reads.
	unread int       // so many bytes of the read buffer wait
	skip   int       // so many bytes to come are of a packet that does not fit
	filled bool      // the latest read filled the read buffer
	armed  time.Time // when the read deadline was moved

	// Of the write side.
	lastID uint16
	began  time.Time // when what is being written began, or last got on
	slow   time.Time // when a slow write last got on

	mu   sync.Mutex // guards what follows; held for memory only
	err  error      // the first failure
	subs [maxSubs]subscription
}

// subscription is a SUBSCRIBE that waits for its SUBACK; id is zero when there is none.
type subscription struct {
	id   uint16
	req  uint32
	want transport.Features
}

// maxSubs is the most subscriptions under way.
const maxSubs = 4

func newSession(t *Transport, cfg *transport.Config, token transport.Token, topics wire.Topics, c Conn) *session {
	s := &session{
		t: t, conn: c, sink: cfg.Sink, topics: topics,
		writing: make(chan struct{}, 1), parted: make(chan struct{}), lastID: transport.MaxTags,
	}
	s.info = transport.Info{MaxSize: transport.MaxMessageSize, KeepAlive: t.opt.KeepAlive}
	if !token.Fixed {
		s.info.Expires = token.Expires
	}
	return s
}

// Info tells the size limit, the pings wanted and the token's expiry.
func (s *session) Info() transport.Info { return s.info }

// Progress implements transport.Progressor: what the connection says, if it can tell, or else when
// a slow write last got on. It is called as Send and Do are.
func (s *session) Progress() time.Time {
	if p, ok := s.conn.(transport.Progressor); ok {
		return p.Progress()
	}
	return s.slow
}

// Run is the session's life, and the reader.
func (s *session) Run(ctx context.Context) error {
	stop := afterEnd(ctx, s.goodbye) // ends with parted
	s.fail(s.read())
	if stop() {
		s.writing <- struct{}{} // for good; the connection is closed, so whoever has it is quick
	} else {
		<-s.parted
	}
	err, ended := s.failure(), ctx.Err()
	s.t.busy.Store(false)
	switch {
	case ended != nil:
		return wire.Loss(transport.Network, ended)
	case wire.TimedOut(err) || err == wire.ErrNoPong:
		return wire.Loss(transport.Timeout, err)
	}
	return wire.Loss(transport.Network, err)
}

const (
	// goodbyeLimit is when a goodbye is cut off.
	goodbyeLimit = 600 * time.Millisecond
	// maxIncoming caps a packet's remaining length. A hub sends nothing larger than a method's or a
	// twin's JSON.
	maxIncoming = 1 << 20
	// firstRead and fullRead are the sizes between which the read buffer grows when much comes at a
	// time.
	firstRead, fullRead = 256, 8 << 10
)

// goodbye sends DISCONNECT and closes. It is called when Run's context ends, on a goroutine of its
// own.
func (s *session) goodbye() {
	fired := make(chan struct{})
	limit := time.AfterFunc(goodbyeLimit, func() { // frees a write that is stuck
		s.fail(errAborted)
		close(fired)
	})
	s.writing <- struct{}{} // for good
	var buf [2]byte
	_, _ = s.conn.Write(mqttpacket.AppendDisconnect(buf[:0]))
	if !limit.Stop() {
		<-fired
	}
	s.fail(errClosed)
	close(s.parted)
}

// fail records the first failure and closes the connection, which frees whoever is inside it.
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

// read returns why the connection ended.
func (s *session) read() error {
	for {
		want, err := s.packets()
		if err != nil {
			return err
		}
		room := s.room(want)
		if at := s.nextDeadline(); !at.IsZero() {
			_ = s.conn.SetReadDeadline(at)
		}
		n, err := s.conn.Read(room)
		if n == 0 {
			switch {
			case err == nil:
				return io.ErrNoProgress
			case err == io.EOF:
				return wire.HubClosed{}
			case wire.TimedOut(err):
				if s.getsOn() {
					continue
				}
				return wire.ErrNoPong
			}
			return err
		}
		s.filled = n == len(room)
		if n <= s.skip {
			s.skip -= n
			continue
		}
		s.unread += copy(room, room[s.skip:n])
		s.skip = 0
	}
}

// getsOn reports whether the connection still gets on with what stands before a ping, and has the
// reader wait then.
func (s *session) getsOn() bool {
	p, ok := s.conn.(transport.Progressor)
	if !ok {
		return false
	}
	now, until := time.Now(), p.Progress().Add(s.t.opt.PingTimeout)
	if !now.Before(until) {
		return false
	}
	s.armed = now
	_ = s.conn.SetReadDeadline(until)
	return true
}

// packets handles the whole packets in the read buffer and moves what is left to its front. It
// returns how many bytes of the packet there are known to be missing.
func (s *session) packets() (want int, err error) {
	in := s.t.in[:s.unread]
	for want = 1; len(in) > 0; {
		h, ok, err := mqttpacket.Next(in)
		if err != nil {
			return 0, wire.Violation{Err: err}
		}
		if !ok {
			break
		}
		if most := bodyLimit(h.Type); h.Body > most {
			return 0, wire.NewViolation("the hub sent a packet of type " + strconv.Itoa(int(h.Type)) + " with " +
				strconv.Itoa(h.Body) + " bytes")
		}
		size := h.Size + h.Body
		if size > len(in) {
			want = size - len(in)
			if fixed := s.t.opt.ReadBuffer; fixed > 0 && size > fixed {
				if len(in) < fixed && h.Type == mqttpacket.Publish {
					break // its topic tells what it is
				}
				if h.Type == mqttpacket.Publish {
					s.t.opt.Calls.tooLarge(s, h, in[h.Size:], size)
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

// bodyLimit is the most bytes that a hub may send in a packet's body.
func bodyLimit(t mqttpacket.Type) int {
	if t == mqttpacket.Publish {
		return maxIncoming
	}
	return 2 + maxCodes
}

// maxCodes is the most return codes in a SUBACK that are read at all.
const maxCodes = 5

// handle takes one packet in. Some hubs say DISCONNECT before they close, though 3.1.1 has it from
// clients only.
func (s *session) handle(h mqttpacket.Header, body []byte) error {
	switch h.Type {
	case mqttpacket.Puback:
		id, err := mqttpacket.ReadID(body)
		if err != nil {
			return wire.Violation{Err: err}
		}
		return s.puback(id)
	case mqttpacket.Publish:
		in, err := mqttpacket.ReadPublish(h.Flags, body)
		if err != nil {
			return wire.Violation{Err: err}
		}
		return s.received(&in)
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
	case mqttpacket.Connect, mqttpacket.Subscribe, mqttpacket.Unsubscribe, mqttpacket.Unsuback, mqttpacket.Pingreq:
	}
	return wire.NewViolation("the hub sent a packet of type " + strconv.Itoa(int(h.Type)) + ", which is not for clients")
}

// puback passes the acknowledgement on. The sink knows which tags are in flight.
func (s *session) puback(id uint16) error {
	if id <= transport.MaxTags {
		s.sink.Done(id-1, nil)
		return nil
	}
	if _, ok := s.land(id); ok {
		return wire.NewViolation("the hub answered a SUBSCRIBE with PUBACK")
	}
	return nil // answered before, or never sent
}

// suback answers the request.
func (s *session) suback(id uint16, codes []byte) error {
	sub, ok := s.land(id)
	var buf [wire.MaxFilters]wire.Filter
	filters := s.t.opt.Calls.filters(&s.topics, buf[:0], sub.want)
	if !ok || len(codes) != len(filters) {
		return wire.NewViolation("the hub sent a SUBACK that answers no SUBSCRIBE")
	}
	var reply transport.Reply
	for i, code := range codes {
		if !wire.Granted(code) {
			reply.Err = wire.Refused(transport.OpSubscribe, wire.SubackMeaning(code).Kind, &SubackError{Filter: filters[i].Topic,
				Code: code})
			break
		}
	}
	s.sink.Reply(sub.req, reply)
	return nil
}

// received delivers what comes. What was not subscribed to is left alone, unacknowledged.
func (s *session) received(in *mqttpacket.Incoming) error {
	if in.QoS > 1 {
		return wire.NewViolation("the hub sent a PUBLISH with a QoS above 1, which was not asked for")
	}
	inbox := s.topics.Inbox
	if s.t.opt.Calls.take(s, in) {
		return nil
	}
	if len(in.Topic) >= len(inbox) && string(in.Topic[:len(inbox)]) == inbox {
		s.sink.Deliver(s.inbound().Decode(string(in.Topic[len(inbox):]), in.Body, in.ID, in.Dup))
	}
	return nil
}

// inbound returns the memory for a message.
func (s *session) inbound() *wire.Inbound {
	if s.t.message == nil {
		s.t.message = new(wire.Inbound)
	}
	return s.t.message
}

// land takes a subscription out of those under way.
func (s *session) land(id uint16) (sub subscription, ok bool) {
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

// nextDeadline returns the read deadline to set now, or zero if it was moved lately. The caller
// sets it: with one frame more on the way to the socket, an idle session's stack has 4 KB instead
// of 2.
func (s *session) nextDeadline() time.Time {
	now := time.Now()
	if now.Sub(s.armed) < s.t.opt.armEvery() {
		return time.Time{}
	}
	s.armed = now
	return now.Add(s.t.opt.silence())
}

// room returns the free part of the read buffer, with space for want bytes at least.
func (s *session) room(want int) []byte {
	t := s.t
	if t.opt.ReadBuffer > 0 {
		return t.in[s.unread:] // a packet that does not fit does not get here
	}
	size := max(len(t.in), firstRead)
	switch {
	case s.unread+want > size:
		size = s.unread + want
	case s.filled && size < fullRead:
		size *= 2
	case s.unread == 0 && size > fullRead:
		size = fullRead // a large packet is over
	}
	if size != len(t.in) {
		grown := make([]byte, size)
		copy(grown, t.in[:s.unread])
		t.in = grown
	}
	return t.in[s.unread:]
}

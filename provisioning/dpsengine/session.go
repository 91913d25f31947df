package dpsengine

import (
	"context"
	"errors"
	"io"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/hubline-iot/hubline/internal/callback"
	"github.com/hubline-iot/hubline/internal/lifetime"
	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/internal/operr"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/engine"
)

// A session is one connection. One goroutine uses it; another one may cut it.
type session struct {
	conn    engine.Conn
	timeout time.Duration
	closed  atomic.Bool
	up      bool           // the service accepted CONNECT
	ids     *atomic.Uint32 // of the Carrier
	lastID  uint16         // of a packet, and of a request
	in, out []byte
	unread  int // bytes of in that hold data
}

const (
	firstRead = 1 << 10
	// maxPacket bounds a packet of the service: an answer with its topic.
	maxPacket = provisioning.MaxAnswer + 4<<10
	// closeTime bounds the DISCONNECT.
	closeTime = 250 * time.Millisecond
)

// guarded runs f, and cuts the connection when limited ends first.
func (s *session) guarded(ctx, limited context.Context, f func() error) error {
	over := make(chan struct{})
	stop := lifetime.AfterFunc(limited, func() {
		s.cut()
		close(over)
	})
	err := callback.Call("the connection of the dial function of dpsengine.New", f)
	if !stop() {
		<-over
	}
	if err != nil || s.closed.Load() {
		return cause(ctx, limited, err)
	}
	return nil
}

// cut closes the connection, once.
func (s *session) cut() {
	if s.closed.CompareAndSwap(false, true) {
		_ = s.conn.Close()
	}
}

// Close sends DISCONNECT and closes the connection.
func (s *session) Close() {
	if s.closed.Load() {
		return
	}
	fired := make(chan struct{})
	limit := time.AfterFunc(closeTime, func() { // unblocks a stuck write
		s.cut()
		close(fired)
	})
	defer func() { // also if the connection panics
		if !limit.Stop() {
			<-fired
		}
		s.cut()
	}()
	_, _ = s.conn.Write(mqttwire.AppendDisconnect(s.out[:0]))
}

// begin sends CONNECT and SUBSCRIBE and reads their answers.
func (s *session) begin(g *mqttwire.Greeting) error {
	packet, err := mqttwire.AppendConnect(s.out[:0], g)
	if err != nil {
		return failed(transport.Invalid, err)
	}
	err = s.write(packet)
	clear(packet) // the token
	if err != nil {
		return s.explain(s.reason(err))
	}
	h, body, err := s.next()
	switch {
	case err != nil:
		return s.explain(err)
	case h.Type != mqttwire.Connack:
		return s.violation("the service's first packet is not a CONNACK")
	}
	_, code, err := mqttwire.ReadConnack(body)
	switch {
	case err != nil:
		return s.violation(err.Error())
	case code != 0:
		refusal := &engine.ConnackError{Code: code}
		return failed(refusal.Kind(), refusal)
	}
	s.up = true
	return s.subscribe()
}

// nextID returns the id of the next packet. It is not 0. The sessions of a Carrier use different
// ids: the answer to a request of a lost connection may arrive over the next one.
func (s *session) nextID() uint16 {
	s.lastID = uint16(s.ids.Add(1))
	if s.lastID == 0 {
		s.lastID = uint16(s.ids.Add(1))
	}
	return s.lastID
}

// subscribe subscribes to answers.
func (s *session) subscribe() error {
	packet, err := mqttwire.AppendSubscribe(s.out[:0], s.nextID(), mqttwire.Filter{Topic: filter, QoS: 1})
	if err != nil {
		return failed(transport.Invalid, err)
	}
	if err := s.write(packet); err != nil {
		return err
	}
	for {
		h, body, err := s.next()
		switch {
		case err != nil:
			return err
		case h.Type != mqttwire.Suback:
			if err := s.other(h, body, nil); err != nil {
				return err
			}
			continue
		}
		id, codes, err := mqttwire.ReadSuback(body)
		switch {
		case err != nil:
			return s.violation(err.Error())
		case id != s.lastID || len(codes) != 1:
			return s.violation("the service sent a SUBACK that answers no SUBSCRIBE")
		case codes[0] > 2:
			refusal := &engine.SubackError{Filter: filter, Code: codes[0]}
			return failed(refusal.Kind(), refusal)
		}
		return nil
	}
}

// Exchange publishes the request and waits for its answer.
func (s *session) Exchange(ctx context.Context, r *provisioning.Request) (*provisioning.Answer, error) {
	limited, end := lifetime.WithinTime(ctx, s.timeout)
	var got *provisioning.Answer
	err := s.guarded(ctx, limited, func() (err error) {
		got, err = s.exchange(r)
		return err
	})
	end()
	if err != nil {
		return nil, err
	}
	return got, nil
}

func (s *session) exchange(r *provisioning.Request) (*provisioning.Answer, error) {
	t := topicOf(r, s.nextID())
	o := mqttwire.Outgoing{QoS: 1, Topic: len(t), Body: len(r.Body)}
	packet := append(mqttwire.AppendPublish(s.out[:0], &o), t...)
	packet = append(mqttwire.AppendID(packet, s.lastID), r.Body...)
	if err := s.write(packet); err != nil {
		return nil, err
	}
	var got *provisioning.Answer
	for got == nil {
		h, body, err := s.next()
		if err != nil {
			return nil, err
		}
		if err := s.other(h, body, &got); err != nil && got == nil { // an answer counts without its PUBACK
			return nil, err
		}
	}
	return got, nil
}

// other handles a packet that is neither CONNACK nor SUBACK. It sets got, unless that is nil, when
// the packet is the answer to the request in flight.
func (s *session) other(h mqttwire.Header, body []byte, got **provisioning.Answer) error {
	switch h.Type {
	case mqttwire.Publish:
	case mqttwire.Puback, mqttwire.Pingresp, mqttwire.Disconnect:
		return nil // the end of the connection follows a DISCONNECT
	default:
		return s.violation("the service sent a packet of type " + strconv.Itoa(int(h.Type)) + ", which was not expected")
	}
	in, err := mqttwire.ReadPublish(h.Flags, body)
	switch {
	case err != nil:
		return s.violation(err.Error())
	case in.QoS > 1:
		return s.violation("the service sent a PUBLISH with a QoS above 1, which was not requested")
	}
	if a, ok := parseTopic(string(in.Topic)); ok && got != nil && a.RID == strconv.Itoa(int(s.lastID)) {
		*got = &provisioning.Answer{Status: a.Status, RetryAfter: a.After, Body: append([]byte(nil), in.Body...)}
	}
	if in.QoS == 1 {
		return s.write(mqttwire.AppendAck(s.out[:0], mqttwire.Puback, in.ID, 0))
	}
	return nil
}

func (s *session) write(packet []byte) error {
	s.out = packet[:0]
	_, err := s.conn.Write(packet)
	return err
}

// reason returns why a write failed. With TLS 1.3 a client certificate is refused after the
// handshake, and the write may fail before the alert was read.
func (s *session) reason(err error) error {
	_ = s.conn.SetReadDeadline(time.Now().Add(reasonTime))
	if _, readErr := s.conn.Read(make([]byte, 1)); readErr != nil && !errors.Is(readErr, io.EOF) {
		if t, ok := readErr.(interface{ Timeout() bool }); !ok || !t.Timeout() {
			return readErr
		}
	}
	return err
}

// explain lets the connection name the kind of the error of a handshake, such as a TLS alert.
func (s *session) explain(err error) error {
	if x, ok := s.conn.(engine.Explainer); ok && transport.Find(err) == nil && !errors.Is(err, errClosed) &&
		!s.closed.Load() {
		return x.Explain(err)
	}
	return err
}

// next reads the next packet.
func (s *session) next() (h mqttwire.Header, body []byte, err error) {
	for {
		h, ok, err := mqttwire.Next(s.in[:s.unread])
		switch {
		case err != nil:
			return h, nil, s.violation(err.Error())
		case ok && h.Body > maxPacket:
			return h, nil, s.violation("the service sent a packet of " + strconv.Itoa(h.Body) + " bytes")
		}
		size := h.Size + h.Body
		if ok && size <= s.unread {
			body = s.in[h.Size:size]
			s.in, s.unread = s.in[size:], s.unread-size
			return h, body, nil
		}
		if !ok {
			size = s.unread + 1
		}
		if size > len(s.in) {
			s.in = append(make([]byte, 0, max(size, firstRead)), s.in[:s.unread]...)
			s.in = s.in[:cap(s.in)]
		}
		n, err := s.conn.Read(s.in[s.unread:])
		s.unread += n
		switch {
		case n > 0:
		case errors.Is(err, io.EOF):
			return h, nil, errClosed
		case err != nil:
			return h, nil, err
		default:
			return h, nil, io.ErrNoProgress
		}
	}
}

// violation returns the error for a peer that broke the protocol. Before the CONNACK it may speak
// another protocol, and a retry does not help.
func (s *session) violation(text string) error {
	if s.up {
		return failed(transport.Protocol, operr.Violation(text))
	}
	return failed(transport.Protocol, errors.New(text+"; check host and port"))
}

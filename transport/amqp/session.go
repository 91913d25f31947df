package amqp

import (
	"context"
	"encoding/binary"
	"errors"
	"math/bits"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/internal/amqpclient"
	"github.com/hubline-iot/hubline/transport"
)

// session is one device on a connection, which may be shared. It has one AMQP session, which is
// begun for the first link.
//
// The reading goroutine of the connection calls the links. A goroutine attaches each link or pair
// of links, and ends then. A failure that a new link or AMQP session cannot repair goes to Run
// through fatal. It ends the device's session; the connection stays if others use it.
type session struct {
	cfg     transport.Config
	info    transport.Info
	opt     *Options
	conn    *connection
	auth    Auth
	addr    Addresses
	release func() // releases the connection, orderly if it is alive

	shared bool   // the connection belongs to a Mux
	retire func() // shared: makes devices that join from now on dial a new connection

	ctx     context.Context // ends with Run
	cancel  context.CancelFunc
	started chan struct{} // closed by Run: the sink may be called
	fatal   chan error    // capacity 1: why the session must end
	group   sync.WaitGroup

	amqpLock chan struct{}       // capacity 1: held to use amqp
	amqp     *amqpclient.Session // nil: not begun

	telemetry telemetry
	c2d       c2dLink
	twin      twin
	methods   methods

	mu   sync.Mutex // guards over, and fields of the four above; never held during I/O
	over bool       // Run has ended: no goroutine may start
}

func newSession(cfg *transport.Config, opt *Options, conn *connection, l *login, addr Addresses) *session {
	s := &session{
		cfg: *cfg, opt: opt, conn: conn, auth: l.auth, addr: addr,
		started: make(chan struct{}), fatal: make(chan error, 1), amqpLock: make(chan struct{}, 1),
	}
	if opt.Addresses == nil {
		s.info.MaxSize = transport.MaxMessageSize
	}
	if s.info.Expires = conn.expires; l.auth == AuthCBS { // the device's own, also on a shared connection
		s.info.Expires = l.expires()
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.telemetry.init(s)
	s.c2d.init(s)
	s.twin.init(s)
	s.methods.init(s)
	return s
}

// Info returns the size limit and the expiry of the credentials.
func (s *session) Info() transport.Info { return s.info }

// Run waits for the end of the session, and then ends its links and goroutines.
func (s *session) Run(ctx context.Context) error {
	close(s.started)
	err := s.wait(ctx)
	s.mu.Lock()
	s.over = true
	s.telemetry.stopLocked()
	s.twin.stopLocked()
	s.methods.stopLocked()
	s.c2d.unsettled, s.c2d.bySequence = nil, nil
	s.mu.Unlock()
	s.cancel()
	if s.shared {
		s.endAMQP()
		s.group.Wait()
		s.release()
	} else {
		s.release()
		s.group.Wait()
	}
	s.methods.end()
	return err
}

// wait returns why the session ends.
func (s *session) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return lost(transport.Network, ctx.Err())
	case err := <-s.fatal:
		if s.conn.Gone() {
			err = lossOf(s.conn.Loss())
		}
		return err
	case <-s.conn.Done():
		return lossOf(s.conn.Loss())
	}
}

// fail ends the session. The first call counts.
func (s *session) fail(err error) {
	select {
	case s.fatal <- err:
	default:
	}
}

// goLocked starts a goroutine, for which Run waits, unless Run has ended. f runs when Run has
// begun. mu is held.
func (s *session) goLocked(f func()) {
	if s.over {
		return
	}
	s.group.Go(func() {
		select {
		case <-s.started:
			f()
		case <-s.ctx.Done():
		}
	})
}

// enter begins a call from outside: of the connection, or a timer. It returns false when Run has
// ended; else Run waits until group.Done is called.
func (s *session) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return false
	}
	s.group.Add(1)
	return true
}

// Progress implements transport.Progressor.
func (s *session) Progress() (at time.Time, waits bool) {
	return s.conn.window.progressOf(&s.telemetry)
}

// flush writes what is pending. On a connection of its own it may block as long as the socket does,
// which the end of Run frees. On a shared one another goroutine writes: the end of one device does
// not close the socket.
func (s *session) flush() {
	if s.shared {
		s.conn.Kick()
	} else {
		s.conn.Flush()
	}
}

// Send sends the batch, or queues what cannot be sent yet.
func (s *session) Send(batch []transport.Item) { s.telemetry.send(batch) }

// Do starts a request. A disposition is written at once. It does not block.
func (s *session) Do(r *transport.Request) {
	switch r.Op {
	case transport.OpSettle:
		if len(r.Ref) == refSize {
			s.c2d.settle(binary.BigEndian.Uint32(r.Ref), r.Outcome)
		}
	case transport.OpPing: // never requested: Progress judges the connection
	case transport.OpRespond:
		if s.addr.methods != "" {
			s.methods.respond(r)
		}
	case transport.OpTwinGet, transport.OpTwinPatch:
		if s.addr.twin == "" {
			s.unsupported(r)
			return
		}
		s.twin.request(r)
	case transport.OpSubscribe:
		s.subscribe(r)
	case transport.OpRenew:
		if s.auth != AuthCBS {
			if s.shared {
				s.retire()
			}
			s.unsupported(r)
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		id := r.ID
		s.goLocked(func() { s.renew(id) })
	default:
		s.unsupported(r)
	}
}

// subscribe attaches the links for the wanted features, and replies when all are attached.
func (s *session) subscribe(r *transport.Request) {
	const calls = transport.FeatureTwin | transport.FeatureDesired | transport.FeatureMethods
	if r.Want&transport.FeatureMessages != 0 && s.addr.Commands == "" || r.Want&calls != 0 && s.addr.twin == "" ||
		r.Want&^(transport.FeatureMessages|calls) != 0 {
		s.unsupported(r)
		return
	}
	sub := &subscription{id: r.ID, left: 1 + bits.OnesCount8(uint8(r.Want))}
	for _, part := range [...]struct {
		feature   transport.Features
		subscribe func(*subscription)
	}{
		{transport.FeatureMessages, s.c2d.open},
		{transport.FeatureTwin, s.twin.open},
		{transport.FeatureDesired, s.twin.watch},
		{transport.FeatureMethods, s.methods.open},
	} {
		if r.Want&part.feature != 0 {
			part.subscribe(sub)
		}
	}
	s.subscribed(sub, nil)
}

func (s *session) unsupported(r *transport.Request) {
	s.mu.Lock()
	over := s.over
	s.mu.Unlock()
	if !over {
		s.cfg.Sink.Reply(r.ID, transport.Reply{Err: failed(r.Op, transport.Unsupported, errUnsupported)})
	}
}

var errUnsupported = errors.New("not available over AMQP with these options")

// errNoToken ends the wait of a renewal for the token source, errRenewal that for the hub.
var (
	errNoToken = &timeoutError{"the token source gave no token within Options.OperationTimeout"}
	errRenewal = &timeoutError{"the hub did not answer within Options.OperationTimeout, counted from the call of the " +
		"token source"}
)

// renew puts a new token to the hub; all links stay attached. One limit bounds the source and the
// hub: device.Options.AckTimeout runs for both.
func (s *session) renew(id uint32) {
	limited, cancel := context.WithTimeoutCause(s.ctx, s.opt.OperationTimeout, errRenewal)
	defer cancel()
	token, err := s.cfg.Creds.NewToken(limited)
	if limited.Err() != nil {
		err = errNoToken
	}
	if err == nil {
		err = s.conn.tokens.put(limited, s.cfg.Creds.Resource(), token.Text.Reveal(), nil)
	}
	s.renewed(id, token, err)
}

// renewed replies to an OpRenew.
func (s *session) renewed(id uint32, token transport.Token, err error) {
	if s.ctx.Err() != nil || s.conn.Gone() {
		return
	}
	var reply transport.Reply
	switch {
	case err != nil:
		e := protocol.Error(err)
		reply.Err = &transport.Error{Kind: e.Kind, Op: transport.OpRenew, Proto: proto, RetryAfter: e.RetryAfter, Err: e.Err}
	case !token.Fixed:
		reply.Expires = token.Expires
	}
	s.cfg.Sink.Reply(id, reply)
}

// attach calls open, which attaches links, with the device's AMQP session, which it begins if
// needed. If that session has ended, it tries once more with a new one. open gets a context that
// bounds it. Links are attached when they are first needed.
func (s *session) attach(open func(ctx context.Context, on *amqpclient.Session) error) error {
	on, err := s.attachOnce(open)
	if err != nil && on != nil && on.Ended() && s.ctx.Err() == nil && !s.conn.Gone() {
		_, err = s.attachOnce(open)
	}
	return err
}

func (s *session) attachOnce(open func(ctx context.Context, on *amqpclient.Session) error) (on *amqpclient.Session,
	err error) {
	ctx, done := s.conn.await(s.ctx, s.cfg.Progress)
	defer done()
	select {
	case s.amqpLock <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if on = s.amqp; on == nil || on.Ended() {
		if on, err = s.conn.Begin(ctx); err == nil {
			s.amqp = on
		}
	}
	<-s.amqpLock
	if err == nil {
		err = open(ctx, on)
	}
	return on, err
}

// check is the last step of a Dial. Without CBS the hub has only answered open so far, and a hub
// that refuses the connection does so before it sends close. So check begins the AMQP session. On
// error the device's session has ended.
func (s *session) check(ctx context.Context) error {
	if s.auth == AuthCBS {
		return nil
	}
	stop := context.AfterFunc(ctx, s.cancel)
	err := s.attach(func(ctx context.Context, on *amqpclient.Session) error { return on.Begun(ctx) })
	switch alive := stop(); {
	case !alive:
		err = context.Cause(ctx)
	case err == nil:
		return nil
	}
	s.cancel()
	if s.shared {
		s.endAMQP() // it may have begun after the wait ended
	}
	s.release()
	return err
}

// endAMQP ends the AMQP session, for a device that leaves a shared connection.
func (s *session) endAMQP() {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	select {
	case s.amqpLock <- struct{}{}: // never given back
	case <-ctx.Done():
		return
	}
	if s.amqp != nil && !s.conn.Gone() {
		s.amqp.End(ctx)
	}
}

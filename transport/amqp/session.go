package amqp

import (
	"context"
	"encoding/binary"
	"errors"
	"math/bits"
	"sync"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/hubline-iot/hubline/internal/amqpconn"
	"github.com/hubline-iot/hubline/transport"
)

// session is one device on a connection, which may be shared. It has one AMQP session, which is
// begun for the first link.
//
// Each link or pair of links has its own goroutines, which start when there is work. A failure that
// a new link or AMQP session cannot repair goes to Run through fatal. It ends the device's session;
// the connection stays if others use it.
type session struct {
	cfg     transport.Config
	info    transport.Info
	opt     *Options
	conn    *connection
	auth    Auth
	addr    Addresses
	release func() // releases the connection, orderly if it is alive

	shared bool // the connection belongs to a Mux

	ctx     context.Context // ends with Run
	cancel  context.CancelFunc
	started chan struct{} // closed by Run: the sink may be called
	fatal   chan error    // capacity 1: why the session must end
	group   sync.WaitGroup

	amqpLock chan struct{} // capacity 1: held to use amqp
	amqp     *amqp.Session // nil: not begun, or ended

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
	if !l.token.Fixed {
		s.info.Expires = l.token.Expires
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.telemetry.s, s.telemetry.wake, s.telemetry.turn = s, make(chan struct{}, 1), make(chan struct{}, 1)
	s.telemetry.batch.Format = batchFormat
	s.c2d.s = s
	s.twin.init(s)
	s.methods.init(s)
	return s
}

// Info returns the size limit and the token's expiry.
func (s *session) Info() transport.Info { return s.info }

// Run waits for the end of the session, and then ends its links and goroutines.
func (s *session) Run(ctx context.Context) error {
	close(s.started)
	err := s.wait(ctx)
	if ctx.Err() != nil {
		s.methods.waitFlushed() // other requests are repeated, by the device or by the hub
	}
	s.mu.Lock()
	s.over = true
	if !s.telemetry.running && s.telemetry.link != nil {
		s.conn.idle.remove(s.telemetry.link)
	}
	s.telemetry.queue, s.telemetry.rejected, s.c2d.unsettled, s.c2d.bySequence = nil, nil, nil, nil
	s.mu.Unlock()
	s.cancel()
	s.twin.unblock()
	s.methods.unblock()
	if s.shared {
		s.endAMQP()
		s.join()
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

// join waits for the goroutines on a shared connection. The library may block one, on an AMQP
// session that the hub does not end. Such a goroutine does not touch the sink, and the connection
// waits for it.
func (s *session) join() {
	joined := make(chan struct{})
	s.conn.background.Go(func() {
		s.group.Wait()
		close(joined)
	})
	limit := time.NewTimer(joinTimeout)
	defer limit.Stop()
	select {
	case <-joined:
	case <-limit.C:
	}
}

// joinTimeout is how long goroutines may take to end after everything that they wait for has ended.
const joinTimeout = 400 * time.Millisecond

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

// Progress implements transport.Progressor.
func (s *session) Progress() (at time.Time, waits bool) {
	return s.conn.window.progressOf(&s.telemetry)
}

// Send queues the batch. It does not block.
func (s *session) Send(batch []transport.Item) {
	s.mu.Lock()
	if !s.over {
		s.telemetry.putLocked(batch)
	}
	s.mu.Unlock()
	poke(s.telemetry.wake)
}

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
		{transport.FeatureMessages, s.c2d.subscribe},
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

// renew puts a new token to the hub; all links stay attached.
func (s *session) renew(id uint32) {
	token, err := s.cfg.Creds.NewToken(s.ctx)
	if err == nil {
		err = s.conn.tokens.put(s.ctx, s.cfg.Creds.Resource(), token.Text.Reveal(), nil)
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
// bounds it. The error is explained. on is the AMQP session of the links, for forget.
//
// Links are attached when they are first needed: go-amqp allocates a queue of 40 KB for each
// session and each sender, and two for each receiver, and has no option for their size.
func (s *session) attach(open func(ctx context.Context, on *amqp.Session) error) (on *amqp.Session, err error) {
	on, err = s.attachOnce(open)
	if amqpconn.IsSession(err) && s.ctx.Err() == nil {
		on, err = s.attachOnce(open)
	}
	if err != nil {
		return nil, s.conn.Explain(err)
	}
	return on, nil
}

func (s *session) attachOnce(open func(ctx context.Context, on *amqp.Session) error) (*amqp.Session, error) {
	ctx, done := s.conn.await(s.ctx, s.cfg.Progress)
	defer done()
	select {
	case s.amqpLock <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	on := s.amqp
	var err error
	if on == nil {
		if on, err = s.conn.begin(ctx); err == nil {
			s.amqp = on
		}
	}
	<-s.amqpLock
	if err == nil {
		if err = open(ctx, on); amqpconn.IsSession(err) {
			s.forget(on)
		}
	}
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return on, err
}

// forget records the end of an AMQP session.
func (s *session) forget(ended *amqp.Session) {
	select {
	case s.amqpLock <- struct{}{}:
	case <-s.ctx.Done():
		return
	}
	if s.amqp == ended {
		s.amqp = nil
	}
	<-s.amqpLock
}

// check is the last step of a Dial. Without CBS the hub has only answered open so far, and a hub
// that refuses the connection does so before it sends close. So check begins the AMQP session. On
// error the device's session has ended.
func (s *session) check(ctx context.Context) error {
	if s.auth == AuthCBS {
		return nil
	}
	stop := context.AfterFunc(ctx, s.cancel)
	_, err := s.attach(func(context.Context, *amqp.Session) error { return nil })
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
		_ = s.amqp.Close(ctx)
	}
}

// poke puts a token into ch, of capacity 1, unless it is full.
func poke(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

package amqp

import (
	"context"
	"encoding/binary"
	"errors"
	"math/bits"
	"sync"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/hubline-iot/hubline/transport"
)

// session is one device on a connection, which may be shared. It has one session of AMQP, with its
// links, from the moment when the first is needed.
//
// Telemetry and commands have a goroutine each, which starts when there is something for it to do;
// see telemetry and commands. What cannot be mended on a link or the session of AMQP is told to Run
// through fatal, and ends the device's session with a connection's Scope: the connection lives on
// if others use it.
type session struct {
	cfg   transport.Config
	info  transport.Info
	opt   *Options
	conn  *connection
	auth  Auth
	addr  Addresses
	leave func() // gives the connection up, in good order if it lives

	shared bool // other devices may be on the connection

	ctx    context.Context // ends with Run
	cancel context.CancelFunc
	open   chan struct{} // closed by Run: the sink may be called
	fatal  chan error    // capacity 1: why the session must end
	group  sync.WaitGroup

	begin chan struct{} // capacity 1: held to use under
	under *amqp.Session // nil: none was begun, or it is gone

	telemetry telemetry
	commands  commands
	twin      twin
	methods   methods

	mu   sync.Mutex // guards over, and what telemetry and commands say; held for memory only
	over bool       // Run has ended: no goroutine starts any more
}

func newSession(cfg *transport.Config, opt *Options, conn *connection, l *login) *session {
	s := &session{
		cfg: *cfg, opt: opt, conn: conn, auth: l.auth, addr: opt.addresses(cfg.Creds),
		open: make(chan struct{}), fatal: make(chan error, 1), begin: make(chan struct{}, 1),
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
	s.commands.s = s
	s.twin.init(s)
	s.methods.init(s)
	return s
}

// Info tells the size limit and the token's renewal.
func (s *session) Info() transport.Info { return s.info }

// Run is the session's life.
func (s *session) Run(ctx context.Context) error {
	close(s.open)
	err := s.wait(ctx)
	if ctx.Err() != nil {
		s.methods.lastWords() // what else was under way is repeated, or the hub repeats it
	}
	s.mu.Lock()
	s.over = true
	if !s.telemetry.running && s.telemetry.link != nil {
		s.conn.idle.remove(s.telemetry.link)
	}
	s.telemetry.queue, s.telemetry.single, s.commands.unsettled, s.commands.bySequence = nil, nil, nil, nil
	s.mu.Unlock()
	s.cancel()
	s.twin.letGo()
	s.methods.letGo()
	if s.shared {
		s.part()
		s.join()
		s.leave()
	} else {
		s.leave()
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
		if s.conn.gone() {
			err = lossOf(s.conn.loss())
		}
		return err
	case <-s.conn.ended():
		return lossOf(s.conn.loss())
	}
}

// join waits for the goroutines on a shared connection. One may be held by the library, on a
// session of AMQP that the hub does not end; it touches nothing of ours any more and is left to the
// connection.
func (s *session) join() {
	joined := make(chan struct{})
	s.conn.strays.Go(func() {
		s.group.Wait()
		close(joined)
	})
	limit := time.NewTimer(strayLimit)
	defer limit.Stop()
	select {
	case <-joined:
	case <-limit.C:
	}
}

// strayLimit is how long the goroutines may take to end when all that they wait for is gone.
const strayLimit = 400 * time.Millisecond

// fail ends the session. The first call counts.
func (s *session) fail(err error) {
	select {
	case s.fatal <- err:
	default:
	}
}

// goLocked starts a goroutine of Run's, unless Run has ended. It does not touch the sink before Run
// began. mu is held.
func (s *session) goLocked(f func()) {
	if s.over {
		return
	}
	s.group.Go(func() {
		select {
		case <-s.open:
			f()
		case <-s.ctx.Done():
		}
	})
}

// Progress implements transport.Progressor.
func (s *session) Progress() time.Time { return s.conn.window.progressOf(&s.telemetry) }

// Send puts the batch into the queue. It does not block.
func (s *session) Send(batch []transport.Item) {
	s.mu.Lock()
	if !s.over {
		s.telemetry.putLocked(batch)
	}
	s.mu.Unlock()
	poke(s.telemetry.wake)
}

// Do starts a request. A settlement is written at once; nothing blocks.
func (s *session) Do(r *transport.Request) {
	switch r.Op {
	case transport.OpSettle:
		if len(r.Ref) == refSize {
			s.commands.settle(binary.BigEndian.Uint32(r.Ref), r.Outcome)
		}
	case transport.OpPing: // one-way, and not asked for
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
		if s.auth != CBS {
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

// subscribe has the links opened that are wanted; the answer comes when all are.
func (s *session) subscribe(r *transport.Request) {
	const calls = transport.Twin | transport.Desired | transport.Methods
	if r.Want&transport.Messages != 0 && s.addr.Commands == "" || r.Want&calls != 0 && s.addr.twin == "" ||
		r.Want&^(transport.Messages|calls) != 0 {
		s.unsupported(r)
		return
	}
	g := &grant{id: r.ID, left: 1 + bits.OnesCount8(uint8(r.Want))}
	for _, part := range [...]struct {
		feature transport.Features
		ask     func(*grant)
	}{
		{transport.Messages, s.commands.subscribe},
		{transport.Twin, s.twin.open},
		{transport.Desired, s.twin.want},
		{transport.Methods, s.methods.open},
	} {
		if r.Want&part.feature != 0 {
			part.ask(g)
		}
	}
	s.settle(g, nil)
}

func (s *session) unsupported(r *transport.Request) {
	s.mu.Lock()
	over := s.over
	s.mu.Unlock()
	if !over {
		s.cfg.Sink.Reply(r.ID, transport.Reply{Err: failed(r.Op, transport.Unsupported, errUnsupported)})
	}
}

var errUnsupported = errors.New("not available over this transport")

// renew puts a fresh token, while all links stay as they are.
func (s *session) renew(id uint32) {
	token, err := s.cfg.Creds.NewToken(s.ctx)
	if err == nil {
		err = s.conn.tokens.put(s.ctx, s.cfg.Creds.Resource(), token.Text.Reveal(), nil)
	}
	s.renewed(id, token, err)
}

// renewed replies to an OpRenew.
func (s *session) renewed(id uint32, token transport.Token, err error) {
	if s.ctx.Err() != nil || s.conn.gone() {
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

// attach opens a link on the device's session of AMQP, which it begins if there is none. A session
// that turns out to be gone is begun anew, once. open gets a context that bounds it. The error is
// explained. under is what the link is on, for forget.
func (s *session) attach(open func(ctx context.Context, under *amqp.Session) error) (under *amqp.Session, err error) {
	under, err = s.attachOnce(open)
	if isSession(err) && s.ctx.Err() == nil {
		under, err = s.attachOnce(open)
	}
	if err != nil {
		return nil, s.conn.explain(err)
	}
	return under, nil
}

func (s *session) attachOnce(open func(ctx context.Context, under *amqp.Session) error) (*amqp.Session, error) {
	ctx, done := s.conn.await(s.ctx, s.cfg.Progress)
	defer done()
	select {
	case s.begin <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	under := s.under
	var err error
	if under == nil {
		if under, err = s.conn.begin(ctx); err == nil {
			s.under = under
		}
	}
	<-s.begin
	if err == nil {
		if err = open(ctx, under); isSession(err) {
			s.forget(under)
		}
	}
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return under, err
}

// forget notes that a session of AMQP is gone. It does not wait for longer than the others hold
// begin.
func (s *session) forget(under *amqp.Session) {
	select {
	case s.begin <- struct{}{}:
	case <-s.ctx.Done():
		return
	}
	if s.under == under {
		s.under = nil
	}
	<-s.begin
}

// check is the end of a Dial: without CBS nothing was answered yet but open, which a hub that
// refuses the connection sends too. On error the session is at its end.
func (s *session) check(ctx context.Context) error {
	if s.auth == CBS {
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
		s.part() // it may have been begun at the last moment
	}
	s.leave()
	return err
}

// part ends the session of AMQP, for a device that leaves a shared connection.
func (s *session) part() {
	ctx, cancel := context.WithTimeout(context.Background(), partLimit)
	defer cancel()
	select {
	case s.begin <- struct{}{}: // for good
	case <-ctx.Done():
		return
	}
	if s.under != nil && !s.conn.gone() {
		_ = s.under.Close(ctx)
	}
}

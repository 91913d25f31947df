package goamqp

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	raw "github.com/Azure/go-amqp"

	"github.com/hubline-iot/hubline/internal/amqpclient"
	"github.com/hubline-iot/hubline/internal/dialer"
	"github.com/hubline-iot/hubline/internal/operr"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
	"github.com/hubline-iot/hubline/transport/amqp/internal/message"
)

// session is one device on one connection. Each link that is lost ends it.
type session struct {
	cfg                 transport.Config
	info                transport.Info
	opt                 *amqp.Options
	telemetry, commands string // addresses
	auth                amqp.Auth
	conn                *raw.Conn
	socket              net.Conn
	amqp                *raw.Session
	sender              *raw.Sender
	tokens              tokens

	ctx     context.Context // ends with Run
	cancel  context.CancelFunc
	fatal   chan error // capacity 1: why the session must end
	group   sync.WaitGroup
	started chan struct{} // closed by Run: the sink may be called
	queued  chan struct{} // capacity 1: there is something in queue

	mu        sync.Mutex // guards the fields below; never held during I/O
	over      bool
	queue     []transport.Item
	receiver  *raw.Receiver
	number    uint32
	unsettled map[uint32]received
}

// open opens AMQP, authenticates and attaches the sending link.
func (s *session) open(ctx context.Context, outer, socket net.Conn, sasl raw.SASLType, auth amqp.Auth,
	token transport.Token) error {
	s.socket, s.auth = socket, auth
	s.ctx, s.cancel = context.WithCancel(context.Background())
	ctx, cancel := context.WithTimeout(ctx, s.opt.OperationTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = socket.Close() }) // go-amqp ignores some contexts
	defer stop()
	var err error
	s.conn, err = raw.NewConn(ctx, outer, &raw.ConnOptions{ContainerID: "hubline-" + rand.Text(),
		HostName: s.cfg.Creds.Host, IdleTimeout: s.opt.IdleTimeout, MaxFrameSize: maxFrame, SASLType: sasl,
		WriteTimeout: -1})
	if err != nil {
		return cause(err)
	}
	if auth == amqp.AuthCBS {
		if err := s.tokens.open(ctx, s.conn); err != nil {
			return cause(err)
		}
		defer release(ctx, s.tokens.out)()
		if err := s.tokens.put(ctx, s.cfg.Creds.Resource(), token.Text.Reveal()); err != nil {
			return cause(err)
		}
	}
	if s.amqp, err = s.conn.NewSession(ctx, nil); err != nil {
		return cause(err)
	}
	if s.sender, err = s.amqp.NewSender(ctx, s.telemetry, &raw.SenderOptions{Properties: s.properties()}); err != nil {
		return cause(err)
	}
	return nil
}

// release closes a link when ctx ends. It frees a Send that ctx overtook while its connection
// ended: go-amqp hands the credit back to the link's goroutine, which is gone, and waits for that
// or the Close.
func release(ctx context.Context, out *raw.Sender) (stop func() bool) {
	return context.AfterFunc(ctx, func() { _ = out.Close(ctx) })
}

// properties are those of each link to a hub.
func (s *session) properties() map[string]any {
	if s.opt.Addresses != nil {
		return nil
	}
	p := map[string]any{"com.microsoft:api-version": "2021-04-12",
		"com.microsoft:client-version": dialer.Agent(s.opt.Network.ProductInfo)}
	if s.opt.ModelID != "" {
		p["com.microsoft:model-id"] = s.opt.ModelID
	}
	return p
}

// Info returns the size limit and the token's expiry.
func (s *session) Info() transport.Info { return s.info }

// closeTimeout is how long an orderly close may take.
const closeTimeout = 700 * time.Millisecond

// close closes the connection.
func (s *session) close() {
	if s.cancel != nil {
		s.cancel()
	}
	if s.conn != nil {
		limit := time.AfterFunc(closeTimeout, func() { _ = s.socket.Close() })
		_ = s.conn.Close()
		limit.Stop()
	}
}

// Run waits for the end of the session.
func (s *session) Run(ctx context.Context) error {
	close(s.started)
	s.group.Go(s.send)
	var err error
	select {
	case <-ctx.Done():
		err = lost(transport.Network, ctx.Err())
	case why := <-s.fatal:
		err = lossOf(why)
	case <-s.conn.Done():
		err = lossOf(s.conn.Err())
	}
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	s.close()
	s.group.Wait()
	return err
}

// fail ends the session. The first call counts.
func (s *session) fail(err error) {
	select {
	case s.fatal <- err:
	default:
	}
}

// failure is fail for an error of go-amqp, unless the session ends anyway.
func (s *session) failure(err error) {
	if s.ctx.Err() == nil {
		s.fail(err)
	}
}

// failureOfSender is failure for the sending link. A condition that any of its messages may have
// caused ends no client: package device finds the message.
func (s *session) failureOfSender(err error) {
	e := lossOf(err)
	if c, ok := errors.AsType[*amqp.ConditionError](e); ok && c.What == "link" {
		if about := amqpclient.Blames[c.Condition]; about == amqpclient.BlameMessage || about == amqpclient.BlameRequest {
			e.Kind = transport.Network
		}
	}
	s.failure(e)
}

// lost returns the error for the end of a live session.
func lost(kind transport.Kind, err error) *transport.Error {
	e := protocol.Error(err)
	return &transport.Error{Kind: kind, Scope: transport.ScopeConnection, Op: transport.OpRun, Proto: "amqp", Err: e.Err}
}

// lossOf is lost with the Kind of the cause.
func lossOf(err error) *transport.Error {
	if err == nil {
		err = &amqp.ConditionError{What: "connection"} // closed without an error
	}
	why := cause(err)
	if e := transport.Find(why); e != nil {
		return lost(e.Kind, e.Err)
	}
	if e, ok := errors.AsType[*amqp.ConditionError](why); ok {
		return lost(amqpclient.EndKind(e), why)
	}
	if errors.Is(why, os.ErrDeadlineExceeded) || errors.Is(why, context.DeadlineExceeded) {
		return lost(transport.Timeout, why)
	}
	return lost(transport.Network, why)
}

// Send queues the batch. It does not block.
func (s *session) Send(batch []transport.Item) {
	s.mu.Lock()
	if !s.over {
		s.queue = append(s.queue, batch...)
	}
	s.mu.Unlock()
	select {
	case s.queued <- struct{}{}:
	default:
	}
}

// send is the goroutine that sends.
func (s *session) send() {
	for {
		select {
		case <-s.queued:
		case <-s.ctx.Done():
			return
		}
		s.mu.Lock()
		items := s.queue
		s.queue = nil
		s.mu.Unlock()
		for _, item := range items {
			if e := message.Refusal(item.Msg, s.opt.Addresses == nil, s.info.MaxSize); e != nil {
				s.cfg.Sink.Done(item.Tag, e)
			} else if !s.sendOne(item) {
				return
			}
		}
	}
}

var errNoCredit = errors.New("the hub gave the link no credit within Options.CreditTimeout")

// sendOne sends a message. It returns false when the session ends.
func (s *session) sendOne(item transport.Item) bool {
	ctx, cancel := context.WithTimeoutCause(s.ctx, s.opt.CreditTimeout, errNoCredit)
	defer cancel()
	m := new(raw.Message)
	err := m.UnmarshalBinary(append(message.AppendHead(nil, item.Msg, s.opt.Addresses == nil), item.Msg.Body...))
	if err != nil {
		s.cfg.Sink.Done(item.Tag, failed(transport.Invalid, err))
		return true
	}
	defer release(ctx, s.sender)()
	receipt, err := s.sender.SendWithReceipt(ctx, m, nil)
	switch e, local := err.(*raw.Error); {
	case err == nil:
		tag := item.Tag
		s.group.Go(func() { s.settle(tag, &receipt) })
		return true
	case errors.Is(context.Cause(ctx), errNoCredit):
		s.failure(&transport.Error{Kind: transport.Throttled, Err: errNoCredit})
	case local && e.Condition == raw.ErrCondMessageSizeExceeded:
		s.cfg.Sink.Done(item.Tag, failed(transport.TooLarge, e))
		return true
	default:
		s.failureOfSender(err)
	}
	return false
}

// settle reports the outcome of a message when it arrives. Each message in flight has a goroutine
// for it, so one that is never settled holds up no others.
func (s *session) settle(tag uint16, r *raw.SendReceipt) {
	state, err := s.outcome(r)
	if err != nil {
		s.failureOfSender(err)
		return
	}
	switch e, about := verdict(state); {
	case e == nil: // not Done(tag, e): a nil *Error is not a nil error
		s.cfg.Sink.Done(tag, nil)
	case about == amqpclient.BlameDevice:
		s.failure(e)
	default:
		s.cfg.Sink.Done(tag, e)
	}
}

// outcome waits for the outcome of a message. One that has arrived counts also if a loss followed
// it: Wait then returns either of them, at random.
func (s *session) outcome(r *raw.SendReceipt) (state raw.DeliveryState, err error) {
	for range 64 {
		if state, err = r.Wait(s.ctx); err == nil {
			break
		}
	}
	return state, err
}

// failed returns the error of one message.
func failed(kind transport.Kind, err error) *transport.Error {
	return &transport.Error{Kind: kind, Op: transport.OpSend, Proto: "amqp", Err: err}
}

var errNoOutcome = errors.New("the hub settled the message without a final outcome")

// verdict returns the error of a message by its outcome, nil if the hub accepted it, and the object
// of the outcome.
func verdict(state raw.DeliveryState) (*transport.Error, amqpclient.Blame) {
	switch state := state.(type) {
	case *raw.StateAccepted:
		return nil, amqpclient.BlameNone
	case nil, *raw.StateReceived: // settled without a final outcome: see package amqp
		return operr.OutcomeUnknown(failed(transport.Unavailable, errNoOutcome)), amqpclient.BlameNone
	case *raw.StateRejected:
		c := new(amqp.ConditionError)
		if c.What = "message"; state.Error != nil {
			c = condition("message", state.Error)
		}
		return failed(amqpclient.Conditions[c.Condition], c), amqpclient.Blames[c.Condition]
	case *raw.StateModified:
		if state.UndeliverableHere {
			return failed(transport.Forbidden, errors.New("the hub cannot deliver the message on this link (modified)")),
				amqpclient.BlameMessage
		}
	}
	return failed(transport.Unavailable, fmt.Errorf("the hub did not take the message (%T)", state)), amqpclient.BlameNone
}

// Do starts a request. The caller may reuse r when it returns.
func (s *session) Do(r *transport.Request) {
	id, want := r.ID, r.Want
	switch r.Op {
	case transport.OpPing, transport.OpRespond: // there are no methods to respond to
	case transport.OpSettle:
		if len(r.Ref) == 4 {
			number, outcome := binary.BigEndian.Uint32(r.Ref), r.Outcome
			s.background(func() { s.dispose(number, outcome) })
		}
	case transport.OpSubscribe:
		if r.Want&^transport.FeatureMessages != 0 || s.commands == "" {
			s.unsupported(r)
			return
		}
		s.background(func() { s.subscribe(id, want) })
	case transport.OpRenew:
		if s.auth != amqp.AuthCBS {
			s.unsupported(r)
			return
		}
		s.background(func() { s.renew(id) })
	default:
		s.unsupported(r)
	}
}

var errUnsupported = errors.New("not available over package goamqp with these options")

func (s *session) unsupported(r *transport.Request) {
	s.mu.Lock()
	over := s.over
	s.mu.Unlock()
	if !over {
		s.cfg.Sink.Reply(r.ID, transport.Reply{Err: &transport.Error{Kind: transport.Unsupported, Op: r.Op, Proto: "amqp",
			Err: errUnsupported}})
	}
}

// background runs f on a goroutine, for which Run waits.
func (s *session) background(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		s.group.Go(func() {
			select {
			case <-s.started:
				f()
			case <-s.ctx.Done():
			}
		})
	}
}

// reply replies to a request, unless the session ends.
func (s *session) reply(id uint32, r transport.Reply) {
	if s.ctx.Err() == nil {
		s.cfg.Sink.Reply(id, r)
	}
}

// renew puts a new token.
func (s *session) renew(id uint32) {
	ctx, cancel := context.WithTimeout(s.ctx, s.opt.OperationTimeout)
	defer cancel()
	defer release(s.ctx, s.tokens.out)()
	token, err := s.cfg.Creds.NewToken(ctx)
	if err == nil {
		err = s.tokens.put(ctx, s.cfg.Creds.Resource(), token.Text.Reveal())
	}
	var r transport.Reply
	if err != nil {
		e := protocol.Error(cause(err))
		if lostLinks(err) { // no further try succeeds: the client connects again
			e.RetryAfter = -1
		}
		r.Err = &transport.Error{Kind: e.Kind, Op: transport.OpRenew, Proto: "amqp", RetryAfter: e.RetryAfter, Err: e.Err}
	} else if !token.Fixed {
		r.Expires = token.Expires
	}
	s.reply(id, r)
}

// lostLinks reports whether an error of a token means that its links are lost.
func lostLinks(err error) bool {
	_, link := errors.AsType[*raw.LinkError](err)
	_, session := errors.AsType[*raw.SessionError](err)
	return link || session
}

// subscribe attaches the link for commands, and receives.
func (s *session) subscribe(id uint32, want transport.Features) {
	s.mu.Lock()
	attached := s.receiver != nil
	s.mu.Unlock()
	if attached || want == 0 {
		s.reply(id, transport.Reply{})
		return
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.opt.OperationTimeout)
	l, err := s.amqp.NewReceiver(ctx, s.commands, &raw.ReceiverOptions{Credit: int32(max(1, s.cfg.Queue)),
		Properties: s.properties()})
	cancel()
	if err != nil {
		e := lossOf(err)
		s.reply(id, transport.Reply{Err: &transport.Error{Kind: e.Kind, Op: transport.OpSubscribe, Proto: "amqp",
			Err: e.Err}})
		return
	}
	s.mu.Lock()
	s.receiver, s.unsettled = l, make(map[uint32]received)
	s.mu.Unlock()
	s.reply(id, transport.Reply{})
	for {
		m, err := l.Receive(s.ctx, nil)
		if err != nil {
			s.failure(err)
			return
		}
		s.deliver(l, m)
	}
}

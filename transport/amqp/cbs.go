package amqp

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/internal/amqpclient"
	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/internal/scrub"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp/internal/message"
)

// tokens puts tokens to the hub over the connection's pair of links to $cbs. The links are attached
// for the first token, and again after a loss. Any number of tokens may be in flight.
type tokens struct {
	c     *connection
	gate  chan struct{} // capacity 1: a value in it locks links and sending
	links *tokenLinks   // nil: none; guarded by gate

	mu      sync.Mutex // guards the fields below; never held during I/O
	last    uint64
	waiting map[string]chan tokenAnswer
	heard   uint64 // answers, to whichever token
}

// tokenLinks are a session with its pair of links.
type tokenLinks struct {
	session  *amqpclient.Session
	sender   *amqpclient.Sender
	credited chan struct{} // capacity 1: the sender may have credit
	starved  time.Time     // since when a token found no credit; zero: not; guarded by gate
	dead     chan struct{} // closed when the links are lost
	once     sync.Once
	err      error // why they were lost; valid after dead
}

// lose records the loss of the links.
func (l *tokenLinks) lose(why error) {
	l.once.Do(func() {
		l.err = why
		close(l.dead)
	})
}

// end ends the session, without waiting for the hub's answer.
func (l *tokenLinks) end() {
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	l.session.End(gone)
}

type tokenAnswer struct {
	status   int // 0: none
	text     string
	rejected error // the peer did not take the message with the token: it gives no other answer
}

const (
	cbsAddress = "$cbs"
	tokenType  = "servicebus.windows.net:sastoken"
	// cbsCredit is how many answers the hub may send ahead.
	cbsCredit = 100
)

// errNoAnswer ends a wait after Options.OperationTimeout.
var errNoAnswer = &timeoutError{"the hub did not answer within Options.OperationTimeout"}

// timeoutError is a time-out of this package.
type timeoutError struct{ text string }

func (e *timeoutError) Error() string { return e.text }

// Is makes it a context.DeadlineExceeded.
func (e *timeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

func newTokens(c *connection) *tokens {
	return &tokens{c: c, gate: make(chan struct{}, 1), waiting: make(map[string]chan tokenAnswer)}
}

// put puts the token for an audience and waits for the hub's answer. The error is a *TokenError,
// the cause of ctx, or a cause for lossOf and dialer.Protocol. progress is that of
// connection.await.
func (t *tokens) put(ctx context.Context, audience, token string, progress func()) error {
	bounded, done := t.c.await(ctx, progress)
	defer done()
	answer, err := t.putOnce(bounded, audience, token)
	if _, ok := errors.AsType[*ConditionError](err); ok && bounded.Err() == nil && !t.c.Gone() {
		answer, err = t.putOnce(bounded, audience, token) // the links had been lost, perhaps long ago
	}
	switch {
	case bounded.Err() != nil && err != nil:
		return context.Cause(bounded)
	case err != nil:
		return err
	case answer.rejected != nil:
		return answer.rejected
	case answer.status == 0:
		return amqpclient.ErrNoStatus
	case answer.status != 200 && answer.status != 202:
		return &TokenError{answer.status, answer.text}
	}
	return nil
}

// putOnce puts the token.
func (t *tokens) putOnce(ctx context.Context, audience, token string) (tokenAnswer, error) {
	select {
	case t.gate <- struct{}{}:
	case <-ctx.Done():
		return tokenAnswer{}, ctx.Err()
	}
	if ctx.Err() != nil { // select may have taken the gate although ctx has ended
		<-t.gate
		return tokenAnswer{}, ctx.Err()
	}
	id, heard, answered := t.expect()
	defer t.forget(id)
	began := time.Now()
	links, err := t.send(ctx, tokenDelivery{t, id}, &wire.Message{
		Properties: &wire.Properties{MessageID: id, To: wire.Some(cbsAddress), ReplyTo: wire.Some(cbsReplyTo)},
		ApplicationProperties: wire.Map{{Key: "operation", Value: "put-token"}, {Key: "type", Value: tokenType},
			{Key: "name", Value: audience}},
		Value: token, HasValue: true,
	})
	<-t.gate
	if err != nil {
		return tokenAnswer{}, err
	}
	a, err := t.wait(ctx, links, answered)
	if err != nil && t.silent(ctx, began) {
		t.mute(links, heard)
	}
	return a, err
}

// silent reports whether a wait that ended with the time-out of ctx means that the hub's ends of
// the links may be lost. since is when the wait for the hub began: a slow token source leaves a
// renewal little time.
func (t *tokens) silent(ctx context.Context, since time.Time) bool {
	return errors.Is(context.Cause(ctx), context.DeadlineExceeded) && time.Since(since) >= t.c.opt.OperationTimeout/2
}

// wait waits for the answer to a token that was sent. An answer counts also if a loss followed it.
func (t *tokens) wait(ctx context.Context, links *tokenLinks, answered chan tokenAnswer) (a tokenAnswer, err error) {
	select {
	case a = <-answered:
		return a, nil
	case <-links.dead:
		err = links.err
	case <-t.c.Done():
		err = t.c.Loss()
	case <-ctx.Done():
		err = ctx.Err()
	}
	select {
	case a = <-answered:
		return a, nil
	default:
		return a, err
	}
}

// mute gives up links on which there was no answer since the count was heard: the hub's ends of
// them may be lost. Other devices stay connected.
func (t *tokens) mute(links *tokenLinks, heard uint64) {
	select {
	case t.gate <- struct{}{}:
	default: // a token is being sent
		return
	}
	defer func() { <-t.gate }()
	t.mu.Lock()
	mute := t.links == links && t.heard == heard
	t.mu.Unlock()
	if mute {
		t.drop()
	}
}

// tokenDelivery is the message with a token. An answer follows, unless the peer does not take it.
type tokenDelivery struct {
	t  *tokens
	id string
}

// Settled passes a failure to the waiter. The reading goroutine calls it.
func (d tokenDelivery) Settled(state wire.DeliveryState) {
	switch state := state.(type) {
	case *wire.Rejected:
		d.t.answer(d.id, tokenAnswer{rejected: amqpclient.ConditionOf("token", state.Error)})
	case *wire.Released, *wire.Modified:
		e, _ := verdict(state)
		d.t.answer(d.id, tokenAnswer{rejected: e})
	}
}

// send sends m, and attaches the links if there are none. gate is held.
func (t *tokens) send(ctx context.Context, d amqpclient.Delivery, m *wire.Message) (*tokenLinks, error) {
	if t.links != nil {
		select {
		case <-t.links.dead:
			t.drop()
		default:
		}
	}
	if t.links == nil {
		links, err := t.open(ctx)
		if err != nil {
			return nil, err
		}
		t.links = links
	}
	b, err := wire.AppendMessage(nil, m)
	if err != nil {
		return nil, protocol.Invalid("credentials: the token is not valid UTF-8")
	}
	if most := t.links.sender.MaxMessageSize(); most > 0 && uint64(len(b)) > most { // the peer would end the links
		return nil, protocol.Invalid("credentials: the message with the token has " + strconv.Itoa(len(b)) +
			" bytes, and the hub takes " + strconv.FormatUint(most, 10) + " at most (max-message-size); use a shorter token")
	}
	for l := t.links; ; {
		switch l.sender.Send(0, d, b) {
		case amqpclient.NotBlocked:
			l.starved = time.Time{}
			t.c.Kick()
			return l, nil
		case amqpclient.Gone, amqpclient.NoCredit, amqpclient.NoWindow:
		}
		if l.starved.IsZero() {
			l.starved = time.Now()
		}
		select {
		case <-l.credited:
			continue
		case <-l.dead:
			err = l.err
		case <-t.c.Done():
			err = t.c.Loss()
		case <-ctx.Done():
			err = ctx.Err()
		}
		if ctx.Err() == nil || t.silent(ctx, l.starved) {
			t.drop()
		} // else keep them, as other devices may wait for answers on them
		return nil, err
	}
}

// drop gives up the links. gate is held.
func (t *tokens) drop() {
	t.links.lose(&ConditionError{What: "session"})
	t.links.end()
	t.links = nil
}

// open attaches the links.
func (t *tokens) open(ctx context.Context) (*tokenLinks, error) {
	l := &tokenLinks{credited: make(chan struct{}, 1), dead: make(chan struct{})}
	detached := func(why error) { l.lose(t.reason(why)) }
	var err error
	if l.session, err = t.c.Begin(ctx); err != nil {
		return nil, err
	}
	l.sender, _, err = l.session.NewPair(ctx, &amqpclient.SenderOptions{
		Credited: func() {
			select {
			case l.credited <- struct{}{}:
			default:
			}
		},
		LinkOptions: amqpclient.LinkOptions{Name: "cbs-sender", Address: cbsAddress, Detached: detached},
	}, &amqpclient.ReceiverOptions{
		Target: cbsReplyTo, Credit: cbsCredit, MaxMessageSize: amqpclient.MaxFrame,
		Message:     func(r *amqpclient.Receiver, m amqpclient.Incoming) { t.message(l, r, m) },
		LinkOptions: amqpclient.LinkOptions{Name: "cbs-receiver", Address: cbsAddress, Detached: detached},
	})
	if err != nil {
		l.end()
		return nil, err
	}
	return l, nil
}

// reason returns the error of the tokens in flight for the reason with which the peer ended the
// links. While there are several, a condition about one of them says nothing about the others.
func (t *tokens) reason(why error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.waiting) > 1 && blameOf(why) != amqpclient.BlameNone {
		return &transport.Error{Kind: transport.Unavailable, Err: why}
	}
	return why
}

// message passes an answer to its waiter. The reading goroutine calls it.
func (t *tokens) message(l *tokenLinks, r *amqpclient.Receiver, m amqpclient.Incoming) {
	if m.Bad != nil {
		l.lose(m.Bad)
		l.end()
		return
	}
	r.Settle(&m, &wire.Accepted{})
	if m.Properties != nil {
		t.answer(message.IDText(m.Properties.CorrelationID), readAnswer(m.ApplicationProperties))
	}
}

const cbsReplyTo = "cbs"

// expect returns an id for a request and the channel for its answer.
func (t *tokens) expect() (id string, heard uint64, answered chan tokenAnswer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last++
	id, answered = "put-token-"+strconv.FormatUint(t.last, 10), make(chan tokenAnswer, 1)
	t.waiting[id] = answered
	return id, t.heard, answered
}

func (t *tokens) forget(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.waiting, id)
}

// answer passes an answer to its waiter. Without one it is late, or was never requested.
func (t *tokens) answer(id string, a tokenAnswer) {
	t.mu.Lock()
	ch := t.waiting[id]
	delete(t.waiting, id)
	t.heard++
	t.mu.Unlock()
	if ch != nil {
		ch <- a
	}
}

func readAnswer(p wire.Map) tokenAnswer {
	status, ok := p.Get("status-code")
	if !ok {
		status, _ = p.Get("statusCode")
	}
	n, _ := strconv.Atoi(message.ValueText(status))
	return tokenAnswer{status: n, text: scrub.Peer(p.Text("status-description"))}
}

package amqp

import (
	"context"
	"errors"
	"strconv"
	"sync"

	"github.com/Azure/go-amqp"

	"github.com/hubline-iot/hubline/internal/amqpscreen"
	"github.com/hubline-iot/hubline/internal/scrub"
)

// tokens puts tokens to the hub over the connection's pair of links to $cbs. The links are attached
// for the first token, and again after a loss. Any number of tokens may be in flight.
type tokens struct {
	c      *connection
	gate   chan struct{} // capacity 1: a value in it locks links and sending, as the library's lock ignores contexts
	links  *tokenLinks   // nil: none; guarded by gate
	reader sync.WaitGroup

	mu      sync.Mutex // guards the fields below; never held during I/O
	last    uint64
	waiting map[string]chan tokenAnswer
}

// tokenLinks are a session with its pair of links.
type tokenLinks struct {
	session  *amqp.Session
	sender   *amqp.Sender
	receiver *amqp.Receiver
	dead     chan struct{} // closed by the reader when the links end; it then ends the session
	err      error         // why they ended; valid after dead
}

type tokenAnswer struct {
	status int
	text   string
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

// join waits for the reader. The connection must have ended.
func (t *tokens) join() { t.reader.Wait() }

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
	id, answered := t.expect()
	defer t.forget(id)
	links, err := t.send(ctx, &amqp.Message{
		Properties: &amqp.MessageProperties{MessageID: id, To: &cbsTo, ReplyTo: &cbsReplyTo},
		ApplicationProperties: map[string]any{
			"operation": "put-token", "type": tokenType, "name": audience,
		},
		Value: token,
	})
	<-t.gate
	if err != nil {
		return tokenAnswer{}, t.c.Explain(err)
	}
	select {
	case a := <-answered:
		return a, nil
	case <-links.dead:
		return tokenAnswer{}, t.c.Explain(links.err)
	case <-t.c.Done():
		return tokenAnswer{}, t.c.Loss()
	case <-ctx.Done():
		return tokenAnswer{}, ctx.Err()
	}
}

var cbsTo, cbsReplyTo = cbsAddress, "cbs"

// send sends m, and attaches the links if there are none. gate is held.
func (t *tokens) send(ctx context.Context, m *amqp.Message) (*tokenLinks, error) {
	if t.links != nil {
		select {
		case <-t.links.dead:
			t.drop(ctx)
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
	links := t.links
	if _, err := links.sender.SendWithReceipt(ctx, m, nil); err != nil {
		select {
		case <-links.dead:
			err = links.err // why the reader unblocked the sender
		default:
		}
		if ctx.Err() == nil || errors.Is(context.Cause(ctx), errNoAnswer) {
			t.drop(ctx)
		} // else another device was closed: other devices wait for answers on the links
		return nil, err
	}
	return links, nil
}

// drop gives up the links and ends their reader. gate is held.
func (t *tokens) drop(ctx context.Context) {
	_ = t.links.session.Close(ctx) // a failure is harmless: the connection's end closes it
	t.links = nil
}

// open attaches the links, and starts their reader.
func (t *tokens) open(ctx context.Context) (*tokenLinks, error) {
	session, err := t.c.begin(ctx)
	if err != nil {
		return nil, err
	}
	l := &tokenLinks{session: session, dead: make(chan struct{})}
	if l.sender, err = session.NewSender(ctx, cbsAddress, &amqp.SenderOptions{Name: "cbs-sender"}); err == nil {
		l.receiver, err = session.NewReceiver(ctx, cbsAddress, &amqp.ReceiverOptions{
			Name: "cbs-receiver", TargetAddress: cbsReplyTo, Credit: cbsCredit, MaxMessageSize: amqpscreen.MaxFrame,
		})
	}
	if err != nil {
		_ = session.Close(ctx)
		return nil, err
	}
	t.reader.Go(func() {
		l.err = t.read(l.receiver)
		close(l.dead)
		unblockSend(l.sender)
		ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
		defer cancel()
		_ = session.Close(ctx) // it is still open after a broken answer, or when one link was lost
	})
	return l, nil
}

// read passes answers to their waiters until the links are lost.
func (t *tokens) read(r *amqp.Receiver) error {
	ctx := context.Background() // the end of the session or the connection ends the wait
	for {
		m, err := r.Receive(ctx, nil)
		if err != nil {
			return err
		}
		if bad := amqpscreen.ReplacedMessage(m); bad != nil {
			return bad
		}
		if m.Properties != nil {
			t.answer(idText(m.Properties.CorrelationID), m.ApplicationProperties)
		}
		if err := r.AcceptMessage(ctx, m); err != nil {
			return err
		}
	}
}

// expect returns an id for a request and the channel for its answer.
func (t *tokens) expect() (string, chan tokenAnswer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last++
	id := "put-token-" + strconv.FormatUint(t.last, 10)
	ch := make(chan tokenAnswer, 1)
	t.waiting[id] = ch
	return id, ch
}

func (t *tokens) forget(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.waiting, id)
}

func (t *tokens) answer(id string, p map[string]any) {
	t.mu.Lock()
	ch := t.waiting[id]
	delete(t.waiting, id)
	t.mu.Unlock()
	if ch == nil {
		return // late, or never requested
	}
	status, ok := p["status-code"]
	if !ok {
		status = p["statusCode"]
	}
	n, _ := strconv.Atoi(valueText(status))
	ch <- tokenAnswer{n, scrub.Peer(valueText(p["status-description"]))}
}

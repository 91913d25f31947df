package dpsamqp

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/hubline-iot/hubline/internal/amqpconn"
	"github.com/hubline-iot/hubline/internal/amqpscreen"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/transport"
)

// session is one connection. One goroutine uses it.
type session struct {
	conn    *amqpconn.Conn
	in      *amqp.Receiver
	out     *amqp.Sender
	timeout time.Duration
	now     func() time.Time

	name string // begins correlation ids; a late answer to another session has another one
	last int    // number of the latest request
}

func newSession(conn *amqpconn.Conn, l *provisioning.Login) *session {
	return &session{conn: conn, timeout: l.Timeout, now: l.Now, name: rand.Text() + "-"}
}

const (
	// maxMessage bounds a message of the service: an answer with its properties.
	maxMessage = provisioning.MaxAnswer + 4<<10
	// credit is how many answers the service may send. One is expected; others are ignored.
	credit = 10
)

// attach begins an AMQP session and attaches the links.
func (s *session) attach(ctx context.Context, l *provisioning.Login, agent string) error {
	properties := map[string]any{"com.microsoft:api-version": l.APIVersion, "com.microsoft:client-version": agent}
	on, err := s.conn.NewSession(ctx, nil)
	if err != nil {
		return err
	}
	s.in, err = on.NewReceiver(ctx, l.Resource(),
		&amqp.ReceiverOptions{Credit: credit, MaxMessageSize: maxMessage, Properties: properties})
	if err != nil {
		return err
	}
	s.out, err = on.NewSender(ctx, l.Resource(), &amqp.SenderOptions{Properties: properties})
	return err
}

// guarded runs f, and cuts the connection when ctx ends first: the library ignores some contexts.
// It returns the underlying cause of an error of f.
func (s *session) guarded(ctx context.Context, f func() error) error {
	stop := context.AfterFunc(ctx, func() { s.conn.Stream.Fail(amqpscreen.ErrClosed) })
	defer stop()
	if err := f(); err != nil {
		return s.conn.Explain(err)
	}
	return nil
}

// Close closes the connection.
func (s *session) Close() { s.conn.Close() }

// Exchange sends a request and waits for its answer.
func (s *session) Exchange(ctx context.Context, r *provisioning.Request) (*provisioning.Answer, error) {
	limited, cancel := context.WithTimeoutCause(ctx, s.timeout, errSlow)
	defer cancel()
	var answer *provisioning.Answer
	err := s.guarded(limited, func() (err error) {
		answer, err = s.exchange(limited, r)
		return err
	})
	if err != nil {
		return nil, failure(ctx, limited, err)
	}
	return answer, nil
}

func (s *session) exchange(ctx context.Context, r *provisioning.Request) (*provisioning.Answer, error) {
	s.last++
	id := s.name + strconv.Itoa(s.last)
	receipt, err := s.out.SendWithReceipt(ctx, request(r, id), nil)
	if err != nil {
		return nil, err
	}
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	var refusal *provisioning.Answer
	var refused error
	settled := make(chan struct{})
	go func() { // ends with the outcome, or with waiting
		defer close(settled)
		state, err := receipt.Wait(waiting)
		if waiting.Err() != nil {
			return // the answer arrived first
		}
		if refused = err; err == nil {
			refusal, refused = s.outcome(state)
		}
		if refusal != nil || refused != nil {
			cancel()
		}
	}()
	answer, err := s.receive(waiting, id)
	cancel()
	<-settled
	switch {
	case err == nil:
		return answer, nil
	case refusal != nil || refused != nil:
		return refusal, refused
	}
	return nil, err
}

// receive waits for the answer to a request.
func (s *session) receive(ctx context.Context, id string) (*provisioning.Answer, error) {
	for {
		m, err := s.in.Receive(ctx, nil)
		if err != nil {
			return nil, err
		}
		if bad := amqpscreen.ReplacedMessage(m); bad != nil {
			return nil, bad
		}
		_ = s.in.AcceptMessage(ctx, m) // if the connection is lost, the answer counts all the same
		if m.Properties != nil && m.Properties.CorrelationID == id {
			return answerOf(m, s.now()), nil
		}
	}
}

// outcome returns the answer or the error that the outcome of a request is; neither if the service
// accepted the request.
func (s *session) outcome(state amqp.DeliveryState) (*provisioning.Answer, error) {
	switch state := state.(type) {
	case nil, *amqp.StateAccepted:
		return nil, nil
	case *amqp.StateRejected:
		return rejection(state.Error, s.now())
	}
	return nil, &transport.Error{Kind: transport.Unavailable, Err: errReleased}
}

var errReleased = errors.New("the service did not take the request")

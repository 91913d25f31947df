package dpsamqp

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"time"

	"github.com/hubline-iot/hubline/internal/amqpclient"
	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/transport"
)

// session is one connection. One goroutine uses it, and the reading one of the connection reports
// to it through channels.
type session struct {
	conn    *amqpclient.Conn
	out     *amqpclient.Sender
	timeout time.Duration
	now     func() time.Time

	name string // begins correlation ids; a late answer to another session has another one
	last int    // number of the latest request

	news     chan struct{}      // capacity 1: credit, an answer or an outcome arrived
	messages chan *wire.Message // capacity credit: answers
	outcomes chan settled       // capacity credit
	lost     chan error         // capacity 1: why a link or the session was lost
}

func newSession(conn *amqpclient.Conn, l *provisioning.Login) *session {
	return &session{conn: conn, timeout: l.Timeout, now: l.Now, name: rand.Text() + "-", news: make(chan struct{}, 1),
		messages: make(chan *wire.Message, credit), outcomes: make(chan settled, credit), lost: make(chan error, 1)}
}

const (
	// maxMessage bounds a message of the service: an answer with its properties.
	maxMessage = provisioning.MaxAnswer + 4<<10
	// credit is how many answers the service may send. One is expected; others are ignored.
	credit = 10
)

// attach begins an AMQP session and attaches the links.
func (s *session) attach(ctx context.Context, l *provisioning.Login, agent string) error {
	link := amqpclient.LinkOptions{Address: l.Resource(), Detached: s.lose, Properties: wire.Map{
		{Key: wire.Symbol("com.microsoft:api-version"), Value: l.APIVersion},
		{Key: wire.Symbol("com.microsoft:client-version"), Value: agent}}}
	on, err := s.conn.Begin(ctx)
	if err != nil {
		return err
	}
	_, err = on.NewReceiver(ctx, &amqpclient.ReceiverOptions{LinkOptions: link, Credit: credit, MaxMessageSize: maxMessage,
		Message: s.received})
	if err != nil {
		return err
	}
	s.out, err = on.NewSender(ctx, &amqpclient.SenderOptions{LinkOptions: link, Credited: s.tell})
	return err
}

func (s *session) tell() {
	select {
	case s.news <- struct{}{}:
	default:
	}
}

func (s *session) lose(why error) {
	select {
	case s.lost <- why:
	default:
	}
}

// received takes an answer. The reading goroutine calls it.
func (s *session) received(l *amqpclient.Receiver, m amqpclient.Incoming) {
	if m.Bad != nil {
		s.lose(m.Bad)
		return
	}
	if len(s.messages) == cap(s.messages) {
		return // it stays unsettled: more than were asked for
	}
	l.Settle(&m, &wire.Accepted{}) // first, since who takes the answer may close the connection
	s.messages <- m.Message
	s.tell()
}

// requested is a request that was sent.
type requested struct {
	*session
	number int
}

// settled is the outcome of a request.
type settled struct {
	number int
	state  wire.DeliveryState
}

// Settled takes the outcome of the request. The reading goroutine calls it.
func (r requested) Settled(state wire.DeliveryState) {
	select {
	case r.outcomes <- settled{r.number, state}:
		r.tell()
	default:
	}
}

// Close closes the connection.
func (s *session) Close() { s.conn.Close() }

// Exchange sends a request and waits for its answer.
func (s *session) Exchange(ctx context.Context, r *provisioning.Request) (*provisioning.Answer, error) {
	limited, cancel := context.WithTimeoutCause(ctx, s.timeout, errSlow)
	defer cancel()
	answer, err := s.exchange(limited, r)
	if err != nil {
		return nil, failure(ctx, limited, err)
	}
	return answer, nil
}

func (s *session) exchange(ctx context.Context, r *provisioning.Request) (*provisioning.Answer, error) {
	s.last++
	id := s.name + strconv.Itoa(s.last)
	b, err := wire.AppendMessage(nil, request(r, id))
	if err != nil {
		return nil, protocol.Invalid("request: " + err.Error())
	}
	for sent := false; ; {
		if !sent && s.out.Send(0, requested{s, s.last}, b) == amqpclient.NotBlocked {
			sent = true
			s.conn.Kick()
		}
		var loss error
		select {
		case <-s.news:
		case loss = <-s.lost:
		case <-s.conn.Done():
			loss = s.conn.Loss()
		case <-ctx.Done():
			loss = ctx.Err()
		}
		if answer, err := s.arrived(id); answer != nil || err != nil { // also before a loss
			return answer, err
		}
		if loss != nil {
			return nil, loss
		}
	}
}

// arrived takes what has arrived. It returns the answer or the error to the latest request, whose
// correlation id is given; neither if there is none yet.
func (s *session) arrived(id string) (*provisioning.Answer, error) {
	for {
		select {
		case m := <-s.messages:
			if m.Properties != nil && m.Properties.CorrelationID == id {
				return answerOf(m, s.now()), nil
			}
		case o := <-s.outcomes:
			if o.number != s.last {
				continue // late, of a request that was given up
			}
			if answer, err := s.outcome(o.state); answer != nil || err != nil {
				return answer, err
			}
		default:
			return nil, nil
		}
	}
}

// outcome returns the answer or the error that the outcome of a request is; neither if the service
// accepted the request.
func (s *session) outcome(state wire.DeliveryState) (*provisioning.Answer, error) {
	switch state := state.(type) {
	case nil, *wire.Accepted:
		return nil, nil
	case *wire.Rejected:
		return rejection(state.Error, s.now())
	}
	return nil, &transport.Error{Kind: transport.Unavailable, Err: errReleased}
}

var errReleased = errors.New("the service did not take the request")

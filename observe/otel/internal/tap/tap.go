// Package tap puts an observer between a device client and the sessions of its transport. The
// features of a session, which are interfaces beside transport.Session, stay visible.
package tap

import (
	"context"

	"github.com/hubline-iot/hubline/transport"
)

// Session observes an attempt to connect and the session that it makes.
type Session interface {
	// Send is called before a batch is handed over.
	Send(batch []transport.Item)
	// Done is called before the client learns the answer to a message.
	Done(tag uint16, err error)
	// End is called once, after everything else: the attempt failed, or the session ended. planned:
	// the client ended it.
	End(err error, planned bool)
}

// Transport returns a Transport around inner that calls open before each attempt to connect.
func Transport(inner transport.Transport, open func(*transport.Credentials) Session) transport.Transport {
	return &tapped{inner, open}
}

type tapped struct {
	inner transport.Transport
	open  func(*transport.Credentials) Session
}

// Check asks the inner transport.
func (x *tapped) Check(creds *transport.Credentials) error {
	if checker, ok := x.inner.(transport.Checker); ok {
		return checker.Check(creds)
	}
	return nil
}

// Lacks asks the inner transport.
func (x *tapped) Lacks(creds *transport.Credentials, feature transport.Features) string {
	if limited, ok := x.inner.(transport.Limited); ok {
		return limited.Lacks(creds, feature)
	}
	return ""
}

// Dial dials with the inner transport.
func (x *tapped) Dial(ctx context.Context, cfg *transport.Config) (transport.Session, error) {
	observer := x.open(cfg.Creds)
	own := *cfg
	own.Sink = sink{cfg.Sink, observer}
	inner, err := x.inner.Dial(ctx, &own)
	if err != nil {
		observer.End(err, ctx.Err() != nil)
		return nil, err
	}
	s := session{Session: inner, observer: observer}
	if twinned, ok := inner.(transport.Twinned); ok {
		s.twin = twinned.TwinNumber()
	}
	if p, ok := inner.(transport.Progressor); ok {
		return progressor{s, p}, nil
	}
	return s, nil
}

type sink struct {
	transport.Sink
	observer Session
}

func (s sink) Done(tag uint16, err error) {
	s.observer.Done(tag, err)
	s.Sink.Done(tag, err)
}

type session struct {
	transport.Session
	observer Session
	twin     uint32
}

func (s session) Send(batch []transport.Item) {
	s.observer.Send(batch)
	s.Session.Send(batch)
}

func (s session) Run(ctx context.Context) error {
	err := s.Session.Run(ctx)
	s.observer.End(err, ctx.Err() != nil)
	return err
}

// TwinNumber is that of the inner session.
func (s session) TwinNumber() uint32 { return s.twin }

// progressor is a session whose inner one is a transport.Progressor.
type progressor struct {
	session
	transport.Progressor
}

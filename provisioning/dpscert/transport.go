package dpscert

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/hubline-iot/hubline/internal/errchain"
	"github.com/hubline-iot/hubline/provisioning/internal/attempt"
	"github.com/hubline-iot/hubline/transport"
)

// Around returns a transport that connects through inner, whose network options have r.Certificate,
// and renews the certificate while it is connected. All transports of a Renewer serve one client,
// one connection at a time.
func (r *Renewer) Around(inner transport.Transport) *Transport {
	return &Transport{r: r, inner: inner}
}

// Transport renews the certificate of a device while it is connected. Make it with Renewer.Around.
type Transport struct {
	r     *Renewer
	inner transport.Transport

	// Owned by the goroutine of Dial and Run.
	wentBack bool             // the previous certificate was tried, since the hub accepted one
	askedFor bool             // so was one of the service
	refusal  *transport.Error // why the hub ended the latest session; nil: it did not refuse the certificate
}

var _ transport.Transport = (*Transport)(nil)

// Lacks asks the inner transport.
func (t *Transport) Lacks(creds *transport.Credentials, feature transport.Features) string {
	if limited, ok := t.inner.(transport.Limited); ok {
		return limited.Lacks(creds, feature)
	}
	return ""
}

// Check asks the inner transport.
func (t *Transport) Check(creds *transport.Credentials) error {
	if checker, ok := t.inner.(transport.Checker); ok {
		return checker.Check(withCertificate(creds))
	}
	return nil
}

// withCertificate returns creds without the functions of a registrar with a key: the certificate is
// the proof.
func withCertificate(creds *transport.Credentials) *transport.Credentials {
	own := *creds
	own.Sign, own.Token = nil, nil
	return &own
}

// Dial connects with the certificate in use. If there is none, or it has ended, it asks the
// provisioning service for one first. If the hub refuses the certificate, it tries the others at
// once.
func (t *Transport) Dial(ctx context.Context, cfg *transport.Config) (s transport.Session, err error) {
	if !t.r.busy.CompareAndSwap(false, true) {
		return nil, invalid("this Renewer serves a client already; make one Renewer for each client")
	}
	defer func() {
		if s == nil { // also when a callback panics
			t.r.busy.Store(false)
		}
	}()
	return t.dial(ctx, cfg)
}

func (t *Transport) dial(ctx context.Context, cfg *transport.Config) (transport.Session, error) {
	r := t.r
	r.clock.Store(cfg.Creds)
	if err := r.prepare(ctx); err != nil {
		return nil, err
	}
	if e := t.refusal; e != nil {
		t.refusal = nil
		if changed, err := t.change(ctx, cfg, e); !changed {
			return nil, err
		}
	}
	if !r.held().validAt(r.now()) && r.opt.Registrar != nil {
		if err := t.register(ctx, cfg); err != nil {
			return nil, err
		}
	}
	for {
		s, err := t.connect(ctx, cfg)
		e := transport.Find(err)
		if ctx.Err() != nil || e == nil || !r.refuses(e) {
			return s, err
		}
		if changed, err := t.change(ctx, cfg, e); !changed {
			return nil, err
		}
	}
}

// connect connects with the certificate in use.
func (t *Transport) connect(ctx context.Context, cfg *transport.Config) (transport.Session, error) {
	r := t.r
	h := r.held()
	if h == nil {
		return nil, dialError(errNone)
	}
	s := &session{t: t, held: h, twin: r.registered(), deviceID: cfg.Creds.DeviceID, turn: make(chan struct{}, 1),
		answers: make(chan answer, maxAnswers), replies: make(chan reply, 2)}
	s.sink = attempt.Watch(cfg.Sink, s.refusedLater)
	own := *cfg
	own.Creds, own.Sink, own.Certificates = withCertificate(cfg.Creds), &sink{s.sink, s}, !r.opt.ServiceOnly
	var err error
	if s.Session, err = t.inner.Dial(ctx, &own); err != nil {
		return nil, err
	}
	if p, ok := s.Session.(transport.Progressor); ok {
		return &progressor{s, p}, nil
	}
	return s, nil
}

// TwinNumber implements transport.Twinned: each registration may lead to another twin.
func (s *session) TwinNumber() uint32 { return s.twin + attempt.TwinNumber(s.Session) }

// register gets a certificate from the provisioning service.
func (t *Transport) register(ctx context.Context, cfg *transport.Config) error {
	defer attempt.Report(cfg.Progress)()
	t.r.publish(Event{Step: StepRequesting})
	a, err := t.r.fromService(ctx, cfg)
	if err != nil {
		failure := failureOf(ctx, err)
		t.r.note(failure)
		t.r.publish(Event{Step: StepRetrying, Delay: failure.RetryAfter, Err: failure})
		return dialError(failure)
	}
	t.r.note(nil)
	t.r.publish(Event{Step: StepRenewed, Assignment: a})
	return nil
}

// dialError returns e as the error of a Dial.
func dialError(e *transport.Error) error {
	own := *e
	own.Scope, own.Op = transport.ScopeConnection, transport.OpDial
	own.Err = errchain.Unasked{Err: &noCertificateError{e}}
	return &own
}

type noCertificateError struct{ err error }

func (e *noCertificateError) Error() string {
	return "the device has no valid certificate: " + e.err.Error()
}

func (e *noCertificateError) Unwrap() error { return e.err }

// refuses reports whether e is the hub's refusal of the certificate.
func (r *Renewer) refuses(e *transport.Error) bool {
	return e.Kind == transport.Unauthorized && !errchain.IsUnasked(e) && r.clockSet(r.now())
}

// change makes another certificate the one in use after the refusal e, the previous one or one of
// the provisioning service. It reports whether it did; otherwise the error says why not.
func (t *Transport) change(ctx context.Context, cfg *transport.Config, e *transport.Error) (bool, error) {
	r := t.r
	switch {
	case !t.wentBack && r.goBack(ctx):
		t.wentBack = true
		r.pauseUntil(time.Now().Add(afterRefusal))
		r.publish(Event{Step: StepPreviousUsed, Err: e})
	case !t.askedFor && r.opt.Registrar != nil:
		t.askedFor = true
		if failed := t.register(ctx, cfg); failed != nil {
			return false, failed
		}
	default:
		t.wentBack, t.askedFor = false, false
		return false, e
	}
	return true, nil
}

// otherCertificate returns e with a retryable Kind.
func otherCertificate(e *transport.Error) error {
	return &transport.Error{Kind: transport.Unavailable, Scope: transport.ScopeConnection, Op: e.Op, Proto: e.Proto,
		RetryAfter: max(e.RetryAfter, 0), Err: &otherCertificateError{e}}
}

// otherCertificateError is a refusal after which the device uses another certificate.
type otherCertificateError struct{ refusal *transport.Error }

func (e *otherCertificateError) Error() string {
	return "the hub refused the certificate: " + e.refusal.Error() + "; the next attempt uses another one"
}

// Unwrap returns the refusal.
func (e *otherCertificateError) Unwrap() error { return e.refusal }

// session is a session that renews its certificate.
//
// The client's goroutine and that of the renewal take turns in calling Send and Do. Run joins the
// renewal.
type session struct {
	transport.Session
	t        *Transport
	held     *held // what it was dialed with
	twin     uint32
	sink     *attempt.Sink
	deviceID string
	turn     chan struct{} // capacity 1; holds a value while Send or Do runs
	answers  chan answer
	replies  chan reply
	latest   time.Time // the latest progress; owned by the caller of Progress

	subscribed bool // to answers; owned by the renewal

	refusal atomic.Pointer[transport.Error] // the hub refused the certificate after the Dial
}

// refusedLater is told that the hub refuses a subscription because of the device. If that is due to
// the certificate, the next Dial uses another one.
func (s *session) refusedLater(e *transport.Error) error {
	if !s.t.r.refuses(e) {
		return e
	}
	s.refusal.Store(e)
	return otherCertificate(e)
}

// Info returns the description of the session below, which expires when the certificate does.
func (s *session) Info() transport.Info {
	info := s.Session.Info()
	if end := s.held.cert.Leaf.NotAfter; info.Expires.IsZero() || end.Before(info.Expires) {
		info.Expires = end
	}
	return info
}

// Send hands messages over.
func (s *session) Send(batch []transport.Item) {
	s.turn <- struct{}{}
	s.Session.Send(batch)
	<-s.turn
}

// Do starts a request. It answers OpRenew by itself: with a newer certificate the session must be
// replaced, and without one that would be of no use.
func (s *session) Do(q *transport.Request) {
	if q.Op == transport.OpRenew {
		answer := transport.Reply{Expires: s.held.cert.Leaf.NotAfter}
		if s.t.r.held() != s.held {
			answer = transport.Reply{Err: &transport.Error{Kind: transport.Unsupported, Op: transport.OpRenew,
				Err: errNewer}}
		}
		s.sink.Reply(q.ID, answer)
		return
	}
	s.sink.Note(q)
	s.do(q)
}

var errNewer = errors.New("a newer certificate needs a new connection")

func (s *session) do(q *transport.Request) {
	s.turn <- struct{}{}
	s.Session.Do(q)
	<-s.turn
}

// Run serves the session and renews the certificate.
func (s *session) Run(ctx context.Context) error {
	inner, stop := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.renewals(inner, stop)
	}()
	var cause error
	defer s.t.r.busy.Store(false)
	began := time.Now()
	err := func() error {
		defer func() { // also when a callback panics
			cause = context.Cause(inner)
			stop(nil)
			<-ended
		}()
		return s.Session.Run(inner)
	}()
	if ctx.Err() == nil && errors.Is(cause, errReplaced) {
		err = &transport.Error{Kind: transport.Network, Scope: transport.ScopeConnection, Op: transport.OpRun, Err: cause}
	}
	if e := transport.Find(err); e != nil && ctx.Err() == nil && s.t.r.refuses(e) {
		err = s.refusedLater(e)
	}
	s.t.refusal = s.refusal.Load()
	if s.t.refusal == nil && time.Since(began) >= stable {
		s.t.wentBack, s.t.askedFor = false, false
	}
	return err
}

// progressor is a session that reports progress.
type progressor struct {
	*session
	inner transport.Progressor
}

// Progress returns the progress of the session below; while the renewal writes, the latest known
// one.
func (p *progressor) Progress() (at time.Time, waits bool) {
	select {
	case p.turn <- struct{}{}:
		p.latest, waits = p.inner.Progress()
		<-p.turn
		return p.latest, waits
	default:
		return p.latest, false
	}
}

package http

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/internal/dialer"
	"github.com/hubline-iot/hubline/internal/hubhttp"
	"github.com/hubline-iot/hubline/internal/statuscode"
	"github.com/hubline-iot/hubline/internal/texts"
	"github.com/hubline-iot/hubline/transport"
)

// session is the session of one device. "Connected" means that the last exchange succeeded: the
// session ends with the first exchange that fails because of the network or an answer about the
// identity. A connection that the hub closes cleanly while no request is in flight is not a loss.
//
// Telemetry and cloud-to-device messages have one goroutine and one connection each, so a slow
// answer to one does not delay the other.
type session struct {
	cfg    transport.Config
	opt    *Options
	urls   urls
	clock  *hubhttp.Clock
	sizer  *sizer
	tokens *hubhttp.Tokens

	ctx    context.Context // done when Run is to end
	cancel context.CancelFunc
	// settleCtx ends when cancelSettling is called; pending settlements of cloud-to-device messages
	// may be sent until then
	settleCtx      context.Context
	cancelSettling context.CancelFunc
	fatal          chan error // capacity 1: why the session must end
	group          sync.WaitGroup

	telemetry telemetry
	c2d       c2d

	mu      sync.Mutex // guards the next three, and fields of telemetry and c2d; not held over I/O
	running bool
	ended   bool // Run is ending or has ended
	leaving bool // it ends because its context ended, not because of a loss
}

const (
	// settleLimit bounds the settling of cloud-to-device messages when a session ends.
	settleLimit = 500 * time.Millisecond
	// closeLimit is the time after which the connections are closed without waiting.
	closeLimit = 700 * time.Millisecond
)

func newSession(t *Transport, cfg *transport.Config) *session {
	s := &session{
		cfg: *cfg, opt: &t.opt, urls: addresses(&t.opt, cfg.Creds), clock: &t.clock, sizer: &t.sizer,
		tokens: hubhttp.NewTokens(cfg.Creds, &t.clock, t.opt.Timeout),
		fatal:  make(chan error, 1),
	}
	s.settleCtx, s.cancelSettling = context.WithCancel(context.Background())
	s.ctx, s.cancel = context.WithCancel(s.settleCtx)
	s.telemetry = telemetry{s: s, requester: newRequester(s), wake: make(chan struct{}, 1), limit: batchBytes}
	s.c2d = c2d{s: s, requester: newRequester(s), wake: make(chan struct{}, 1)}
	return s
}

// Info returns the size limit and the time limit of the largest batch. It reports no expiry,
// because each request renews the token if necessary.
func (s *session) Info() transport.Info {
	return transport.Info{MaxSize: transport.MaxMessageSize, AckTimeout: s.opt.requestTimeout(batchBytes)}
}

// Run runs the session until ctx ends or an error ends the session.
func (s *session) Run(ctx context.Context) error {
	s.mu.Lock()
	s.running = true
	s.group.Go(s.telemetry.run)
	if s.c2d.wanted {
		s.group.Go(s.c2d.run)
	}
	s.mu.Unlock()
	var err error
	leaving := false
	select {
	case <-ctx.Done():
		err = lost(context.Cause(ctx))
		leaving = len(s.fatal) == 0
	case err = <-s.fatal:
	}
	s.mu.Lock()
	s.ended, s.leaving = true, leaving
	s.telemetry.queue = nil
	s.mu.Unlock()
	if _, refused := errors.AsType[*transport.StatusError](err); refused {
		s.cancelSettling() // who refuses the device refuses its settlements too
	}
	s.cancel()
	limits := [...]*time.Timer{time.AfterFunc(settleLimit, s.cancelSettling), time.AfterFunc(closeLimit, s.abort)}
	s.group.Wait()
	for _, limit := range limits {
		limit.Stop()
	}
	s.cancelSettling()
	return err
}

// abort closes both sockets, even while they are in use.
func (s *session) abort() {
	s.telemetry.requester.abort()
	s.c2d.requester.abort()
}

// fail ends the session. Only the first error counts.
func (s *session) fail(err error) {
	select {
	case s.fatal <- err:
	default:
	}
}

// Send appends the batch to the queue. It does not block.
func (s *session) Send(batch []transport.Item) { s.telemetry.enqueue(batch) }

// Do starts a request. It does not block.
func (s *session) Do(r *transport.Request) {
	switch r.Op {
	case transport.OpSettle:
		s.c2d.settle(r)
	case transport.OpPing, transport.OpRespond: // no reply; OpRespond does not occur over HTTP
	case transport.OpSubscribe:
		for f := transport.FeatureMessages; f != 0; f <<= 1 {
			if r.Want&f != 0 && lacks(s.cfg.Creds, f) != "" {
				s.reply(r.ID, failed(r.Op, transport.Unsupported, errors.New(f.String()+" are "+unavailable)))
				return
			}
		}
		s.c2d.subscribe(r.ID, r.Want)
	case transport.OpRenew:
		s.tokens.Forget() // the next request makes a new token, so the reply has no expiry
		s.reply(r.ID, nil)
	default:
		s.reply(r.ID, failed(r.Op, transport.Unsupported, errors.New(unavailable)))
	}
}

// reply answers a request, unless the session has ended. err may be nil.
func (s *session) reply(id uint32, err *transport.Error) {
	s.mu.Lock()
	ended := s.ended
	s.mu.Unlock()
	if ended {
		return
	}
	var r transport.Reply
	if err != nil {
		r.Err = err
	}
	s.cfg.Sink.Reply(id, r)
}

// header returns the headers that all requests share, without the token.
func (s *session) header() http.Header {
	return http.Header{"User-Agent": s.urls.agent}
}

// do makes a request and adds the token. It returns a refusal for an unsuccessful answer, and an
// error that is a cause for lost; hubhttp.ErrLong comes with the answer. If the hub may have
// refused the token, do retries once with another one.
func (s *session) do(ctx context.Context, l *requester, q *hubhttp.Request) (*hubhttp.Answer, *refusal, error) {
	for again := false; ; again = true {
		token, fresh, err := s.tokens.Get(ctx)
		if _, known := s.clock.Skew(); transport.KindOf(err) == transport.ClockUnset && !known && !again {
			// the hub sends its time (Date) without authentication
			if _, err := l.exchange(ctx, s.probe()); err != nil {
				return nil, nil, err
			}
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		if token.Text.Reveal() != "" {
			q.Header["Authorization"] = []string{token.Text.Reveal()}
		}
		a, err := l.exchange(ctx, q)
		if err != nil {
			return a, nil, err
		}
		r := refusalOf(a, q.Method == http.MethodGet, s.clock.Now())
		if r == nil || r.Kind != transport.Unauthorized {
			return a, r, nil
		}
		if again || !s.tokens.Refused(ctx, token, fresh) {
			if s.cfg.Creds.Sign != nil && s.clock.Outlived(token) {
				r.Kind = transport.ClockUnset
			}
			return a, r, nil
		}
	}
}

// noLock is a lock token that no hub issues.
const noLock = "00000000-0000-0000-0000-000000000000"

// probe returns a request without effect, which a hub refuses only after it has authenticated the
// sender. It abandons a message under a lock that does not exist. For a module, which has no
// cloud-to-device messages, it sends an empty batch.
func (s *session) probe() *hubhttp.Request {
	h := s.header()
	if s.cfg.Creds.ModuleID == "" {
		return newRequest(http.MethodPost, s.urls.lock(noLock, "/abandon", ""), h, nil)
	}
	h["Content-Type"] = []string{batchType}
	return newRequest(http.MethodPost, s.urls.events, h, []byte("[]"))
}

// prove opens a connection and makes an exchange whose outcome, success or an expected refusal,
// requires the right credentials.
func (s *session) prove(ctx context.Context) error {
	l := &s.telemetry.requester
	if s.opt.NoProof {
		conn, err := s.opt.connect(ctx, s.cfg.Creds)
		if err == nil {
			l.set(conn)
		}
		return err
	}
	_, r, err := s.do(ctx, l, s.probe())
	switch {
	case err != nil:
		return err
	case r == nil || s.proves(r):
		return nil
	}
	return r.connection(transport.OpDial)
}

// proves reports whether a hub that knows the device may have refused probe this way: the lock is
// lost or invalid, the batch is empty, or the hub's tier has no cloud-to-device messages.
func (s *session) proves(r *refusal) bool {
	const noMessages = 403010
	if s.cfg.Creds.ModuleID == "" {
		r = r.forLock()
	}
	return r.About == statuscode.Message && (r.cause.Status != http.StatusBadRequest || r.cause.Code != 0) ||
		r.cause.Code == noMessages
}

// forLock returns the meaning of a refusal of a request that names a lock: a 404 is about the lock,
// unless the hub's code says otherwise.
func (r *refusal) forLock() *refusal {
	if r.cause.Status != http.StatusNotFound || r.Kind != transport.NotFound || r.cause.Code != 0 &&
		r.cause.Code != 404000 {
		return r
	}
	own := *r
	own.Verdict = hubhttp.Verdict{Kind: transport.Conflict, About: statuscode.Message, Reason: "lock lost"}
	return &own
}

// urls holds the hub's URLs for one identity.
type urls struct {
	events, inbox *url.URL
	agent         []string
}

// apiVersion is the version of the hub's REST API.
const apiVersion = "2021-04-12"

func addresses(o *Options, creds *transport.Credentials) urls {
	path := texts.AppendEscaped([]byte("/devices/"), creds.DeviceID)
	raw := "/devices/" + creds.DeviceID
	if creds.ModuleID != "" {
		path = texts.AppendEscaped(append(path, "/modules/"...), creds.ModuleID)
		raw += "/modules/" + creds.ModuleID
	}
	of := func(what string) *url.URL {
		return &url.URL{
			Scheme: o.dialer().Scheme(), Host: dialer.URLHost(creds.DialHost()), Path: raw + what, RawPath: string(path) + what,
			RawQuery: "api-version=" + apiVersion,
		}
	}
	return urls{of("/messages/events"), of("/messages/deviceBound"), []string{dialer.Agent(o.Network.ProductInfo)}}
}

// lock returns the URL of a locked message with an action on it.
func (u *urls) lock(token, action, query string) *url.URL {
	at := *u.inbox
	at.Path += "/" + token + action
	at.RawPath += "/" + string(texts.AppendEscaped(nil, token)) + action
	at.RawQuery += query
	return &at
}

// notify wakes the goroutine that receives from c; c has capacity 1.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

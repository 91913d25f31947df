package device_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/transport"
)

// fake is a Transport with scripted dials and verdicts. It records what its sessions received.
type fake struct {
	// dial decides about dial n, counted from 1; with a nil error it makes a session. It may block on
	// ctx. Nil: every dial succeeds.
	dial func(n int, ctx context.Context) error
	// verdict decides about a message; a nil error acknowledges it, errHold leaves it unanswered. Nil:
	// every message is acknowledged.
	verdict func(conn int, it transport.Item) error
	// subscribe decides about the subscription on connection conn; errHold leaves it unanswered. Nil:
	// granted.
	subscribe func(conn int) error
	// expires returns the expiry of the credentials of a new session. Nil: never.
	expires func() time.Time
	// request decides about a twin request, a renewal or an answer to a method; false leaves it
	// unanswered. Nil: Unsupported.
	request func(s *fakeSession, r *transport.Request) (transport.Reply, bool)
	// gate holds Send and settlements back until it is closed. Nil: it does not.
	gate chan struct{}
	// keepAlive is the interval of pings that sessions ask for.
	keepAlive time.Duration
	// progress returns when the connection last made progress. Nil: sessions are no Progressors.
	progress func() time.Time
	// twin returns the number of the twin of connection conn. Nil: sessions are not Twinned.
	twin func(conn int) uint32
	// encodes is Info.Encodes of the sessions, which then take what they need of a message in Send.
	encodes bool
	// ackTimeout is Info.AckTimeout of the sessions.
	ackTimeout time.Duration

	mu       sync.Mutex
	dials    []time.Time
	open     int
	sessions []*fakeSession
	log      []received
	settled  []settled
	pings    []time.Time
	asked    []transport.Request
	wanted   []transport.Features
	lacks    transport.Features // see without
}

// requests returns the requests, except subscriptions, settlements and pings.
func (f *fake) requests() []transport.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]transport.Request(nil), f.asked...)
}

// subscriptions returns the requested subscriptions.
func (f *fake) subscriptions() []transport.Features {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]transport.Features(nil), f.wanted...)
}

type settled struct {
	conn    int
	ref     string
	outcome transport.Outcome
}

func (f *fake) verdicts() []settled {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]settled(nil), f.settled...)
}

type received struct {
	conn  int
	id    string
	again bool
}

var errHold = errors.New("no verdict")

func (f *fake) Dial(ctx context.Context, cfg *transport.Config) (transport.Session, error) {
	f.mu.Lock()
	f.dials = append(f.dials, time.Now())
	n := len(f.dials)
	f.mu.Unlock()
	if cfg.Creds.Token != nil { // each dial asks for a token
		if _, err := cfg.Creds.NewToken(ctx); err != nil {
			return nil, err
		}
	}
	if f.dial != nil {
		if err := f.dial(n, ctx); err != nil {
			return nil, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open++; f.open > 1 {
		panic("two sessions overlap")
	}
	info := transport.Info{KeepAlive: f.keepAlive, AckTimeout: f.ackTimeout, Encodes: f.encodes}
	if f.expires != nil {
		info.Expires = f.expires()
	}
	s := &fakeSession{f: f, info: info, cfg: cfg, conn: n, wake: make(chan struct{}, 1), kill: make(chan error, 1),
		dead: make(chan struct{})}
	f.sessions = append(f.sessions, s)
	if f.progress != nil {
		return progressing{s}, nil
	}
	if f.twin != nil {
		return twinned{s}, nil
	}
	return s, nil
}

// progressing is a session that implements transport.Progressor.
type progressing struct{ *fakeSession }

func (s progressing) Progress() (at time.Time, waits bool) { return s.f.progress(), false }

// twinned is a session that implements transport.Twinned.
type twinned struct{ *fakeSession }

func (s twinned) TwinNumber() uint32 { return s.f.twin(s.conn) }

// last returns the newest session.
func (f *fake) last() *fakeSession {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sessions[len(f.sessions)-1]
}

// lose ends the newest session with a failure of kind k, and lets d pass.
func (f *fake) lose(k transport.Kind, d time.Duration) {
	f.last().kill <- lost(k)
	time.Sleep(d)
	synctest.Wait()
}

func (f *fake) received() []received {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]received(nil), f.log...)
}

func (f *fake) ids() (ids []string) {
	for _, r := range f.received() {
		ids = append(ids, r.id)
	}
	return ids
}

func (f *fake) dialTimes() []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]time.Time(nil), f.dials...)
}

type fakeSession struct {
	f      *fake
	cfg    *transport.Config
	conn   int
	info   transport.Info
	wake   chan struct{}
	kill   chan error
	dead   chan struct{}
	broken bool          // it ends soon and answers nothing
	stuck  chan struct{} // not nil: Send blocks until the session ends

	mu           sync.Mutex
	queue        []transport.Item
	subscription uint32 // ID of the latest OpSubscribe
}

func (s *fakeSession) Info() transport.Info { return s.info }

func (s *fakeSession) Run(ctx context.Context) error {
	defer func() {
		s.f.mu.Lock()
		s.f.open--
		s.f.mu.Unlock()
		close(s.dead)
	}()
	for {
		select {
		case <-s.wake:
			s.work()
		case err := <-s.kill:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *fakeSession) work() {
	s.mu.Lock()
	items := s.queue
	s.queue = nil
	s.mu.Unlock()
	for _, it := range items {
		s.f.mu.Lock()
		s.f.log = append(s.f.log, received{s.conn, it.Msg.ID, it.Resent})
		s.f.mu.Unlock()
		var err error
		if s.f.verdict != nil {
			err = s.f.verdict(s.conn, it)
		}
		if it.Msg.AtMostOnce {
			err = transport.ErrWritten
		}
		if !errors.Is(err, errHold) {
			s.cfg.Sink.Done(it.Tag, err)
		}
	}
}

func (s *fakeSession) Send(batch []transport.Item) {
	if s.stuck != nil {
		close(s.stuck)
		<-s.dead
		return
	}
	if s.f.gate != nil {
		<-s.f.gate
	}
	s.mu.Lock()
	for _, it := range batch {
		if s.info.Encodes {
			own := *it.Msg
			it.Msg = &own
		}
		s.queue = append(s.queue, it)
	}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *fakeSession) Do(r *transport.Request) {
	switch r.Op {
	case transport.OpSubscribe:
		s.f.mu.Lock()
		s.f.wanted = append(s.f.wanted, r.Want)
		s.f.mu.Unlock()
		s.mu.Lock()
		s.subscription = r.ID
		s.mu.Unlock()
		var err error
		if s.f.subscribe != nil {
			err = s.f.subscribe(s.conn)
		}
		if !errors.Is(err, errHold) {
			s.cfg.Sink.Reply(r.ID, transport.Reply{Err: err})
		}
	case transport.OpSettle:
		if len(r.Ref) == 0 {
			return // there may be room for a delivery
		}
		if s.f.gate != nil {
			<-s.f.gate
		}
		select {
		case <-s.dead:
			return // too late
		default:
		}
		s.f.mu.Lock()
		s.f.settled = append(s.f.settled, settled{s.conn, string(r.Ref), r.Outcome})
		s.f.mu.Unlock()
	case transport.OpPing:
		s.f.mu.Lock()
		s.f.pings = append(s.f.pings, time.Now())
		s.f.mu.Unlock()
	default:
		own := *r
		own.Ref, own.Body = append([]byte(nil), r.Ref...), append([]byte(nil), r.Body...)
		s.f.mu.Lock()
		s.f.asked = append(s.f.asked, own)
		s.f.mu.Unlock()
		reply, ok := transport.Reply{Err: refused(transport.Unsupported)}, true
		if s.f.request != nil {
			reply, ok = s.f.request(s, &own)
		}
		if ok && r.Op != transport.OpRespond {
			s.cfg.Sink.Reply(r.ID, reply)
		}
	}
}

// subscribedAgain replies to the latest subscription once more, and waits for the client.
func (s *fakeSession) subscribedAgain(err error) {
	s.mu.Lock()
	id := s.subscription
	s.mu.Unlock()
	s.cfg.Sink.Reply(id, transport.Reply{Err: err})
	synctest.Wait()
}

// deliver delivers a cloud-to-device message and reports whether it was taken.
func (s *fakeSession) deliver(ref string) bool {
	return s.cfg.Sink.Deliver(&transport.Delivery{Kind: transport.FeatureMessages, Ref: []byte(ref),
		Msg: &transport.Message{ID: ref, Body: []byte("body of " + ref)}})
}

// deliverUnasked delivers a message that no subscription asks for.
func (s *fakeSession) deliverUnasked(ref string) bool {
	return s.cfg.Sink.Deliver(&transport.Delivery{Ref: []byte(ref), Name: []byte("old/" + ref),
		Msg: new(transport.Message)})
}

// deliverOnce is deliver for a message with Once.
func (s *fakeSession) deliverOnce(ref string, again bool) bool {
	return s.cfg.Sink.Deliver(&transport.Delivery{Kind: transport.FeatureMessages, Ref: []byte(ref), Redelivered: again,
		Once: true,
		Msg:  &transport.Message{ID: ref}})
}

// failure returns an error as a transport reports it.
func failure(k transport.Kind, sc transport.Scope) *transport.Error {
	return &transport.Error{Kind: k, Scope: sc, Op: transport.OpRun, Proto: "fake", Err: errors.New("scripted")}
}

func lost(k transport.Kind) *transport.Error    { return failure(k, transport.ScopeConnection) }
func refused(k transport.Kind) *transport.Error { return failure(k, transport.ScopeOperation) }

// failing scripts dials: the given errors in turn, then success.
func failing(errs ...error) func(int, context.Context) error {
	return func(n int, _ context.Context) error {
		if n <= len(errs) {
			return errs[n-1]
		}
		return nil
	}
}

// watch collects statuses with the fake time of each.
type watch struct {
	mu  sync.Mutex
	all []device.Status
}

func (w *watch) add(s device.Status) {
	w.mu.Lock()
	w.all = append(w.all, s)
	w.mu.Unlock()
}

func (w *watch) list() []device.Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]device.Status(nil), w.all...)
}

func (w *watch) reasons() (all []device.Reason) {
	for _, s := range w.list() {
		all = append(all, s.Reason)
	}
	return all
}

// run runs a subtest in fake time.
func run(t *testing.T, name string, f func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { testkit.Bubble(t, f) })
}

// bubble runs a test in fake time.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	testkit.Bubble(t, f)
}

// withFake is bubble with a fake that takes everything.
func withFake(t *testing.T, run func(t *testing.T, f *fake)) {
	t.Helper()
	bubble(t, func(t *testing.T) { run(t, &fake{}) })
}

func creds() *transport.Credentials {
	return &transport.Credentials{Host: "hub.example.test", DeviceID: "dev-1"}
}

// client makes a client over f and closes it at the end of the test. The policies' random draws are
// 0 unless o sets Rand, and its delays have no spread unless o sets one.
func client(t *testing.T, f *fake, o *device.Options) (*device.Client, *watch) {
	t.Helper()
	w := &watch{}
	if o == nil {
		o = &device.Options{}
	}
	own := *o
	if own.OnStatus == nil {
		own.OnStatus = w.add
	}
	if own.Rand == nil {
		own.Rand = func() uint64 { return 0 }
	}
	if own.ReconnectSpread == 0 {
		own.ReconnectSpread = -1
	}
	return made(t, creds(), f, &own), w
}

// made makes a client and closes it at the end of the test.
func made(t *testing.T, creds *transport.Credentials, tr transport.Transport, o *device.Options) *device.Client {
	t.Helper()
	c, err := device.New(creds, tr, o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// opened is client, connected.
func opened(t *testing.T, f *fake, o *device.Options) *device.Client {
	t.Helper()
	c, _ := client(t, f, o)
	open(t, c)
	return c
}

// started is client, started.
func started(t *testing.T, f *fake, o *device.Options) *device.Client {
	t.Helper()
	c, _ := client(t, f, o)
	require.NoError(t, c.Start())
	return c
}

// connected is opened with a fake that takes everything.
func connected(t *testing.T, o *device.Options) (*fake, *device.Client) {
	t.Helper()
	f := &fake{}
	return f, opened(t, f, o)
}

// pending enqueues m and returns its receipt.
func pending(t *testing.T, c *device.Client, m *transport.Message) *device.Receipt {
	t.Helper()
	r := new(device.Receipt)
	require.NoError(t, c.Enqueue(t.Context(), m, r))
	return r
}

// async calls f on another goroutine and returns a channel for its result.
func async(f func() error) <-chan error {
	result := make(chan error, 1)
	go func() { result <- f() }()
	return result
}

// within returns a context of the test that ends after d.
func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// enqueue enqueues the messages with these ids.
func enqueue(t *testing.T, c *device.Client, from, to int) {
	t.Helper()
	for i := from; i <= to; i++ {
		require.NoError(t, c.Enqueue(t.Context(), msg(i), nil))
	}
}

func open(t *testing.T, c *device.Client) {
	t.Helper()
	require.NoError(t, c.Open(t.Context()))
}

func msg(i int) *transport.Message {
	return &transport.Message{ID: strconv.Itoa(i), Body: []byte("x")}
}

func ids(from, to int) (all []string) {
	for i := from; i <= to; i++ {
		all = append(all, strconv.Itoa(i))
	}
	return all
}

// Scripts of dials.

func down(int, context.Context) error { return lost(transport.Network) }

func upOnce(n int, _ context.Context) error {
	if n > 1 {
		return lost(transport.Network)
	}
	return nil
}

func hang(_ int, ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

// Scripts of verdicts.

func hold(int, transport.Item) error { return errHold }

func holdFirst(conn int, _ transport.Item) error {
	if conn == 1 {
		return errHold
	}
	return nil
}

func refuse(k transport.Kind) func(int, transport.Item) error {
	return func(int, transport.Item) error { return refused(k) }
}

func refuseOnce(k transport.Kind) func(int, transport.Item) error {
	over := false
	return func(int, transport.Item) error {
		if over {
			return nil
		}
		over = true
		return refused(k)
	}
}

// Scripts of requests.

func silent(*fakeSession, *transport.Request) (transport.Reply, bool) {
	return transport.Reply{}, false
}

func refusing(k transport.Kind) func(*fakeSession, *transport.Request) (transport.Reply, bool) {
	return func(*fakeSession, *transport.Request) (transport.Reply, bool) {
		return transport.Reply{Err: refused(k)}, true
	}
}

// refusingTwin is a fake that refuses its first n requests and answers the others.
func refusingTwin(n int, k transport.Kind) *fake {
	f := &fake{}
	f.request = func(s *fakeSession, r *transport.Request) (transport.Reply, bool) {
		if len(f.requests()) <= n {
			return transport.Reply{Err: refused(k)}, true
		}
		return answering(s, r)
	}
	return f
}

// Handlers.

func accept(context.Context, *transport.Message) error { return nil }

func ok(context.Context, *device.MethodCall) (int, []byte) { return 200, nil }

// sized returns a message of n bytes.
func sized(id string, n int) *transport.Message {
	return &transport.Message{ID: id, Body: make([]byte, n-len(id))}
}

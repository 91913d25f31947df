package transporttest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/internal/operr"
	"github.com/hubline-iot/hubline/transport"
)

// fault is a way in which the reference transport violates the contract; right is none.
type fault string

const right fault = ""

// refTransport is the reference transport. It has no protocol: its sessions call the hub's methods.
// It is the smallest transport that passes the suite, and the suite must reject it when it has a
// fault.
type refTransport struct {
	hub      *refHub
	fault    fault
	features transport.Features
}

type refHub struct {
	mu       sync.Mutex
	received []Received
	holding  bool
	held     []func()
	refusal  Refusal
	failures int // failed dials
	cuts     int
	sessions map[*refSession]bool
	inbox    []*refDelivery
	twin     refTwin
	calls    []*refCall
}

type refDelivery struct {
	body string
	msg  *transport.Message
	by   *refSession // the session that has it
	sent bool        // delivered before
}

// refSession does all work in Run; the other methods store their input in the fields and wake it.
type refSession struct {
	t    *refTransport
	cfg  *transport.Config
	wake chan struct{} // capacity 1
	dead chan struct{} // closed by Cut

	mu         sync.Mutex
	items      []transport.Item
	batch      []transport.Item // for fault "keeps the batch"
	reqs       []transport.Request
	answered   []uint16
	ended      bool
	silent     bool
	subscribed bool
	waiting    int // unanswered messages
	used       map[uint16]bool
	wanted     transport.Features
	down       []*transport.Delivery // changes and method calls
}

const goodToken, badToken = "SharedAccessSignature good", "SharedAccessSignature bad"

func refCreds(token string) *transport.Credentials {
	return &transport.Credentials{Host: "hub", DeviceID: "dev", Token: func(context.Context) (transport.Token, error) {
		return transport.Token{Text: transport.Hide(token)}, nil
	}}
}

// refLacks is what the reference transport has no place for.
var refLacks = []string{"System.DiagnosticID"}

func newReference(f fault) func(t testing.TB) *Pair {
	return func(testing.TB) *Pair {
		features := transport.FeatureMessages | transport.FeatureMethods | transport.FeatureDesired | transport.FeatureTwin
		if strings.HasPrefix(string(f), "lacking") {
			features = transport.FeatureMessages
		}
		topic := "other/topic"
		if features == transport.FeatureMessages {
			topic = ""
		}
		h := &refHub{sessions: map[*refSession]bool{}, twin: refTwin{map[string]any{}, map[string]any{}, 1, 1}}
		return &Pair{
			Transport: &refTransport{h, f, features}, Creds: refCreds(goodToken), WrongCreds: refCreds(badToken), Hub: h,
			Features: features, MarksResent: true, MarksRedelivered: true, Topic: topic, System: true, Lacks: refLacks,
		}
	}
}

func refError(scope transport.Scope, op transport.Op, k transport.Kind, text string) error {
	return &transport.Error{Kind: k, Scope: scope, Op: op, Proto: "ref", Err: errors.New(text)}
}

func (t *refTransport) Dial(ctx context.Context, cfg *transport.Config) (transport.Session, error) {
	fail := func(k transport.Kind, text string) (transport.Session, error) {
		t.hub.mu.Lock()
		t.hub.failures++
		failures := t.hub.failures
		t.hub.mu.Unlock()
		switch t.fault {
		case "failed dials use something up":
			if failures > 5 {
				k = transport.Unavailable
			}
		case "a failed dial leaves a goroutine":
			go time.Sleep(time.Hour)
		case "a failed dial returns another error type":
			return nil, errors.New(text)
		case "a failed dial has the wrong scope":
			return nil, refError(transport.ScopeOperation, transport.OpDial, k, text)
		case "a failed dial is always a network failure":
			k = transport.Network
		case "a failed dial is always unauthorized":
			k = transport.Unauthorized
		}
		return nil, refError(transport.ScopeConnection, transport.OpDial, k, text)
	}
	token, err := cfg.Creds.NewToken(ctx)
	switch {
	case t.fault == "there is no session after a loss" && t.hub.cut():
		return fail(transport.Network, "used up")
	case ctx.Err() != nil && t.fault != "Dial does not look at its context":
		return fail(transport.Network, ctx.Err().Error())
	case err != nil && t.fault == "the token source's error is lost":
		return fail(transport.ClockUnset, "no token")
	case err != nil:
		e := *transport.Find(err)
		e.Scope, e.Op = transport.ScopeConnection, transport.OpDial
		return nil, &e
	}
	t.hub.mu.Lock()
	refusal := t.hub.refusal
	t.hub.mu.Unlock()
	switch refusal {
	case RefusalUnreachable:
		return fail(transport.Network, "refused")
	case RefusalUnavailable:
		return fail(transport.Unavailable, "not now")
	case RefusalMute:
		<-ctx.Done()
		if t.fault == "Dial ends late" {
			time.Sleep(time.Minute)
		}
		return fail(transport.Network, "nobody answers")
	}
	if token.Text.Reveal() != goodToken && t.fault != "Dial takes all credentials" {
		text := "bad token"
		if t.fault == "errors show the token" {
			text += " " + token.Text.Reveal()
		}
		return fail(transport.Unauthorized, text)
	}
	s := &refSession{t: t, cfg: cfg, wake: make(chan struct{}, 1), dead: make(chan struct{}), used: map[uint16]bool{}}
	t.hub.mu.Lock()
	t.hub.sessions[s] = true
	t.hub.mu.Unlock()
	return s, nil
}

func (s *refSession) Info() transport.Info {
	return transport.Info{MaxSize: transport.MaxMessageSize}
}

func (s *refSession) notify() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *refSession) Send(batch []transport.Item) {
	switch s.t.fault {
	case "Send waits for answers":
		if len(batch) > 1 {
			time.Sleep(time.Second)
		}
	case "a batch arrives in reverse":
		batch = slices.Clone(batch)
		slices.Reverse(batch)
	case "the batch is kept":
		time.AfterFunc(time.Millisecond, func() { // Run may be about to check for work
			s.mu.Lock()
			s.batch = batch
			s.mu.Unlock()
			s.notify()
		})
		return
	case "messages are done as soon as they are sent":
		for _, it := range batch {
			s.cfg.Sink.Done(it.Tag, nil)
		}
		return
	}
	s.mu.Lock()
	ended := s.ended
	if !ended {
		s.items = append(s.items, batch...)
	}
	s.mu.Unlock()
	if ended && s.t.fault == "Send works after the end" {
		s.t.hub.take(s, batch[0])
	}
	s.notify()
}

func (s *refSession) Do(r *transport.Request) {
	s.mu.Lock()
	ended := s.ended
	if !ended {
		s.reqs = append(s.reqs, kept(r))
	}
	s.mu.Unlock()
	if ended && s.t.fault == "Do replies after the end" {
		s.cfg.Sink.Reply(r.ID, transport.Reply{})
	}
	if ended && r.Op == transport.OpRespond && s.t.fault != "late answers vanish" {
		s.cfg.Sink.Reply(r.ID, transport.Reply{Err: refError(transport.ScopeOperation, r.Op, transport.Network, "ended")})
	}
	s.notify()
}

func (s *refSession) Run(ctx context.Context) error {
	err := s.serve(ctx)
	s.mu.Lock()
	s.ended = true
	s.items, s.reqs = nil, nil
	s.mu.Unlock()
	s.t.hub.forget(s)
	switch s.t.fault {
	case "a goroutine is left behind":
		go time.Sleep(time.Hour)
	case "a late goroutine calls the sink":
		go func() { s.cfg.Sink.Done(0, nil) }()
	case "Run returns nil":
		return nil
	}
	return err
}

func (s *refSession) serve(ctx context.Context) error {
	lost := func(k transport.Kind) error {
		scope, op := transport.ScopeConnection, transport.OpRun
		switch s.t.fault {
		case "a loss has the scope of an operation":
			scope = transport.ScopeOperation
		case "a loss is terminal":
			k = transport.Protocol
		case "a loss fails the messages in flight":
			s.cfg.Sink.Done(0, refError(transport.ScopeOperation, transport.OpSend, transport.Network, "lost"))
		case "a loss is not noticed":
			<-time.After(time.Hour)
		case "a loss is another error type":
			return errors.New("lost")
		}
		return refError(scope, op, k, "lost")
	}
	if ctx.Err() != nil && s.t.fault == "a context that ended before is not seen" {
		time.Sleep(3 * time.Second)
	}
	for {
		s.work()
		var quiet <-chan time.Time
		if s.waiting > 0 && s.t.fault != "silence is not noticed" {
			quiet = time.After(10 * time.Minute)
		} else if s.waiting > 0 {
			quiet = time.After(10 * time.Hour)
		}
		select {
		case <-s.wake:
		case <-s.dead:
			return lost(transport.Network)
		case <-quiet:
			return lost(transport.Timeout)
		case <-ctx.Done():
			switch {
			case s.t.fault == "the disconnect takes long":
				time.Sleep(3 * time.Second)
			case s.t.fault == "the disconnect waits for answers" && s.waiting > 0:
				time.Sleep(3 * time.Second)
			case s.t.fault == "the disconnect waits for the network" && s.silent:
				time.Sleep(3 * time.Second)
			}
			return ctx.Err()
		}
	}
}

// work does all pending work.
func (s *refSession) work() {
	s.mu.Lock()
	items, reqs, answered := append(s.items, s.batch...), s.reqs, s.answered
	s.items, s.reqs, s.answered, s.batch = nil, nil, nil, nil
	silent := s.silent
	s.mu.Unlock()
	for _, tag := range answered {
		s.waiting--
		if s.used[tag] && s.t.fault == "a tag works once" {
			continue
		}
		s.used[tag] = true
		s.cfg.Sink.Done(tag, nil)
		if s.t.fault == "Done comes twice" {
			s.cfg.Sink.Done(tag, nil)
		}
	}
	for _, it := range items {
		if it.Msg == nil {
			continue
		}
		switch size := it.Msg.Size(); {
		case size > transport.MaxMessageSize && s.t.fault == "too large goes unanswered":
			continue
		case size > transport.MaxMessageSize && s.t.fault == "too large has the wrong scope":
			s.cfg.Sink.Done(it.Tag, refError(transport.ScopeConnection, transport.OpSend, transport.TooLarge, ""))
			continue
		case it.Msg.Topic != "" && s.t.features == transport.FeatureMessages && s.t.fault != "lacking topics are ignored":
			s.cfg.Sink.Done(it.Tag, refError(transport.ScopeOperation, transport.OpSend, transport.Unsupported, "no topics"))
			continue
		case it.Msg.System != nil && it.Msg.System.DiagnosticID != "" && s.t.fault == "a refusal does not name the field":
			s.cfg.Sink.Done(it.Tag, refError(transport.ScopeOperation, transport.OpSend, transport.Unsupported, "a field"))
			continue
		case it.Msg.System != nil && it.Msg.System.DiagnosticID != "" && s.t.fault != "fields without a place are ignored":
			s.cfg.Sink.Done(it.Tag, refError(transport.ScopeOperation, transport.OpSend, transport.Unsupported, refLacks[0]))
			continue
		case size > transport.MaxMessageSize:
			s.cfg.Sink.Done(it.Tag, operr.TooLarge(size, len(it.Msg.Body), transport.MaxMessageSize))
			continue
		}
		s.waiting++
		if silent {
			continue
		}
		switch s.t.fault {
		case "properties are lost":
			m := *it.Msg
			m.Properties = nil
			it.Msg = &m
		case "system properties are lost":
			m := *it.Msg
			m.System = nil
			it.Msg = &m
		case "every tenth message is lost":
			if it.Tag%10 == 9 {
				continue
			}
		case "messages arrive twice":
			s.t.hub.take(s, it)
		case "what is sent again is not marked":
			it.Resent = false
		}
		s.t.hub.take(s, it)
	}
	for i := range reqs {
		s.request(&reqs[i])
	}
	if s.subscribed && !silent {
		s.t.hub.serve(s)
	}
	s.passDown()
}

func (s *refSession) request(r *transport.Request) {
	switch {
	case r.Op == transport.OpSettle:
		s.t.hub.settle(s, string(r.Ref), r.Outcome)
	case r.Op == transport.OpSubscribe && r.Want&^s.t.features == 0:
		s.subscribed = s.subscribed || r.Want&transport.FeatureMessages != 0
		s.mu.Lock()
		s.wanted |= r.Want
		s.mu.Unlock()
		if s.t.fault != "subscribing is not replied to" {
			s.cfg.Sink.Reply(r.ID, transport.Reply{})
		}
		if s.t.fault == "subscribing is replied to twice" {
			s.cfg.Sink.Reply(r.ID, transport.Reply{})
		}
	case r.Op == transport.OpRespond:
		s.respond(r)
	case r.Op == transport.OpPing:
	case (r.Op == transport.OpTwinGet || r.Op == transport.OpTwinPatch) && s.t.features&transport.FeatureTwin != 0:
		s.twinRequest(r)
	case s.t.fault == "lacking operations get no reply":
	case s.t.fault == "lacking operations succeed":
		s.cfg.Sink.Reply(r.ID, transport.Reply{Status: 200})
	default:
		s.cfg.Sink.Reply(r.ID, transport.Reply{Err: refError(transport.ScopeOperation, r.Op, transport.Unsupported, "")})
	}
}

// take passes a message to the hub.
func (h *refHub) take(s *refSession, it transport.Item) {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := *it.Msg
	switch s.t.fault {
	case "topics are lost":
		m.Topic = ""
	case "RETAIN is lost":
		m.Retain = false
	case "QoS 0 becomes QoS 1":
		m.AtMostOnce = false
	}
	h.received = append(h.received, Received{m, it.Resent})
	answer := func() {
		s.mu.Lock()
		s.answered = append(s.answered, it.Tag)
		s.mu.Unlock()
		s.notify()
	}
	if h.holding && (!m.AtMostOnce || s.t.fault == "QoS 0 waits for an answer") {
		h.held = append(h.held, answer)
	} else {
		answer()
	}
}

func (h *refHub) forget(s *refSession) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.sessions, s)
	for _, d := range h.inbox {
		if d.by == s {
			d.by = nil
		}
	}
}

// serve delivers to s all messages that no session has.
func (h *refHub) serve(s *refSession) {
	h.mu.Lock()
	var now []refDelivery
	for _, d := range h.inbox {
		if d.by == nil {
			d.by = s
			now = append(now, *d)
			d.sent = true
		}
	}
	h.mu.Unlock()
	if s.t.fault == "deliveries come in reverse" {
		slices.Reverse(now)
	}
	// A message that no subscription asks for, with and without a reference.
	s.cfg.Sink.Deliver(&transport.Delivery{Name: []byte("old"), Ref: []byte("1"), Msg: new(transport.Message)})
	s.cfg.Sink.Deliver(&transport.Delivery{Name: []byte("old"), Msg: new(transport.Message)})
	for _, d := range now {
		msg := d.msg
		if s.t.fault == "system properties of deliveries are lost" {
			msg = &transport.Message{ID: msg.ID, Body: msg.Body}
		}
		took := s.cfg.Sink.Deliver(&transport.Delivery{
			Kind: transport.FeatureMessages, Ref: []byte(d.body), Redelivered: d.sent &&
				s.t.fault != "redelivery is not marked" ||
				s.t.fault == "every delivery is marked", Msg: msg,
		})
		if s.t.fault == "deliveries are accepted at once" || !took && s.t.fault == "what nobody took is accepted" {
			h.settle(s, d.body, transport.OutcomeAccept)
		}
	}
}

func (h *refHub) settle(s *refSession, ref string, o transport.Outcome) {
	switch {
	case s.t.fault == "accepting does nothing":
		return
	case o == transport.OutcomeRelease && s.t.fault != "releasing accepts":
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.inbox = slices.DeleteFunc(h.inbox, func(d *refDelivery) bool { return d.by == s && d.body == ref })
}

func (h *refHub) Received() []Received {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.received)
}

func (h *refHub) HoldAnswers(on bool) {
	h.mu.Lock()
	held := h.held
	h.holding, h.held = on, nil
	h.mu.Unlock()
	for _, answer := range held {
		answer()
	}
}

func (h *refHub) Cut() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cuts++
	for s := range h.sessions {
		close(s.dead)
		delete(h.sessions, s)
	}
}

func (h *refHub) cut() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.cuts > 0
}

func (h *refHub) Silence() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.sessions {
		s.mu.Lock()
		s.silent = true
		s.mu.Unlock()
	}
}

func (h *refHub) Refuse(r Refusal) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refusal = r
}

func (h *refHub) Deliver(body string) { h.DeliverMessage(&transport.Message{Body: []byte(body)}) }

func (h *refHub) Input() string { return "" }

func (h *refHub) DeliverMessage(m *transport.Message) {
	h.mu.Lock()
	h.inbox = append(h.inbox, &refDelivery{body: string(m.Body), msg: m})
	var all []*refSession
	for s := range h.sessions {
		all = append(all, s)
	}
	h.mu.Unlock()
	for _, s := range all {
		s.notify()
	}
}

func (h *refHub) Undelivered() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.inbox)
}

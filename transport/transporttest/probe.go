package transporttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/transport"
)

// window and queue are the configuration of the sessions.
const (
	window = 32
	queue  = 8
)

// waitLimit is how long the suite waits for an expected event, in fake time.
const waitLimit = time.Minute

// probe is a running check.
type probe struct {
	testing.TB
	*Pair
	skipped string
}

// skip ends a check that does not apply.
func (p *probe) skip(why string) {
	p.skipped = why
	p.Skip(why)
}

// session is a session with its Run and its reports.
type session struct {
	p *probe
	transport.Session
	sink   *sink
	ctx    context.Context
	cancel context.CancelFunc
	before int // goroutines before the dial

	ended chan struct{} // closed after Run
	err   error         // of Run, valid after that
	over  time.Time     // when Run returned
}

// Do makes a request, and then reuses it and its memory, as a caller may.
func (s *session) Do(r *transport.Request) {
	lent := new(transport.Request)
	*lent = *r
	lent.Ref, lent.Body = bytes.Clone(r.Ref), bytes.Clone(r.Body)
	s.Session.Do(lent)
	for i := range lent.Ref {
		lent.Ref[i] = 0xff
	}
	for i := range lent.Body {
		lent.Body[i] = 'x'
	}
	*lent = transport.Request{ID: 0xffff, Op: transport.OpPing, Ref: lent.Ref[:0]}
}

// dial makes a session without running it.
func (p *probe) dial() *session {
	p.Helper()
	s, err := p.tryDial()
	if err != nil {
		p.Fatalf("Dial: %v", err)
	}
	return s
}

func (p *probe) tryDial() (*session, error) {
	s := &session{p: p, sink: newSink(p), ended: make(chan struct{})}
	s.before = p.goroutines()
	s.ctx, s.cancel = context.WithCancel(context.Background())
	var err error
	s.Session, err = p.Transport.Dial(s.ctx, p.config(p.Creds, s.sink))
	if err != nil {
		s.cancel()
	}
	return s, err
}

func (p *probe) config(creds *transport.Credentials, k transport.Sink) *transport.Config {
	return &transport.Config{Creds: creds, Window: window, Queue: queue, Sink: k}
}

// start dials and runs a session. The session is ended and checked when the check is over.
func (p *probe) start() *session {
	p.Helper()
	s := p.dial()
	s.run()
	return s
}

func (s *session) run() {
	go func() {
		err := s.Run(s.ctx)
		s.sink.close()
		s.err, s.over = err, time.Now()
		close(s.ended)
	}()
	stopPings := make(chan struct{})
	pinged := make(chan struct{})
	go s.ping(stopPings, pinged)
	s.p.Cleanup(func() {
		close(stopPings)
		<-pinged
		s.end()
	})
}

// ping requests pings as the session's Info asks for.
func (s *session) ping(stop, stopped chan struct{}) {
	defer close(stopped)
	every := s.Info().KeepAlive
	if every <= 0 {
		return
	}
	for {
		select {
		case <-time.After(every):
			s.Do(&transport.Request{Op: transport.OpPing})
		case <-s.ended:
			return
		case <-stop:
			return
		}
	}
}

// end ends a live session, and checks what holds for every ended session.
func (s *session) end() {
	s.p.Helper()
	s.cancel()
	s.awaitEnd(waitLimit)
	if s.err == nil {
		s.p.Errorf("Run returned nil")
	}
	s.p.requireGoroutines(s.before)
	s.sink.report()
}

// awaitEnd waits for the end of Run and checks that the session leaked nothing.
func (s *session) awaitEnd(d time.Duration) {
	s.p.Helper()
	select {
	case <-s.ended:
	case <-time.After(d):
		s.p.Fatalf("Run did not return within %v\n%s", d, s.p.stacks())
	}
}

// requireLoss waits for the end of a session that lost its connection.
func (s *session) requireLoss(d time.Duration) {
	s.p.Helper()
	s.awaitEnd(d)
	e := transport.Find(s.err)
	switch {
	case s.err == nil:
		s.p.Errorf("Run returned nil")
	case e == nil:
		s.p.Errorf("Run returned %T (%v), no *transport.Error", s.err, s.err)
	case e.Scope != transport.ScopeConnection || e.Op != transport.OpRun:
		s.p.Errorf("Run returned scope %v and op %v, want connection and %v: %v", e.Scope, e.Op, transport.OpRun, s.err)
	case !errfilter.Retryable(s.err):
		s.p.Errorf("Run returned what is not worth a retry: %v", s.err)
	}
}

// requireDialError checks the error of a failed dial, which is of one of kinds or, without any, of
// any Kind, and that the dial leaked nothing.
func (p *probe) requireDialError(err error, before int, kinds ...transport.Kind) {
	p.Helper()
	e := transport.Find(err)
	switch {
	case err == nil:
		p.Fatalf("Dial succeeded, want %v", kinds)
	case e == nil:
		p.Fatalf("Dial returned %T (%v), no *transport.Error", err, err)
	case e.Scope != transport.ScopeConnection || e.Op != transport.OpDial:
		p.Errorf("Dial returned scope %v and op %v, want connection and %v: %v", e.Scope, e.Op, transport.OpDial, err)
	}
	for i, k := range kinds {
		if e.Kind == k {
			break
		}
		if i == len(kinds)-1 {
			p.Errorf("Dial returned kind %v, want one of %v: %v", e.Kind, kinds, err)
		}
	}
	p.requireGoroutines(before)
}

// requireGoroutines fails if there are more goroutines than before.
func (p *probe) requireGoroutines(before int) {
	p.Helper()
	if n := p.goroutines(); n > before {
		p.Errorf("%d goroutines were left behind:\n%s", n-before, p.stacks())
	}
}

// send hands messages over, with tags from first on.
func (s *session) send(first int, messages ...*transport.Message) {
	items := make([]transport.Item, len(messages))
	for i, m := range messages {
		items[i] = transport.Item{Tag: uint16(first + i), Msg: m}
	}
	s.sendItems(items)
}

// sendItems hands items over. A session that says that it has encoded them when Send returns gets
// copies, which stand in items, and which are gone then.
func (s *session) sendItems(items []transport.Item) {
	s.sink.fly(items)
	if !s.Info().Encodes {
		s.Send(items)
		return
	}
	copies := make([]transport.Message, len(items))
	for i := range items {
		copies[i] = *items[i].Msg
		copies[i].Body, copies[i].Properties = bytes.Clone(copies[i].Body), slices.Clone(copies[i].Properties)
		items[i].Msg = &copies[i]
	}
	s.Send(items)
	for i := range copies {
		clear(copies[i].Body)
		clear(copies[i].Properties)
		copies[i] = transport.Message{}
	}
}

// numbered makes n messages with the ids and bodies m-first and so on.
func numbered(first, n int) []*transport.Message {
	out := make([]*transport.Message, n)
	for i := range out {
		text := fmt.Sprintf("m-%d", first+i)
		out[i] = &transport.Message{ID: text, Body: []byte(text)}
	}
	return out
}

// eventually waits until ok holds.
func (p *probe) eventually(what string, ok func() bool) {
	p.Helper()
	for waited := time.Duration(0); !ok(); waited += 10 * time.Millisecond {
		if waited > waitLimit {
			p.Fatalf("after %v: %s", waitLimit, what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// awaitDone waits until no message is in flight.
func (s *session) awaitDone() {
	s.p.Helper()
	s.p.eventually("not every message is done", func() bool { return s.sink.inFlightCount() == 0 })
}

// bodies returns the bodies of the messages received by the hub.
func (p *probe) bodies() []string {
	var out []string
	for _, m := range p.Hub.Received() {
		out = append(out, string(m.Body))
	}
	return out
}

// sink is the suite's transport.Sink. It records violations of the contract.
type sink struct {
	p           *probe
	mu          sync.Mutex
	inFlight    map[uint16]bool
	done        map[uint16][]error
	replies     map[uint32][]transport.Reply
	bodies      []string
	messages    []*transport.Message
	refs        [][]byte
	redelivered []bool
	rest        []other
	refuse      bool
	closed      bool
	faults      []string
}

func newSink(p *probe) *sink {
	return &sink{p: p, inFlight: map[uint16]bool{}, done: map[uint16][]error{}, replies: map[uint32][]transport.Reply{}}
}

func (k *sink) fly(items []transport.Item) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, it := range items {
		k.inFlight[it.Tag] = true
	}
}

func (k *sink) inFlightCount() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.inFlight)
}

// close marks the end of Run.
func (k *sink) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
}

func (k *sink) faultLocked(format string, args ...any) {
	k.faults = append(k.faults, fmt.Sprintf(format, args...))
}

// report reports the violations, on the check's own goroutine.
func (k *sink) report() {
	k.p.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, f := range k.faults {
		k.p.Error(f)
	}
	k.faults = nil
}

// enterLocked must be called at the start of each call of the sink.
func (k *sink) enterLocked(call string) {
	if k.closed {
		k.faultLocked("Sink.%s was called after Run had returned", call)
	}
}

// operationLocked checks an error about one operation.
func (k *sink) operationLocked(call string, err error) {
	e := transport.Find(err)
	switch {
	case err == nil || call == "Done" && errors.Is(err, transport.ErrWritten):
	case e == nil:
		k.faultLocked("Sink.%s got %T (%v), no *transport.Error", call, err, err)
	case e.Scope != transport.ScopeOperation:
		k.faultLocked("Sink.%s got an error of scope %v: %v", call, e.Scope, err)
	}
}

func (k *sink) Done(tag uint16, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.enterLocked("Done")
	k.operationLocked("Done", err)
	if !k.inFlight[tag] {
		k.faultLocked("Sink.Done was called for tag %d, which was not in flight", tag)
	}
	delete(k.inFlight, tag)
	k.done[tag] = append(k.done[tag], err)
}

func (k *sink) Reply(id uint32, r transport.Reply) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := transport.Find(r.Err); e == nil || e.Op != transport.OpRespond {
		// The one reply that may come inside a Do after Run's return.
		k.enterLocked("Reply")
	}
	k.operationLocked("Reply", r.Err)
	r.Body = bytes.Clone(r.Body)
	k.replies[id] = append(k.replies[id], r)
}

func (k *sink) Deliver(d *transport.Delivery) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.enterLocked("Deliver")
	switch {
	case d.Kind == 0 && d.Msg != nil:
		return true // no subscription asks for it
	case d.Probe != nil:
		return true
	case d.Msg == nil || d.Kind&k.p.Features == 0:
		k.faultLocked("Sink.Deliver got kind %b, which cannot be subscribed to, or no message", d.Kind)
		return false
	case d.Kind != transport.FeatureMessages:
		k.rest = append(k.rest, other{d.Kind, string(d.Name), bytes.Clone(d.Ref), d.Version, string(d.Msg.Body)})
		return !k.refuse
	}
	k.bodies = append(k.bodies, string(d.Msg.Body))
	m := *d.Msg
	m.Body, m.Properties = bytes.Clone(m.Body), slices.Clone(m.Properties)
	if m.System != nil {
		own := *m.System
		m.System = &own
	}
	k.messages = append(k.messages, &m)
	k.refs = append(k.refs, bytes.Clone(d.Ref))
	k.redelivered = append(k.redelivered, d.Redelivered)
	return !k.refuse
}

// deliveredMessages returns the messages that were delivered so far.
func (k *sink) deliveredMessages() []*transport.Message {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.messages)
}

// delivered returns the bodies and refs so far.
func (k *sink) delivered() ([]string, [][]byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]string(nil), k.bodies...), append([][]byte(nil), k.refs...)
}

// marks returns the Redelivered flags of the deliveries.
func (k *sink) marks() []bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.redelivered)
}

func (k *sink) doneErrors(tag uint16) []error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]error(nil), k.done[tag]...)
}

// ask makes a request and waits for its one reply.
func (s *session) ask(r *transport.Request) transport.Reply {
	s.p.Helper()
	var got []transport.Reply
	s.Do(r)
	s.p.eventually(fmt.Sprintf("no reply to %v", r.Op), func() bool {
		s.sink.mu.Lock()
		defer s.sink.mu.Unlock()
		got = s.sink.replies[r.ID]
		return len(got) > 0
	})
	synctest.Wait()
	if len(got) > 1 {
		s.p.Errorf("%v got %d replies", r.Op, len(got))
	}
	return got[0]
}

var bubbleMark = regexp.MustCompile(`synctest bubble \d+`)

// goroutines returns the number of goroutines of the bubble, without the hub's, once all of them
// wait.
func (p *probe) goroutines() int {
	synctest.Wait()
	return strings.Count(p.stacks(), "goroutine ")
}

// stacks returns the stacks of the goroutines of the bubble, the caller's first, without the hub's.
func (p *probe) stacks() string {
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	all := strings.Split(string(buf), "\n\n")
	mark := bubbleMark.FindString(all[0])
	var out []string
	for i, g := range all {
		first, rest, _ := strings.Cut(g, "\n")
		ours := strings.Contains(first, mark+"]") || strings.Contains(first, mark+",")
		hubs := slices.ContainsFunc(p.HubMarks, func(mark string) bool { return strings.Contains(rest, mark) })
		if ours && (i == 0 || !hubs) {
			out = append(out, first+"\n"+strings.ReplaceAll(rest, "goroutine ", "go "))
		}
	}
	return strings.Join(out, "\n\n")
}

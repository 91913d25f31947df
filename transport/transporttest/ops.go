package transporttest

import (
	"fmt"
	"slices"
	"testing/synctest"
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// allFeatures are the single Features.
var allFeatures = []transport.Features{transport.FeatureMessages, transport.FeatureMethods, transport.FeatureDesired,
	transport.FeatureTwin}

func lackingOpsAreUnsupported(p *probe) {
	s := p.start()
	var requests []*transport.Request
	if p.Features&transport.FeatureTwin == 0 {
		requests = append(requests, &transport.Request{Op: transport.OpTwinGet}, &transport.Request{Op: transport.OpTwinPatch,
			Body: []byte("{}")})
	}
	for _, f := range allFeatures {
		if p.Features&f == 0 {
			requests = append(requests, &transport.Request{Op: transport.OpSubscribe, Want: f | p.Features})
		}
	}
	for i, r := range requests {
		r.ID = uint32(i + 1)
		began := time.Now()
		reply := s.ask(r)
		if transport.KindOf(reply.Err) != transport.Unsupported {
			p.Errorf("%v (%b) was replied to with %v, want unsupported", r.Op, r.Want, reply.Err)
		}
		if took := time.Since(began); took > atOnce {
			p.Errorf("%v was replied to after %v", r.Op, took)
		}
	}
	s.send(0, numbered(0, 1)...)
	s.awaitDone()
}

func subscribeIsReplied(p *probe) {
	s := p.start()
	id := uint32(0)
	subscribe := func(want transport.Features) {
		id++
		if reply := s.ask(&transport.Request{ID: id, Op: transport.OpSubscribe, Want: want}); reply.Err != nil {
			p.Errorf("subscribing to %b: %v", want, reply.Err)
		}
	}
	subscribe(0)
	for _, f := range allFeatures {
		if p.Features&f != 0 {
			subscribe(f)
		}
	}
	subscribe(p.Features) // again, and all together
}

// inbox starts a session that is subscribed to messages.
func (p *probe) inbox() (*session, Inbox) {
	p.Helper()
	in, ok := p.Hub.(Inbox)
	if p.Features&transport.FeatureMessages == 0 || !ok {
		p.skip("the transport or the hub has no cloud-to-device messages")
	}
	s := p.start()
	s.subscribe()
	return s, in
}

func (s *session) subscribe() {
	s.p.Helper()
	if reply := s.ask(&transport.Request{ID: 1000, Op: transport.OpSubscribe,
		Want: transport.FeatureMessages}); reply.Err != nil {
		s.p.Fatalf("subscribing: %v", reply.Err)
	}
}

func deliveriesAreAccepted(p *probe) {
	s, in := p.inbox()
	var want []string
	for i := range queue {
		want = append(want, fmt.Sprintf("down-%d", i))
		in.Deliver(want[i])
	}
	p.eventually("not all messages were delivered",
		func() bool { got, _ := s.sink.delivered(); return len(got) >= len(want) })
	synctest.Wait()
	got, refs := s.sink.delivered()
	if !slices.Equal(got, want) {
		p.Fatalf("delivered %q, want %q", got, want)
	}
	if n := in.Undelivered(); n != len(want) {
		p.Errorf("%d messages count as delivered before they were accepted", len(want)-n)
	}
	for _, ref := range refs {
		s.Do(&transport.Request{Op: transport.OpSettle, Ref: ref, Outcome: transport.OutcomeAccept})
	}
	p.eventually("accepted messages stay at the hub", func() bool { return in.Undelivered() == 0 })
	if got, _ := s.sink.delivered(); len(got) != len(want) {
		p.Errorf("delivered %q, want %q", got, want)
	}
	if slices.Contains(s.sink.marks(), true) {
		p.Errorf("messages are marked as delivered again that were not")
	}
}

// comesAgain checks that a message that was not accepted on s is delivered again, on s or on
// another session.
func (p *probe) comesAgain(s *session, in Inbox, body string) {
	p.Helper()
	if n := in.Undelivered(); n != 1 {
		p.Errorf("%d messages wait at the hub, want 1", n)
	}
	s.sink.mu.Lock()
	s.sink.refuse = false
	again := len(s.sink.bodies) > 1
	s.sink.mu.Unlock()
	if !again {
		s.end()
		s = p.start()
		s.subscribe()
		p.eventually("the message does not come again", func() bool { got, _ := s.sink.delivered(); return len(got) > 0 })
	}
	got, refs := s.sink.delivered()
	if got[len(got)-1] != body {
		p.Errorf("delivered %q, want %q", got, body)
	}
	if marks := s.sink.marks(); p.MarksRedelivered && !marks[len(marks)-1] {
		p.Errorf("a message that was delivered again is not marked")
	}
	s.Do(&transport.Request{Op: transport.OpSettle, Ref: refs[len(refs)-1], Outcome: transport.OutcomeAccept})
	p.eventually("an accepted message stays at the hub", func() bool { return in.Undelivered() == 0 })
}

func releasedComesAgain(p *probe) {
	s, in := p.inbox()
	in.Deliver("give it back")
	p.eventually("the message was not delivered", func() bool { got, _ := s.sink.delivered(); return len(got) > 0 })
	_, refs := s.sink.delivered()
	s.Do(&transport.Request{Op: transport.OpSettle, Ref: refs[0], Outcome: transport.OutcomeRelease})
	time.Sleep(time.Second)
	p.comesAgain(s, in, "give it back")
}

func refusedComesAgain(p *probe) {
	s, in := p.inbox()
	s.sink.mu.Lock()
	s.sink.refuse = true
	s.sink.mu.Unlock()
	in.Deliver("no room")
	p.eventually("the message was not delivered", func() bool { got, _ := s.sink.delivered(); return len(got) > 0 })
	time.Sleep(time.Second)
	p.comesAgain(s, in, "no room")
}

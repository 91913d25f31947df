package transporttest

import (
	"testing/synctest"
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// endLimit is how long Run may take after the end of its context.
const endLimit = time.Second

func lossEndsRun(p *probe) {
	s := p.start()
	s.send(0, numbered(0, 1)...)
	s.awaitDone()
	p.Hub.Cut()
	s.send(1, numbered(1, 1)...) // protocols without a connection notice only then
	s.requireLoss(waitLimit)
}

func lossAnswersNothing(p *probe) {
	s := p.start()
	p.Hub.HoldAnswers(true)
	s.send(0, numbered(0, 5)...)
	time.Sleep(time.Second)
	p.Hub.Cut()
	s.requireLoss(waitLimit)
	synctest.Wait()
	if n := s.sink.inFlightCount(); n != 5 {
		p.Errorf("%d messages got a Done although the hub answered none", 5-n)
	}
}

func silenceEndsRun(p *probe) {
	s := p.start()
	synctest.Wait()
	p.Hub.Silence()
	s.send(0, numbered(0, 1)...)
	s.requireLoss(30 * time.Minute)
	if n := s.sink.inFlightCount(); n != 1 {
		p.Errorf("a message got a Done although the network was silent")
	}
}

func sessionAfterALoss(p *probe) {
	for i := range 5 {
		s := p.start()
		s.send(0, numbered(2*i, 1)...)
		s.awaitDone()
		p.Hub.Cut()
		s.send(1, numbered(2*i+1, 1)...)
		s.requireLoss(waitLimit)
	}
	s := p.start()
	s.send(0, numbered(10, 1)...)
	s.awaitDone()
}

// requireGoodbye ends the session through its context.
func (s *session) requireGoodbye() {
	s.p.Helper()
	began := time.Now()
	s.cancel()
	s.awaitEnd(waitLimit)
	if took := s.over.Sub(began); took > endLimit {
		s.p.Errorf("Run returned %v after its context had ended", took)
	}
	if s.err == nil {
		s.p.Errorf("Run returned nil")
	}
}

func runEndsWhenIdle(p *probe) {
	s := p.start()
	time.Sleep(time.Second)
	s.requireGoodbye()
}

func runEndsInFlight(p *probe) {
	s := p.start()
	p.Hub.HoldAnswers(true)
	s.send(0, numbered(0, window)...)
	time.Sleep(time.Second)
	s.requireGoodbye()
	p.Hub.HoldAnswers(false)
	time.Sleep(time.Second)
	if n := s.sink.inFlightCount(); n != window {
		p.Errorf("%d messages got a Done although the hub answered none", window-n)
	}
}

func runEndsWhenSilent(p *probe) {
	s := p.start()
	synctest.Wait()
	p.Hub.Silence()
	large := numbered(0, 4)
	for _, m := range large {
		m.Body = make([]byte, 100_000) // more than the network's buffers hold
	}
	s.send(0, large...)
	time.Sleep(time.Second)
	s.requireGoodbye()
}

func runEndsAtOnce(p *probe) {
	s := p.dial()
	s.cancel()
	s.run()
	s.requireGoodbye()
}

func nothingAfterTheEnd(p *probe) {
	s := p.start()
	s.requireGoodbye()
	before := p.goroutines()
	m := numbered(0, 3)
	s.Send([]transport.Item{{Tag: 0, Msg: m[0]}, {Tag: 1, Msg: m[1]},
		{Tag: 2, Msg: &transport.Message{Body: make([]byte, 1<<20)}}})
	for op := transport.OpSubscribe; op <= transport.OpSettle; op++ {
		s.Do(&transport.Request{ID: uint32(op), Op: op, Ref: []byte{0, 1}, Want: transport.FeatureMessages})
	}
	time.Sleep(waitLimit)
	p.requireGoroutines(before)
	if got := p.bodies(); len(got) > 0 {
		p.Errorf("the hub got %q after the end", got)
	}
}

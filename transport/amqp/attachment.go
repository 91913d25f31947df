package amqp

import (
	"context"
	"time"

	"github.com/hubline-iot/hubline/internal/amqpclient"
	"github.com/hubline-iot/hubline/transport"
)

// attachment is a receiving link, or a pair of links, that is attached for the first OpSubscribe or
// request, and again whenever it is lost. A goroutine attaches, and ends then.
type attachment struct {
	s *session
	// attach attaches the links. The reading goroutine calls detached when one is lost, perhaps before
	// attach returns.
	attach func(ctx context.Context, on *amqpclient.Session, detached func(error)) (detach func(), err error)
	// Called with session.mu held; report is called without. Each may be nil.
	opened  func() (report func())          // the links are attached
	lost    func() (report func())          // the links are lost
	refused func(err error) (report func()) // the links cannot be attached

	// Guarded by session.mu.
	started, attached bool
	waiting           []*subscription
	life              *life // of the present links
}

// life is that of attached links.
type life struct {
	since  time.Time
	detach func()
	lost   error // why they were lost before attach returned
}

// subscription is an OpSubscribe without a reply yet. Guarded by session.mu.
type subscription struct {
	id   uint32
	left int // links that are not attached yet
	err  error
}

// subscribed notes that one of the links of a subscription is attached, or cannot be, and replies
// after the last one.
func (s *session) subscribed(sub *subscription, err error) {
	s.mu.Lock()
	if sub.err == nil {
		sub.err = err
	}
	sub.left--
	done := sub.left == 0 && !s.over
	s.mu.Unlock()
	if done {
		s.cfg.Sink.Reply(sub.id, transport.Reply{Err: sub.err})
	}
}

// open attaches the links if needed, and then replies to sub.
func (a *attachment) open(sub *subscription) {
	s := a.s
	s.mu.Lock()
	attached := a.attached
	if !attached {
		a.waiting = append(a.waiting, sub)
		a.startLocked()
	}
	s.mu.Unlock()
	if attached {
		s.subscribed(sub, nil)
	}
}

// startLocked attaches the links unless that has begun. session.mu is held.
func (a *attachment) startLocked() {
	if !a.started {
		a.started = true
		a.s.goLocked(func() { a.run(true) })
	}
}

// run attaches the links.
func (a *attachment) run(first bool) {
	s := a.s
	var l *life // of the last try: the loss of an earlier one does not concern it
	err := s.attach(func(ctx context.Context, on *amqpclient.Session) (err error) {
		try := new(life)
		try.detach, err = a.attach(ctx, on, func(err error) { a.detached(try, err) })
		l = try
		return err
	})
	if s.ctx.Err() != nil || s.conn.Gone() {
		return
	}
	if err != nil && !first {
		s.fail(lossOf(err))
		return
	}
	var refusal error
	if err != nil {
		e := lossOf(err)
		refusal = failed(transport.OpSubscribe, e.Kind, e.Err)
	}
	var report func()
	var early error
	s.mu.Lock()
	if refusal == nil {
		l.since, early = time.Now(), l.lost
		a.attached, a.life = true, l
		if a.opened != nil {
			report = a.opened()
		}
	}
	waiting := a.waiting
	a.waiting = nil
	if refusal != nil {
		a.started = false // the next OpSubscribe tries again
		if a.refused != nil {
			report = a.refused(refusal)
		}
	}
	s.mu.Unlock()
	s.conn.Kick()
	for _, sub := range waiting {
		s.subscribed(sub, refusal)
	}
	if report != nil {
		report()
	}
	if early != nil {
		a.detached(l, early)
	}
}

// detached handles the loss of a link, with which the other one of a pair is given up. The reading
// goroutine calls it, and whoever finds that the links are useless.
func (a *attachment) detached(l *life, why error) {
	s := a.s
	if !s.enter() {
		return
	}
	defer s.group.Done()
	s.mu.Lock()
	if a.life != l {
		if l.lost == nil {
			l.lost = why
		}
		s.mu.Unlock()
		return
	}
	a.attached, a.life = false, nil
	var report func()
	if a.lost != nil {
		report = a.lost()
	}
	e := lossOf(why)
	again := time.Since(l.since) >= shortLife && blameOf(e) == amqpclient.BlameNone
	if again {
		s.goLocked(func() { a.run(false) })
	}
	s.mu.Unlock()
	l.detach()
	if report != nil {
		report()
	}
	if !again {
		s.fail(e)
	}
}

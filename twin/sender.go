package twin

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// sender sends the latest answers until the hub has acknowledged them. Its goroutine ends when
// there is nothing to send.
type sender struct {
	to     *reported
	failed func(error)

	mu      sync.Mutex
	pending map[string]any // the latest answers, nil if they are with the goroutine or acknowledged
	news    chan struct{}  // closed when pending is set
	cancel  context.CancelFunc
	ended   chan struct{} // closed when the goroutine has ended; nil: none runs
	closed  bool
}

// backoff is the delay before failed answers are sent again. A call of the client has retried for
// its OperationTimeout before.
var backoff = retrypolicy.ExponentialBackoffWithJitter{
	C: 10 * time.Second, Cmin: 10 * time.Second, Cmax: 10 * time.Minute, Jd: 0.5, Ju: 0.25,
}

// send replaces the pending answers.
func (s *sender) send(ctx context.Context, doc map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.pending = doc
	if s.ended != nil {
		close(s.news)
		s.news = make(chan struct{})
		return
	}
	ctx, s.cancel = context.WithCancel(ctx)
	s.ended, s.news = make(chan struct{}), make(chan struct{})
	go s.run(ctx, s.cancel) // ends when nothing is pending, or with ctx; close joins it
}

// next returns the pending answers and a channel for newer ones. It marks the goroutine ended if
// there are none.
func (s *sender) next(ctx context.Context) (doc map[string]any, news <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	doc, s.pending = s.pending, nil
	if doc == nil || ctx.Err() != nil {
		close(s.ended)
		s.ended = nil
		return nil, nil
	}
	return doc, s.news
}

// restore makes doc pending again unless there are newer answers.
func (s *sender) restore(doc map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending == nil {
		s.pending = doc
	}
}

func (s *sender) run(ctx context.Context, cancel context.CancelFunc) {
	defer cancel()
	retry := 0
	for {
		doc, news := s.next(ctx)
		if doc == nil {
			return
		}
		err := s.to.report(ctx, doc)
		if err == nil {
			retry = 0
			continue
		}
		if ctx.Err() != nil {
			continue // next ends it
		}
		s.failed(err)
		if hopeless(err) {
			continue
		}
		s.restore(doc)
		retry++
		decision := backoff.Decide(retrypolicy.Attempt{Retry: retry, Rand: rand.Uint64()})
		wait(ctx, news, decision.Delay)
	}
}

// hopeless reports whether the hub will not take the same answers later either.
func hopeless(err error) bool {
	for _, kind := range []transport.Kind{transport.Invalid, transport.TooLarge, transport.Unsupported} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// wait waits until the delay is over, newer answers are pending, or ctx ends.
func wait(ctx context.Context, news <-chan struct{}, delay time.Duration) {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-news:
	case <-ctx.Done():
	}
}

// close cancels the goroutine and joins it.
func (s *sender) close() {
	s.mu.Lock()
	s.closed, s.pending = true, nil
	ended := s.ended
	if ended != nil {
		s.cancel()
	}
	s.mu.Unlock()
	if ended != nil {
		<-ended
	}
}

package amqp

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/hubline-iot/hubline/transport"
)

// outLink is a link that sends, with its transfers in flight. One goroutine, the reaper, collects the hub's answers to all of them; another one sends.
//
// The library hands out a receipt for each transfer, which can be waited for, and calls a function for each answer, without saying to what. So the reaper waits for the oldest
// receipt; the function pokes it when there may be news of another one, and counts. Answers may come in any order.
type outLink struct {
	s      *session
	sender *amqp.Sender
	under  *amqp.Session

	arrived atomic.Int64  // answers that the library has told of
	sending atomic.Bool   // a transfer is with the library and not in flights yet, though its answer may be here
	owing   atomic.Bool   // the reaper looked for an answer that may be to that one: it wants to be poked
	news    chan struct{} // capacity 1: arrived has grown, or stopped is set
	stopped atomic.Bool
	ending  atomic.Bool   // the link is gone: the reaper may end when nothing is in flight
	more    chan struct{} // capacity 1: there is one more in flight, or stopped or ending is set
	landed  chan struct{} // capacity 1: there is one less in flight
	over    chan struct{} // closed when the reaper has ended
	err     error         // why the link is gone, nil if it was stopped; valid after over

	unhook func() bool // of the hook that stops the reaper when the session's context ends
	sends  int         // of the sending goroutine

	mu      sync.Mutex // guards flights; held for memory only
	flights []*flight  // in the order of sending
}

// flight is one transfer: a message or a batch.
type flight struct {
	receipt amqp.SendReceipt
	items   []transport.Item
	one     [1]transport.Item // what items is for one message
}

var flightPool = sync.Pool{New: func() any { return new(flight) }}

func newFlight(items []transport.Item) *flight {
	f := flightPool.Get().(*flight)
	f.items = append(f.one[:0], items...)
	return f
}

// free gives f back. Its messages are not ours any more.
func (f *flight) free() {
	*f = flight{}
	flightPool.Put(f)
}

// openOutLink opens the link for telemetry.
func (s *session) openOutLink() (*outLink, error) {
	l := &outLink{
		s: s, news: make(chan struct{}, 1), more: make(chan struct{}, 1), landed: make(chan struct{}, 1), over: make(chan struct{}),
	}
	var err error
	l.under, err = s.attach(func(ctx context.Context, under *amqp.Session) (err error) {
		l.sender, err = under.NewSender(ctx, s.addr.Telemetry, &amqp.SenderOptions{
			Properties: s.opt.linkProperties(),
			OnDeliveryStateChanged: func(amqp.DeliveryState) {
				l.arrived.Add(1)
				poke(l.news)
			},
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	l.unhook = context.AfterFunc(s.ctx, l.halt)
	s.group.Go(l.reap) // the caller is of the group, so it has not ended
	return l, nil
}

// send hands a transfer to the library, with ctx for the wait for credit. On error the hub may have got it all the same.
func (l *outLink) send(ctx context.Context, m *amqp.Message, items []transport.Item) error {
	l.sending.Store(true)
	receipt, err := l.sender.SendWithReceipt(ctx, m, nil)
	if err == nil {
		f := newFlight(items)
		f.receipt = receipt
		l.sends++
		l.mu.Lock()
		l.flights = append(l.flights, f)
		l.mu.Unlock()
		poke(l.more)
	}
	l.sending.Store(false)
	if l.owing.Load() {
		poke(l.news)
	}
	return err
}

// inFlight counts transfers.
func (l *outLink) inFlight() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.flights)
}

// stop ends the reaper, after which nothing is reported any more. The link itself is left as it is.
func (l *outLink) stop() {
	l.unhook()
	l.halt()
	<-l.over
}

// halt tells the reaper to stop.
func (l *outLink) halt() {
	l.stopped.Store(true)
	poke(l.news)
	poke(l.more)
}

// abandon ends the reaper and returns all that was in flight, in the order of sending. From a link that is gone the answers that came before are still taken.
func (l *outLink) abandon(gone bool) []transport.Item {
	if gone {
		l.ending.Store(true)
		poke(l.more)
		<-l.over
	}
	l.stop()
	var items []transport.Item
	for _, f := range l.flights {
		items = append(items, f.items...)
	}
	l.flights = nil
	return items
}

// reap is the reaper.
func (l *outLink) reap() {
	defer close(l.over)
	resolved := int64(0)
	for !l.stopped.Load() {
		f := l.oldest()
		if f == nil {
			if l.ending.Load() {
				return
			}
			<-l.more
			continue
		}
		state, err := f.receipt.Wait(wakeable{l.news})
		switch {
		case err == nil:
			resolved++
			l.land(f, state)
		case err == errNews:
			l.owing.Store(false)
			resolved = l.scan(resolved)
		default:
			l.scan(resolved) // answers that came before the end
			l.err = err
			return
		}
	}
}

func (l *outLink) oldest() *flight {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.flights) == 0 {
		return nil
	}
	return l.flights[0]
}

// passes is how often scan looks: a look misses each answer half of the time.
const passes = 64

// scan looks at all flights until as many are resolved as answers have come. It returns how many are.
func (l *outLink) scan(resolved int64) int64 {
	for !l.stopped.Load() {
		target := l.arrived.Load()
		complete := !l.sending.Load() // flights has all to which those answers are
		for pass := 0; pass < passes && resolved < target && !l.stopped.Load(); pass++ {
			resolved += l.look()
		}
		switch {
		case resolved >= target:
			if resolved >= l.arrived.Load() {
				return resolved
			}
		case complete:
			resolved = target // some were no final states
		case !l.owing.Swap(true) || !l.sending.Load():
			// Once more, now that the sender will poke, or has just ended.
		default:
			return resolved
		}
	}
	return resolved
}

// look takes out the flights whose answers it sees, and counts them.
func (l *outLink) look() (found int64) {
	l.mu.Lock()
	all := append([]*flight(nil), l.flights...)
	l.mu.Unlock()
	for _, f := range all {
		if state, err := f.receipt.Wait(look{}); err == nil {
			found++
			l.land(f, state)
		}
	}
	return found
}

// wakeable is a context that ends a wait when there are news, any number of times.
type wakeable struct{ news chan struct{} }

var errNews = errors.New("there are news")

func (w wakeable) Done() <-chan struct{}           { return w.news }
func (w wakeable) Err() error                      { return errNews }
func (w wakeable) Deadline() (t time.Time, _ bool) { return t, false }
func (w wakeable) Value(any) any                   { return nil }

// look is a context that makes of a wait a look.
type look struct{ wakeable }

var always = func() chan struct{} {
	ch := make(chan struct{})
	close(ch)
	return ch
}()

func (look) Done() <-chan struct{} { return always }

// land takes a flight out and reports its outcome.
func (l *outLink) land(f *flight, state amqp.DeliveryState) {
	l.mu.Lock()
	for i, g := range l.flights {
		if g == f {
			l.flights = append(l.flights[:i], l.flights[i+1:]...)
			break
		}
	}
	l.mu.Unlock()
	if l.stopped.Load() {
		return
	}
	l.s.telemetry.outcome(f.items, state)
	f.free()
	poke(l.landed)
}

package amqp

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/hubline-iot/hubline/transport"
)

// outLink is a link that sends, with its transfers in flight. One goroutine, the reaper, collects
// the hub's answers to all of them; another one sends. The reaper starts with a transfer, and ends
// when there was none for a while.
//
// The library hands out a receipt for each transfer, which can be waited for, and calls a function
// for each answer, without saying to what. So the reaper waits for the oldest receipt; the function
// pokes it when there may be news of another one, and counts. Answers may come in any order.
type outLink struct {
	s      *session
	sender *amqp.Sender
	under  *amqp.Session

	arrived atomic.Int64  // answers that the library has told of
	sending atomic.Bool   // a transfer is with the library and not in fresh yet, though its answer may be here
	owing   atomic.Bool   // the reaper looked for an answer that may be to that one: it wants to be poked
	news    chan struct{} // capacity 1: arrived has grown, or stopped is set
	stopped atomic.Bool
	ending  atomic.Bool   // the link is gone: the reaper may end when nothing is in flight
	more    chan struct{} // capacity 1: there is one more in flight, or stopped or ending is set
	flying  atomic.Int64  // transfers in flight
	landed  chan struct{} // capacity 1: there is one less
	over    chan struct{} // closed when the reaper has met the end of the link
	err     error         // why the link is gone; valid after over

	unhook func() bool // of the hook that stops the reaper when the session's context ends
	sends  int         // of the sending goroutine
	reaper sync.WaitGroup

	// Of the reaper, and of the next one when it has ended.
	flights  []*flight // in the order of sending, from head on
	head     int
	resolved int64 // answers that were seen

	mu      sync.Mutex // guards what follows; held for memory only
	fresh   []*flight  // those that the reaper has not taken over into flights
	reaping bool       // there is a reaper, or was one when the link was lost
}

// flight is one transfer: a message or a batch.
type flight struct {
	exchange // of the connection's window
	receipt  amqp.SendReceipt
	items    []transport.Item
}

var flightPool = sync.Pool{New: func() any { return new(flight) }}

func newFlight(items []transport.Item) *flight {
	f := flightPool.Get().(*flight)
	f.items = append(f.items, items...)
	return f
}

// free gives f back. Its messages are not ours any more, and it is not in the window.
func (f *flight) free() {
	clear(f.items)
	f.exchange, f.receipt, f.items = exchange{}, amqp.SendReceipt{}, f.items[:0]
	flightPool.Put(f)
}

// openOutLink opens the link for telemetry.
func (s *session) openOutLink() (*outLink, error) {
	l := &outLink{
		s: s, news: make(chan struct{}, 1), more: make(chan struct{}, 1), landed: make(chan struct{}, 1),
		over: make(chan struct{}),
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
	l.unhook = context.AfterFunc(s.ctx, func() {
		l.halt()
		letGo(l.sender)
	})
	return l, nil
}

// letGo has the library let go of who sends on a link whose session ends. When it could not write,
// it waits for the link, which may be gone by then, or for this (go-amqp 1.7, Sender.send).
func letGo(link *amqp.Sender) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = link.Close(ctx)
}

// send hands a transfer to the library, with ctx for the wait for credit. f has a place in the
// window. On error it loses it, and the hub may have got the transfer all the same.
func (l *outLink) send(ctx context.Context, m *amqp.Message, f *flight) error {
	l.sending.Store(true)
	receipt, err := l.sender.SendWithReceipt(ctx, m, nil)
	if err != nil {
		l.s.conn.window.drop(&f.exchange)
		f.free()
	} else {
		l.s.conn.window.wrote(&f.exchange)
		f.receipt = receipt
		l.sends++
		l.flying.Add(1)
		l.mu.Lock()
		l.fresh = append(l.fresh, f)
		start := !l.reaping
		l.reaping = true
		l.mu.Unlock()
		if start {
			l.reaper.Add(1)
			l.s.group.Go(l.reap) // the caller is of the group, so it has not ended
		} else {
			poke(l.more)
		}
	}
	l.sending.Store(false)
	if l.owing.Load() {
		poke(l.news)
	}
	return err
}

// inFlight counts transfers.
func (l *outLink) inFlight() int64 { return l.flying.Load() }

// stop ends the reaper, after which nothing is reported any more. The link itself is left as it is.
func (l *outLink) stop() {
	l.unhook()
	l.halt()
	l.reaper.Wait()
}

// halt tells the reaper to stop.
func (l *outLink) halt() {
	l.stopped.Store(true)
	poke(l.news)
	poke(l.more)
}

// abandon ends the reaper and returns all that was in flight, in the order of sending. From a link
// that is gone the answers that came before are still taken.
func (l *outLink) abandon(gone bool) []transport.Item {
	if gone {
		l.ending.Store(true)
		poke(l.more)
		l.reaper.Wait()
	}
	l.stop()
	l.gather()
	var items []transport.Item
	for _, f := range l.flights[l.head:] {
		l.s.conn.window.drop(&f.exchange)
		items = append(items, f.items...)
	}
	l.flights, l.head = nil, 0
	return items
}

// reap is the reaper.
func (l *outLink) reap() {
	defer l.reaper.Done()
	idle := newLinger()
	defer idle.Stop()
	for !l.stopped.Load() {
		f := l.oldest()
		if f == nil {
			if l.ending.Load() || !l.rest(&idle) {
				return
			}
			continue
		}
		state, err := f.receipt.Wait(wakeable{l.news})
		switch {
		case err == nil:
			l.land(l.head, state)
		case err == errNews:
			l.owing.Store(false)
			l.scan()
		default:
			l.scan() // answers that came before the end
			l.err = err
			close(l.over)
			return
		}
	}
}

// rest waits until there is something in flight. False: there was nothing for so long that the
// reaper has retired.
func (l *outLink) rest(idle *linger) bool {
	select {
	case <-l.more:
		idle.used = true
	case <-idle.C:
		l.mu.Lock()
		defer l.mu.Unlock()
		if idle.expired() && len(l.fresh) == 0 {
			l.flights, l.head, l.fresh = nil, 0, nil
			l.reaping = false
			return false
		}
	}
	return true
}

// oldest is the transfer that was sent first of those in flight, nil if there is none.
func (l *outLink) oldest() *flight {
	if l.head == len(l.flights) {
		l.gather()
	}
	if l.head == len(l.flights) {
		return nil
	}
	return l.flights[l.head]
}

// gather takes over what was sent since.
func (l *outLink) gather() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.flights)+len(l.fresh) > cap(l.flights) {
		l.flights, l.head = slices.Delete(l.flights, 0, l.head), 0
	}
	l.flights = append(l.flights, l.fresh...)
	clear(l.fresh)
	l.fresh = l.fresh[:0]
}

const (
	// passes is how often scan looks at all flights: a look misses each answer half of the time.
	passes = 64
	// looks is how often it looks at the oldest, which is the one that is answered, if the hub does
	// that in order.
	looks = 8
)

// scan looks at the flights until as many are resolved as answers have come.
func (l *outLink) scan() {
	for !l.stopped.Load() {
		target := l.arrived.Load()
		complete := !l.sending.Load() // flights will have all to which those answers are
		l.gather()
		for pass := 0; pass < passes && l.resolved < target && !l.stopped.Load(); pass++ {
			l.look(target)
		}
		switch {
		case l.resolved >= target:
			if l.resolved >= l.arrived.Load() {
				return
			}
		case complete:
			l.resolved = target // some were no final states
		case !l.owing.Swap(true) || !l.sending.Load():
			// Once more, now that the sender will poke, or has just ended.
		default:
			return
		}
	}
}

// look takes out flights whose answers it sees, until target are resolved.
func (l *outLink) look(target int64) {
	for i := l.head; i < len(l.flights) && l.resolved < target && !l.stopped.Load(); {
		n := 1
		if i == l.head {
			n = looks
		}
		state, seen := l.flights[i].look(n)
		if !seen {
			i++
			continue
		}
		l.land(i, state) // what is at i now, or the head, is next
		i = max(i, l.head)
	}
}

// look looks for an answer, n times at most.
func (f *flight) look(n int) (amqp.DeliveryState, bool) {
	for range n {
		if state, err := f.receipt.Wait(look{}); err == nil {
			return state, true
		}
	}
	return nil, false
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
func (l *outLink) land(i int, state amqp.DeliveryState) {
	if l.stopped.Load() {
		return // it stays for abandon
	}
	f := l.flights[i]
	if i == l.head {
		l.flights[i] = nil
		l.head++
	} else {
		l.flights = slices.Delete(l.flights, i, i+1)
	}
	l.resolved++
	l.s.conn.window.answered(&f.exchange)
	l.s.telemetry.outcome(f.items, state)
	f.free()
	l.flying.Add(-1)
	poke(l.landed)
}

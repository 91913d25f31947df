package amqp

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/hubline-iot/hubline/transport"
)

// outLink is the sending link for telemetry, with its unsettled transfers.
//
// The goroutine of telemetry sends. Another goroutine, the reaper, waits for the outcome of the
// oldest transfer, reports it and continues with the next one. Hubs settle the transfers of a link
// in the order of sending, so the next outcome has nearly always arrived. An outcome that arrives
// out of order is reported when all transfers before it are settled, when the oldest one is late
// (lateAfter), or at the end of the link or session. The reaper starts with a transfer, and ends
// after a time without unsettled transfers.
type outLink struct {
	s       *session
	sender  *amqp.Sender
	session *amqp.Session

	ctx    context.Context // ends with the device's session, or when the reaper must stop
	cancel context.CancelFunc
	unhook func() bool // removes the function that unblocks the sender at the end of the device's session
	sends  int         // transfers that were sent; owned by the sending goroutine

	sent    chan struct{} // capacity 1: one more transfer is unsettled, or closing is set
	settled chan struct{} // capacity 1: one transfer less is unsettled
	ended   chan struct{} // closed when the reaper has seen the end of the link
	err     error         // why the link ended; valid after ended
	reaper  sync.WaitGroup

	mu          sync.Mutex // guards the fields below; never held during I/O
	first, last *transfer  // unsettled, the oldest first
	unsettled   int        // their number
	reaping     bool       // a reaper exists, or existed when the link ended
	closing     bool       // the link is lost: the reaper ends when nothing is unsettled
}

// transfer is a message or a batch that was sent.
type transfer struct {
	exchange      // of the connection's window
	receipt       amqp.SendReceipt
	items         []transport.Item
	before, after *transfer // of the link, in the order of sending
}

var transferPool = sync.Pool{New: func() any { return new(transfer) }}

func newTransfer(items []transport.Item) *transfer {
	t := transferPool.Get().(*transfer)
	t.items = append(t.items, items...)
	return t
}

// free returns t to its pool. It must not be in the window.
func (t *transfer) free() {
	clear(t.items)
	*t = transfer{items: t.items[:0]}
	transferPool.Put(t)
}

// openOutLink attaches the link for telemetry.
func (s *session) openOutLink() (*outLink, error) {
	l := &outLink{
		s: s, sent: make(chan struct{}, 1), settled: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	var err error
	l.session, err = s.attach(func(ctx context.Context, on *amqp.Session) (err error) {
		l.sender, err = on.NewSender(ctx, s.addr.Telemetry, &amqp.SenderOptions{Properties: s.opt.linkProperties()})
		return err
	})
	if err != nil {
		return nil, err
	}
	l.ctx, l.cancel = context.WithCancel(s.ctx)
	l.unhook = context.AfterFunc(s.ctx, func() { unblockSend(l.sender) })
	return l, nil
}

// unblockSend ends a pending Send on a link whose session ends. A Send that could not write waits
// for the end of the link, which may have passed by then, or for Close (go-amqp 1.7, Sender.send).
func unblockSend(link *amqp.Sender) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = link.Close(ctx)
}

// send passes a transfer to the library; ctx bounds the wait for credit. t has a place in the
// window, which it loses on error. Even with an error the hub may have received the transfer.
func (l *outLink) send(ctx context.Context, m *amqp.Message, t *transfer) error {
	receipt, err := l.sender.SendWithReceipt(ctx, m, nil)
	if err != nil {
		l.s.conn.window.drop(&t.exchange)
		t.free()
		return err
	}
	l.s.conn.window.wrote(&t.exchange)
	t.receipt = receipt
	l.sends++
	l.mu.Lock()
	if t.before = l.last; t.before == nil {
		l.first = t
	} else {
		t.before.after = t
	}
	l.last = t
	l.unsettled++
	start := !l.reaping
	l.reaping = true
	l.mu.Unlock()
	if start {
		l.reaper.Add(1)
		l.s.group.Go(l.reap) // the caller belongs to the group, so the group has not ended
	} else {
		poke(l.sent)
	}
	return nil
}

// inFlight returns the number of unsettled transfers.
func (l *outLink) inFlight() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unsettled
}

// stop ends the reaper; nothing is reported afterwards. It does not detach the link.
func (l *outLink) stop() {
	l.unhook()
	l.cancel()
	l.reaper.Wait()
}

// abandon ends the reaper and returns the unsettled messages in the order of sending. gone: the
// link has ended, and outcomes that arrived before are still reported.
func (l *outLink) abandon(gone bool) []transport.Item {
	if gone {
		l.mu.Lock()
		l.closing = true
		l.mu.Unlock()
		poke(l.sent)
		l.reaper.Wait()
	}
	l.stop()
	l.mu.Lock()
	t := l.first
	l.first, l.last, l.unsettled = nil, nil, 0
	l.mu.Unlock()
	var items []transport.Item
	for ; t != nil; t = t.after {
		l.s.conn.window.drop(&t.exchange)
		items = append(items, t.items...)
	}
	return items
}

// lateAfter is for how long the oldest transfer is unsettled, at least, before the reaper looks at
// the outcomes of the others: their bytes must not fill the window of a shared connection.
const lateAfter = time.Second

// reap is the reaper.
func (l *outLink) reap() {
	defer l.reaper.Done()
	idle := newLinger()
	defer idle.Stop()
	var late *transfer // the oldest one a second ago
	for l.reapFor(&idle, &late) {
	}
}

// reapFor reaps for lateAfter. It returns false when the reaper must end.
func (l *outLink) reapFor(idle *linger, late **transfer) bool {
	look, stop := context.WithTimeout(l.ctx, lateAfter)
	defer stop()
	for {
		t := l.oldest()
		if t == nil {
			if !l.rest(idle) {
				return false
			}
			continue
		}
		state, err := t.receipt.Wait(look)
		switch {
		case err == nil:
			l.resolve(t, state)
		case l.ctx.Err() != nil:
			l.resolveArrived(l.ctx) // abandon returns the others
			return false
		case look.Err() != nil:
			if t == *late {
				l.resolveArrived(look)
			}
			*late = t
			return true
		default: // the link has ended
			l.resolveArrived(look)
			l.err = err
			close(l.ended)
			return false
		}
	}
}

// resolveArrived reports the outcomes that have arrived. The link or ctx has ended.
func (l *outLink) resolveArrived(ctx context.Context) {
	for t := l.oldest(); t != nil; {
		after := l.next(t)
		if state, ok := t.arrived(ctx); ok {
			l.resolve(t, state)
		}
		t = after
	}
}

// arrived returns the outcome of a transfer, if there is one. The link or ctx has ended. Wait
// chooses at random between an outcome and such an end, so arrived calls it 32 times. An outcome is
// missed, and the transfer sent twice, less than once in a thousand million.
func (t *transfer) arrived(ctx context.Context) (amqp.DeliveryState, bool) {
	for range 32 {
		state, err := t.receipt.Wait(ctx)
		if err == nil {
			return state, true
		}
		if !errors.Is(err, ctx.Err()) {
			ctx = context.Background() // the link has ended; two ends would halve the chance
		}
	}
	return nil, false
}

// rest waits for an unsettled transfer. It returns false when the reaper must end.
func (l *outLink) rest(idle *linger) bool {
	select {
	case <-l.sent:
		idle.used = true
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.first != nil || !l.closing
	case <-idle.C:
		l.mu.Lock()
		defer l.mu.Unlock()
		l.reaping = !idle.expired() || l.first != nil
		return l.reaping
	case <-l.ctx.Done():
		return false
	}
}

func (l *outLink) oldest() *transfer {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.first
}

func (l *outLink) next(t *transfer) *transfer {
	l.mu.Lock()
	defer l.mu.Unlock()
	return t.after
}

// resolve reports the outcome of a transfer. The transfer counts as in flight until then.
func (l *outLink) resolve(t *transfer, state amqp.DeliveryState) {
	l.s.conn.window.answered(&t.exchange)
	l.s.telemetry.outcome(t.items, state)
	l.mu.Lock()
	if t.before == nil {
		l.first = t.after
	} else {
		t.before.after = t.after
	}
	if t.after == nil {
		l.last = t.before
	} else {
		t.after.before = t.before
	}
	l.unsettled--
	l.mu.Unlock()
	t.free()
	poke(l.settled)
}

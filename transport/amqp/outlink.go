package amqp

import (
	"context"
	"errors"
	"time"

	"github.com/hubline-iot/hubline/internal/amqpclient"
	"github.com/hubline-iot/hubline/internal/operr"
	"github.com/hubline-iot/hubline/transport"
)

// outLink is the sending link for telemetry, with its unsettled transfers.
type outLink struct {
	sender      *amqpclient.Sender
	sends       int       // transfers that were sent
	first, last *transfer // unsettled, the oldest first
	unsettled   int       // their number
	lost        error     // why it ended before it was telemetry.link
	awaited     bool      // a message waited for it
}

// attachLocked attaches the link, on a goroutine that ends then. session.mu is held.
func (t *telemetry) attachLocked() {
	if !t.attaching {
		t.attaching = true
		t.s.goLocked(t.attach)
	}
}

func (t *telemetry) attach() {
	l, err := t.open()
	s := t.s
	s.mu.Lock()
	t.attaching = false
	switch {
	case s.over:
	case err == nil:
		t.link, l.awaited = l, !t.backlog.empty()
		if err = l.lost; err == nil {
			t.pumpLocked()
		}
	case s.ctx.Err() == nil && !s.conn.Gone():
		s.fail(lossOf(err))
	}
	report := t.reportsLocked()
	s.mu.Unlock()
	report()
	if l != nil && l.lost != nil {
		t.ended(l, l.lost)
	}
	s.conn.Kick()
}

// open attaches the link.
func (t *telemetry) open() (*outLink, error) {
	var l *outLink // of the last try: the loss of an earlier one does not concern it
	err := t.s.attach(func(ctx context.Context, on *amqpclient.Session) (err error) {
		try := new(outLink)
		try.sender, err = on.NewSender(ctx, &amqpclient.SenderOptions{Credited: t.wake, LinkOptions: amqpclient.LinkOptions{
			Address: t.s.addr.Telemetry, Properties: t.s.opt.linkProperties(), Detached: func(err error) { t.ended(try, err) },
		}})
		l = try
		return err
	})
	if err != nil {
		return nil, err
	}
	return l, nil
}

var (
	errNoCredit = errors.New("the hub gave the link no credit within Options.CreditTimeout")
	errNoWindow = errors.New("the hub did not open the session's window within Options.CreditTimeout")
)

// waitForCreditLocked bounds the wait for credit or the session's window. session.mu is held.
func (t *telemetry) waitForCreditLocked() {
	switch {
	case t.waits:
		return
	case t.credit == nil:
		t.credit = time.AfterFunc(t.s.opt.CreditTimeout, t.creditTimedOut)
	default:
		t.credit.Reset(t.s.opt.CreditTimeout)
	}
	t.waits = true
}

func (t *telemetry) stopCreditLocked() {
	if t.waits {
		t.waits = false
		t.credit.Stop()
	}
}

// creditTimedOut gives up the link, or without a window the device's session. The timer calls it.
func (t *telemetry) creditTimedOut() {
	s := t.s
	if !s.enter() {
		return
	}
	defer s.group.Done()
	s.mu.Lock()
	l, waited := t.link, t.waits && t.backlog.next != nil
	t.waits = false
	noWindow := t.blocked == amqpclient.NoWindow
	s.mu.Unlock()
	switch {
	case !waited || l == nil:
	case noWindow:
		s.fail(lost(transport.Timeout, errNoWindow))
	default:
		l.sender.Detach()
		t.linkLost(l, errNoCredit)
	}
}

// ended handles the end of a link by the hub. One that was lost while idle is attached again for
// the next message. The reading goroutine calls it.
func (t *telemetry) ended(l *outLink, why error) {
	s := t.s
	if !s.enter() {
		return
	}
	defer s.group.Done()
	s.mu.Lock()
	if t.link != l {
		l.lost = why // it is being attached, or was given up
		s.mu.Unlock()
		return
	}
	if l.unsettled > 0 || l.sends == 0 && !t.backlog.empty() {
		s.mu.Unlock()
		t.linkLost(l, why)
		return
	}
	t.link = nil
	t.stopCreditLocked()
	s.mu.Unlock()
	if e := lossOf(why); blameOf(e) == amqpclient.BlameDevice {
		s.fail(e)
		return
	}
	t.pump()
}

// linkLost handles the loss of the link. It reports the messages in flight, then the queue, so that
// they are sent again in this order. A condition about the device ends the session instead.
//
// The next link is attached at once. If it lasts until the next message and ends with that, the
// message may be the reason, and its error has the loss in its chain.
func (t *telemetry) linkLost(l *outLink, cause error) {
	s := t.s
	why, about := lost(transport.Throttled, cause), amqpclient.BlameNone
	if !errors.Is(cause, errNoCredit) {
		why = lossOf(cause)
		about = blameOf(why)
	}
	s.mu.Lock()
	if t.link != l || s.over {
		s.mu.Unlock()
		return
	}
	inFlight := t.dropLocked()
	if about == amqpclient.BlameDevice {
		s.mu.Unlock()
		s.fail(why)
		return
	}
	if x := t.backlog.next; x != nil {
		s.conn.window.drop(&x.exchange)
	}
	queued := t.backlog.drain()
	e := failed(transport.OpSend, why.Kind, why.Err)
	suspects := len(inFlight)
	if about == amqpclient.BlameMessage && suspects == 1 {
		t.reports = append(t.reports, results{inFlight, e})
		inFlight = nil
	}
	if about == amqpclient.BlameMessage {
		t.backlog.single = max(t.backlog.single, suspects)
	}
	if about != amqpclient.BlameNone || e.Kind == transport.Network {
		e = failed(transport.OpSend, transport.Unavailable, e.Err)
	}
	unknown := *e
	if !l.awaited {
		if about != amqpclient.BlameNone {
			why.Kind = transport.Network // a reason that any of the messages may have caused
		}
		unknown.Err = why
	}
	t.reports = append(t.reports, results{inFlight, operr.OutcomeUnknown(&unknown)}, results{queued, e})
	t.attachLocked()
	report := t.reportsLocked()
	s.mu.Unlock()
	report()
}

// dropLocked gives up the link and returns its unsettled messages, in the order of sending.
// session.mu is held.
func (t *telemetry) dropLocked() (items []transport.Item) {
	l := t.link
	t.link = nil
	t.stopCreditLocked()
	for x := l.first; x != nil; x = x.after {
		t.s.conn.window.drop(&x.exchange)
		items = append(items, x.items...)
	}
	return items
}

package http

import (
	"encoding/binary"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/internal/hubhttp"
	"github.com/hubline-iot/hubline/internal/statuscode"
	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/transport"
)

// refSize is the size of a Delivery's Ref, which holds the message's number.
const refSize = 4

const (
	// lockTime is how long a hub locks a delivered message.
	lockTime = 60 * time.Second
	// abandonDelay is how long a message that the Sink did not take is kept at least before it is
	// abandoned; the hub delivers an abandoned message again at once, and gives it up after ten
	// deliveries.
	abandonDelay = 5 * time.Second
	// minRetryDelay and maxRetryDelay bound the delays between retries of requests that the hub
	// refuses for the moment; the delay doubles.
	minRetryDelay, maxRetryDelay = time.Second, time.Minute
)

// c2d polls for cloud-to-device messages and settles them. Its goroutine starts with the first
// OpSubscribe.
//
// A hub delivers a message again when its lock expired, even if the message still waits behind a
// slow handler in this process. Such a delivery replaces the earlier one with the same sequence
// number and is not reported again: the settlement of the earlier delivery uses the new lock.
type c2d struct {
	s         *session
	requester requester
	wake      chan struct{} // capacity 1: there is work

	// Used by the goroutine only.
	timer        *time.Timer
	nextPoll     time.Time     // time of the next poll
	pollDelay    time.Duration // delay if the last poll was refused or returned a known message; else 0
	lateOutcomes []lateOutcome // settlements that came after the lock expired
	due          []settlement  // settlements to send, or to retry, at their time

	// Guarded by session.mu.
	wanted      bool
	active      bool // polling is on
	pendingSubs []uint32
	lastSub     uint32 // the latest OpSubscribe that was replied to
	refused     bool   // that reply was a refusal
	number      uint32
	unsettled   map[uint32]*lockedMessage
	received    []settlement // settlements not moved to due yet
}

// lockedMessage is an unsettled message.
type lockedMessage struct {
	lock     string
	sequence string // the hub's sequence number; empty: none given
	earlier  int    // deliveries before this one
	since    time.Time
}

// isMessage reports whether an answer has a cloud-to-device message. A web page may have an ETag
// too, but none of the hub's headers.
func isMessage(a *hubhttp.Answer) bool {
	if a.Status != http.StatusOK || lockedMessageOf(a, time.Time{}).lock == "" {
		return false
	}
	for name := range a.Header {
		if strings.HasPrefix(name, "Iothub-") {
			return true
		}
	}
	return false
}

func lockedMessageOf(a *hubhttp.Answer, since time.Time) lockedMessage {
	lock := strings.Trim(strings.TrimPrefix(a.Header.Get("ETag"), "W/"), `"`)
	earlier, _ := strconv.Atoi(a.Header.Get("iothub-deliverycount"))
	return lockedMessage{lock, a.Header.Get("iothub-sequencenumber"), earlier, since}
}

// settlement is a settlement to send to the hub.
type settlement struct {
	lockedMessage
	outcome transport.Outcome
	number  uint32 // of a message that stays in unsettled until it is released; 0: none
	poll    bool   // poll after it, because the hub delivers the message again at once
	at      time.Time
	delay   time.Duration
}

// lateOutcome is the outcome of a message whose lock had expired before its settlement.
type lateOutcome struct {
	sequence string
	outcome  transport.Outcome
}

// subscribe handles OpSubscribe.
func (c *c2d) subscribe(id uint32, want transport.Features) {
	s := c.s
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		return
	}
	c.pendingSubs = append(c.pendingSubs, id)
	if want == 0 {
		c.active = false
		s.mu.Unlock()
		c.replySubscriptions(nil) // also replies to earlier pending subscriptions
		return
	}
	c.active = true
	if !c.wanted {
		c.wanted = true
		if s.running {
			s.group.Go(c.run)
		}
	}
	s.mu.Unlock()
	notify(c.wake)
}

// settle handles OpSettle.
func (c *c2d) settle(r *transport.Request) {
	if len(r.Ref) != refSize {
		return
	}
	c.s.mu.Lock()
	number := binary.BigEndian.Uint32(r.Ref)
	if h := c.unsettled[number]; h != nil && r.Outcome == transport.OutcomeRelease {
		// it stays unsettled meanwhile, so that another delivery of it renews the lock
		c.received = append(c.received, settlement{number: number, outcome: r.Outcome,
			at: times.ReleaseAt(time.Now(), h.since, h.earlier)})
	} else if h != nil {
		delete(c.unsettled, number)
		c.received = append(c.received, settlement{lockedMessage: *h, outcome: r.Outcome})
	}
	c.s.mu.Unlock()
	notify(c.wake)
}

// run sends settlements and polls until the session ends.
func (c *c2d) run() {
	s := c.s
	c.timer = time.NewTimer(0)
	defer c.timer.Stop()
	defer c.requester.close()
	defer c.settleRemaining()
	for {
		next, alive := c.step()
		if !alive {
			return
		}
		if !next.IsZero() {
			c.timer.Reset(time.Until(next))
		} else {
			c.timer.Stop()
		}
		select {
		case <-s.ctx.Done():
			return
		case <-c.wake:
		case <-c.timer.C:
		case <-c.requester.gone():
			if err := c.requester.discard(); err != nil {
				s.fail(lost(err))
				return
			}
		case <-c.requester.unused():
			c.requester.close()
		}
	}
}

// step does all pending work and returns when the next work is scheduled; zero: only after a
// wake-up. alive is false when the session is ending.
func (c *c2d) step() (next time.Time, alive bool) {
	s := c.s
	for s.ctx.Err() == nil {
		s.mu.Lock()
		c.due = append(c.due, c.received...)
		c.received = nil
		room := len(c.unsettled) < max(1, s.cfg.Queue)
		polling, subscribing := c.active && room, len(c.pendingSubs) > 0
		s.mu.Unlock()
		if subscribing && !room {
			c.replySubscriptions(nil) // unsettled messages came by polls, so the subscription works
			continue
		}
		now := time.Now()
		if i := slices.IndexFunc(c.due, func(e settlement) bool { return !now.Before(e.at) }); i >= 0 {
			e := c.due[i]
			c.due = slices.Delete(c.due, i, i+1)
			if !c.do(e) {
				return next, false
			}
			continue
		}
		if polling && (subscribing || !now.Before(c.nextPoll)) {
			if !c.poll() {
				return next, false
			}
			continue
		}
		if polling {
			next = c.nextPoll
		}
		for i := range c.due {
			if next.IsZero() || c.due[i].at.Before(next) {
				next = c.due[i].at
			}
		}
		return next, true
	}
	return next, false
}

// poll polls for a message. It returns false when the session is ending.
func (c *c2d) poll() bool {
	s := c.s
	asked := time.Now()
	q := newRequest(http.MethodGet, s.urls.inbox, s.header(), nil)
	q.OnHead = func(a *hubhttp.Answer) {
		if isMessage(a) { // its body may take longer than the client waits for the subscription
			c.replySubscriptions(nil)
		}
	}
	a, refused, err := s.do(s.settleCtx, &c.requester, q)
	switch {
	case s.ctx.Err() != nil:
		if err == nil && refused == nil && a.Status == http.StatusOK {
			c.keep(lockedMessageOf(a, asked)) // so that settleRemaining abandons it
		}
		return false
	case errors.Is(err, hubhttp.ErrLong) && isMessage(a): // it would come again and again
		c.due = append(c.due, settlement{lockedMessage: lockedMessageOf(a, asked), outcome: transport.OutcomeReject})
		c.pollDelay = nextDelay(c.pollDelay) // the hub may refuse the verdict
		c.nextPoll = time.Now().Add(c.pollDelay)
		return true
	case err != nil:
		s.fail(lost(err))
		return false
	case refused != nil && refused.endsPolls():
		s.fail(refused.connection(transport.OpRun))
		return false
	case refused != nil:
		c.pollDelay = nextDelay(c.pollDelay)
		delay := max(min(refused.after, times.MaxRetryAfter), c.pollDelay)
		var e *transport.Error
		switch refused.About {
		case statuscode.Identity: // a hub without messages for this device may get them
			delay = max(delay, s.opt.PollInterval)
			fallthrough
		case statuscode.Message:
			e = failed(transport.OpSubscribe, transport.Unsupported, refused.cause)
		case statuscode.Fine, statuscode.Moment:
		}
		c.nextPoll = time.Now().Add(delay)
		c.replySubscriptions(e)
		return true
	}
	c.replySubscriptions(nil)
	switch {
	case a.Status != http.StatusOK:
		c.pollDelay, c.nextPoll = 0, time.Now().Add(s.opt.PollInterval)
	case c.deliver(a, asked):
		c.pollDelay, c.nextPoll = 0, time.Time{} // there may be more messages
	default: // the hub repeats a known message: poll with a growing delay
		c.pollDelay = nextDelay(c.pollDelay)
		c.nextPoll = time.Now().Add(c.pollDelay)
	}
	return true
}

// nextDelay returns the delay after this one.
func nextDelay(delay time.Duration) time.Duration {
	return min(max(minRetryDelay, 2*delay), maxRetryDelay)
}

// endsPolls reports whether the refusal of a poll ends the session. Other refusals are about the
// polls alone, so telemetry works.
func (r *refusal) endsPolls() bool {
	return r.About == statuscode.Identity && r.Kind != transport.Unsupported && r.Kind != transport.Unknown
}

// replySubscriptions replies to all pending OpSubscribe, or once more to the latest if the answer
// to that has changed.
func (c *c2d) replySubscriptions(err *transport.Error) {
	s := c.s
	s.mu.Lock()
	pending := c.pendingSubs
	c.pendingSubs = nil
	if len(pending) == 0 && (err != nil) != c.refused {
		pending = []uint32{c.lastSub}
	}
	if len(pending) > 0 {
		c.lastSub, c.refused = pending[len(pending)-1], err != nil
	}
	s.mu.Unlock()
	for _, id := range pending {
		s.reply(id, err)
	}
}

// deliver reports a message to the Sink. It returns false if the message was reported before.
func (c *c2d) deliver(a *hubhttp.Answer, since time.Time) bool {
	s := c.s
	h := lockedMessageOf(a, since)
	if i := slices.IndexFunc(c.lateOutcomes,
		func(v lateOutcome) bool { return h.sequence != "" && v.sequence == h.sequence }); i >= 0 {
		c.due = append(c.due, settlement{lockedMessage: h, outcome: c.lateOutcomes[i].outcome})
		c.lateOutcomes = slices.Delete(c.lateOutcomes, i, i+1)
		return false
	}
	number, known := c.keep(h)
	if known {
		return false
	}
	m := &transport.Message{Body: a.Body}
	readProperties(m, a.Header)
	var ref [refSize]byte
	binary.BigEndian.PutUint32(ref[:], number)
	if !s.cfg.Sink.Deliver(&transport.Delivery{Kind: transport.FeatureMessages, Ref: ref[:], Redelivered: h.earlier > 0,
		Msg: m}) {
		now := time.Now()
		at := times.Later(now.Add(abandonDelay), times.ReleaseAt(now, since, h.earlier))
		c.due = append(c.due, settlement{number: number, outcome: transport.OutcomeRelease, poll: true, at: at})
	}
	return true
}

// keep stores a message so that settle finds it. known reports that an earlier delivery of it is
// still unsettled, or that its settlement is still to be sent: then with the new lock.
func (c *c2d) keep(h lockedMessage) (number uint32, known bool) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	for number, before := range c.unsettled {
		if h.sequence != "" && before.sequence == h.sequence {
			*before = h
			return number, true
		}
	}
	for _, unsent := range [...][]settlement{c.received, c.due} {
		for i := range unsent {
			if h.sequence != "" && unsent[i].sequence == h.sequence {
				unsent[i].lockedMessage = h
				return 0, true
			}
		}
	}
	if c.unsettled == nil {
		c.unsettled = make(map[uint32]*lockedMessage)
	}
	c.number++
	if c.number == 0 {
		c.number = 1
	}
	c.unsettled[c.number] = &h
	return c.number, false
}

// do sends a settlement to the hub. It returns false when the session is ending.
func (c *c2d) do(e settlement) bool {
	s := c.s
	if e.number != 0 {
		s.mu.Lock()
		h := c.unsettled[e.number]
		delete(c.unsettled, e.number)
		s.mu.Unlock()
		if h == nil {
			return true
		}
		e.lockedMessage, e.number = *h, 0
		if e.poll {
			c.nextPoll = time.Time{}
		}
	}
	_, refused, err := s.do(s.settleCtx, &c.requester, c.request(e.lock, e.outcome))
	if refused != nil {
		refused = refused.forSettlement()
	}
	now := time.Now()
	switch {
	case s.ctx.Err() != nil:
		return false
	case err != nil:
		s.fail(lost(err))
		return false
	case refused == nil:
	case refused.About == statuscode.Identity:
		s.fail(refused.connection(transport.OpRun))
		return false
	case refused.About == statuscode.Moment:
		e.delay = nextDelay(e.delay)
		if e.at = now.Add(max(refused.after, e.delay)); e.at.Sub(e.since) < lockTime {
			c.due = append(c.due, e)
			return true
		}
		fallthrough
	default: // the lock is lost: the hub delivers the message again
		c.remember(e)
	}
	return true
}

// forSettlement returns the meaning of a refused settlement. Only refusals of the identity with
// Kind Unauthorized, Forbidden or NotFound end the session. A refused method or an unknown answer
// is taken as being about the settlement; the next poll or message shows whether the session works.
func (r *refusal) forSettlement() *refusal {
	r = r.forLock()
	if r.About != statuscode.Identity || r.Kind == transport.Unauthorized || r.Kind == transport.Forbidden ||
		r.Kind == transport.NotFound {
		return r
	}
	own := *r
	own.About = statuscode.Message
	return &own
}

// remember keeps the outcome for the message's next delivery, and polls for it when the hub has it
// again.
func (c *c2d) remember(e settlement) {
	if e.outcome == transport.OutcomeRelease || e.sequence == "" {
		return
	}
	if len(c.lateOutcomes) >= max(1, c.s.cfg.Queue) {
		c.lateOutcomes = slices.Delete(c.lateOutcomes, 0, 1)
	}
	c.lateOutcomes = append(c.lateOutcomes, lateOutcome{e.sequence, e.outcome})
	again := times.Later(e.since.Add(lockTime), time.Now().Add(nextDelay(c.pollDelay)))
	if again.Before(c.nextPoll) {
		c.nextPoll = again
	}
}

// request returns the request that settles a message.
func (c *c2d) request(lock string, o transport.Outcome) *hubhttp.Request {
	s := c.s
	h := s.header()
	h["If-Match"] = []string{`"` + lock + `"`}
	switch o {
	case transport.OutcomeAccept:
		return newRequest(http.MethodDelete, s.urls.lock(lock, "", ""), h, nil)
	case transport.OutcomeReject:
		return newRequest(http.MethodDelete, s.urls.lock(lock, "", "&reject"), h, nil)
	case transport.OutcomeRelease:
	}
	return newRequest(http.MethodPost, s.urls.lock(lock, "/abandon", ""), h, nil)
}

// settleRemaining sends the remaining settlements and abandons unsettled messages, while settleCtx
// is not done. Only verdicts of a session that was not lost are worth a new connection.
func (c *c2d) settleRemaining() {
	s := c.s
	s.mu.Lock()
	left := append(c.due, c.received...)
	for _, number := range slices.Sorted(maps.Keys(c.unsettled)) { // as they came
		left = append(left, settlement{lockedMessage: *c.unsettled[number], outcome: transport.OutcomeRelease})
	}
	c.unsettled, c.received = nil, nil
	leaving := s.leaving
	s.mu.Unlock()
	for _, e := range left {
		if s.settleCtx.Err() != nil {
			return
		}
		if e.lock != "" && (c.requester.conn != nil || leaving && e.outcome != transport.OutcomeRelease) {
			if _, _, err := s.do(s.settleCtx, &c.requester, c.request(e.lock, e.outcome)); err != nil {
				return
			}
		}
	}
}

// parseTime parses a time in one of the forms that hubs and back ends use. It returns the zero time
// for other forms.
func parseTime(s string) time.Time {
	if t, ok := times.ParseISO(s); ok {
		return t
	}
	if t, err := http.ParseTime(s); err == nil {
		return t.UTC()
	}
	return time.Time{}
}

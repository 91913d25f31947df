package http

import (
	"encoding/binary"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/internal/isotime"
	"github.com/hubline-iot/hubline/internal/retryafter"
	"github.com/hubline-iot/hubline/internal/statuscode"
	"github.com/hubline-iot/hubline/transport"
)

// refSize is the size of a Delivery's Ref: the number under which the message is kept.
const refSize = 4

const (
	// lockTime is how long a hub locks what it gave.
	lockTime = 60 * time.Second
	// declinedFor is how long a message that nobody took is kept before the hub gets it back, which
	// delivers it again at once.
	declinedFor = 5 * time.Second
	// firstPause and lastPause are between tries that the hub does not take at the moment; they
	// double.
	firstPause, lastPause = time.Second, time.Minute
)

// c2d looks for cloud-to-device messages, and settles them. Its goroutine
// begins with the first OpSubscribe.
//
// A hub delivers a message again when its lock was lost, although it may wait in this process
// behind a slow handler. Such a delivery takes the place of the former one, by the hub's sequence
// number, and is not reported again: whoever holds the former one settles it with the lock that
// holds.
type c2d struct {
	s    *session
	lane lane
	wake chan struct{} // capacity 1: there is something to do

	// Of the goroutine.
	timer   *time.Timer
	look    time.Time     // when to ask the hub next
	pause   time.Duration // after the latest look, if that was refused or brought what was known; else 0
	verdict []pastVerdict // of messages whose lock was lost before
	due     []errand      // to be done, or done again, at their time

	// Guarded by session.mu.
	wanted    bool
	active    bool // looks are made
	waiting   []uint32
	number    uint32
	unsettled map[uint32]*held
	errands   []errand // new ones
}

// held is a message that is not settled.
type held struct {
	lock     string
	sequence string // the hub's number of it; empty: it gave none
	since    time.Time
}

func heldOf(a *answer, since time.Time) held {
	lock := strings.Trim(strings.TrimPrefix(a.header.Get("ETag"), "W/"), `"`)
	return held{lock, a.header.Get("iothub-sequencenumber"), since}
}

// errand is a settlement to be told to the hub.
type errand struct {
	held
	outcome transport.Outcome
	number  uint32 // of a message that nobody took and that is unsettled still; 0: of none
	at      time.Time
	pause   time.Duration
}

// pastVerdict is one that came too late.
type pastVerdict struct {
	sequence string
	outcome  transport.Outcome
}

// subscribe deals with OpSubscribe.
func (c *c2d) subscribe(id uint32, want transport.Features) {
	s := c.s
	s.mu.Lock()
	if s.over {
		s.mu.Unlock()
		return
	}
	c.waiting = append(c.waiting, id)
	if want == 0 {
		c.active = false
		s.mu.Unlock()
		c.granted(nil) // those that were not replied to, too
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
	poke(c.wake)
}

// settle deals with OpSettle.
func (c *c2d) settle(r *transport.Request) {
	if len(r.Ref) != refSize {
		return
	}
	c.s.mu.Lock()
	number := binary.BigEndian.Uint32(r.Ref)
	if h := c.unsettled[number]; h != nil {
		delete(c.unsettled, number)
		c.errands = append(c.errands, errand{held: *h, outcome: r.Outcome})
	}
	c.s.mu.Unlock()
	poke(c.wake)
}

// run is the goroutine.
func (c *c2d) run() {
	s := c.s
	c.timer = time.NewTimer(0)
	defer c.timer.Stop()
	defer c.lane.hangUp()
	defer c.leave()
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
		case <-c.lane.gone():
			if err := c.lane.retire(); err != nil {
				s.fail(lost(err))
				return
			}
		case <-c.lane.unused():
			c.lane.hangUp()
		}
	}
}

// step does all that is to be done now, and returns when there will be something; zero: not before
// it is woken. False: the session is at its end.
func (c *c2d) step() (next time.Time, alive bool) {
	s := c.s
	for s.ctx.Err() == nil {
		s.mu.Lock()
		c.due = append(c.due, c.errands...)
		c.errands = nil
		room := len(c.unsettled) < max(1, s.cfg.Queue)
		looking, asked := c.active && room, len(c.waiting) > 0
		s.mu.Unlock()
		if asked && !room {
			c.granted(nil) // what is unsettled came by looks
			continue
		}
		now := time.Now()
		if i := slices.IndexFunc(c.due, func(e errand) bool { return !now.Before(e.at) }); i >= 0 {
			e := c.due[i]
			c.due = slices.Delete(c.due, i, i+1)
			if !c.do(e) {
				return next, false
			}
			continue
		}
		if looking && (asked || !now.Before(c.look)) {
			if !c.ask() {
				return next, false
			}
			continue
		}
		if looking {
			next = c.look
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

// ask looks for a message. False: the session is at its end.
func (c *c2d) ask() bool {
	s := c.s
	asked := time.Now()
	a, refused, err := s.do(s.late, &c.lane, &request{http.MethodGet, s.urls.inbox, s.header(), nil})
	switch {
	case s.ctx.Err() != nil:
		if err == nil && refused == nil && a.status == http.StatusOK {
			c.keep(heldOf(a, asked)) // to be given back
		}
		return false
	case err != nil:
		s.fail(lost(err))
		return false
	case refused != nil && refused.About == statuscode.Identity:
		// A hub that does not give cloud-to-device messages to this device now will not later.
		if !c.granted(refused.operation(transport.OpSubscribe)) {
			s.fail(refused.connection(transport.OpRun))
			return false
		}
		return true
	case refused != nil:
		// also one about this request, which is the same each time and was taken before: telemetry does
		// not end for it
		c.pause = longer(c.pause)
		c.look = time.Now().Add(max(min(refused.after, retryafter.Max), c.pause))
		c.granted(nil)
		return true
	}
	if a.status == http.StatusOK && heldOf(a, asked).lock == "" {
		s.fail(lost(errNoLock))
		return false
	}
	c.granted(nil)
	switch {
	case a.status != http.StatusOK:
		c.pause, c.look = 0, time.Now().Add(s.opt.PollInterval)
	case c.deliver(a, asked):
		c.pause, c.look = 0, time.Time{} // there may be more
	default: // a hub that gives the same again and again does so at its leisure
		c.pause = longer(c.pause)
		c.look = time.Now().Add(c.pause)
	}
	return true
}

var errNoLock = errors.New("the hub's answer has no lock token (ETag), as each cloud-to-device message has")

// longer is the pause after this one.
func longer(pause time.Duration) time.Duration {
	return min(max(firstPause, 2*pause), lastPause)
}

// granted replies to all OpSubscribe, and reports whether there was one. An error ends the looks.
func (c *c2d) granted(err *transport.Error) bool {
	s := c.s
	s.mu.Lock()
	waiting := c.waiting
	c.waiting = nil
	if err != nil {
		c.active = false
	}
	s.mu.Unlock()
	for _, id := range waiting {
		s.reply(id, err)
	}
	return len(waiting) > 0
}

// deliver reports a message. False: it is one that was reported before.
func (c *c2d) deliver(a *answer, since time.Time) bool {
	s := c.s
	h := heldOf(a, since)
	if i := slices.IndexFunc(c.verdict,
		func(v pastVerdict) bool { return h.sequence != "" && v.sequence == h.sequence }); i >= 0 {
		c.due = append(c.due, errand{held: h, outcome: c.verdict[i].outcome})
		c.verdict = slices.Delete(c.verdict, i, i+1)
		return false
	}
	number, known := c.keep(h)
	if known {
		return false
	}
	m, again := inbound(a)
	var ref [refSize]byte
	binary.BigEndian.PutUint32(ref[:], number)
	if !s.cfg.Sink.Deliver(&transport.Delivery{Kind: transport.Messages, Ref: ref[:], Again: again, Msg: m}) {
		c.due = append(c.due, errand{number: number, outcome: transport.Release, at: time.Now().Add(declinedFor)})
	}
	return true
}

// keep puts a message where settle finds it. known says that it was in hand already.
func (c *c2d) keep(h held) (number uint32, known bool) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	for number, before := range c.unsettled {
		if h.sequence != "" && before.sequence == h.sequence {
			*before = h
			return number, true
		}
	}
	if c.unsettled == nil {
		c.unsettled = make(map[uint32]*held)
	}
	c.number++
	if c.number == 0 {
		c.number = 1
	}
	c.unsettled[c.number] = &h
	return c.number, false
}

// do tells the hub what became of a message. False: the session is at its end.
func (c *c2d) do(e errand) bool {
	s := c.s
	if e.number != 0 {
		s.mu.Lock()
		h := c.unsettled[e.number]
		delete(c.unsettled, e.number)
		s.mu.Unlock()
		if h == nil {
			return true
		}
		e.held, e.number = *h, 0
		c.look = time.Time{} // it is there again
	}
	_, refused, err := s.do(s.late, &c.lane, c.request(e.lock, e.outcome))
	if refused != nil {
		refused = refused.ofVerdict()
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
		e.pause = longer(e.pause)
		if e.at = now.Add(max(refused.after, e.pause)); e.at.Sub(e.since) < lockTime {
			c.due = append(c.due, e)
			return true
		}
		fallthrough
	default: // the lock is lost: the message comes again
		c.remember(e)
	}
	return true
}

// ofVerdict is the refusal of a verdict. It ends the session only when it is about who asks: that a
// method is not allowed, or what nobody understands, is about the verdict; the next look or message
// shows whether there is more to it.
func (r *refusal) ofVerdict() *refusal {
	r = r.ofLock()
	if r.About != statuscode.Identity || r.Kind == transport.Unauthorized || r.Kind == transport.Forbidden ||
		r.Kind == transport.NotFound {
		return r
	}
	own := *r
	own.About = statuscode.Message
	return &own
}

// remember keeps the verdict on a message that will come again.
func (c *c2d) remember(e errand) {
	if e.outcome == transport.Release || e.sequence == "" {
		return
	}
	if len(c.verdict) >= max(1, c.s.cfg.Queue) {
		c.verdict = slices.Delete(c.verdict, 0, 1)
	}
	c.verdict = append(c.verdict, pastVerdict{e.sequence, e.outcome})
}

// request settles a message.
func (c *c2d) request(lock string, o transport.Outcome) *request {
	s := c.s
	h := s.header()
	h["If-Match"] = []string{`"` + lock + `"`}
	switch o {
	case transport.Accept:
		return &request{http.MethodDelete, s.urls.lock(lock, "", ""), h, nil}
	case transport.Reject:
		return &request{http.MethodDelete, s.urls.lock(lock, "", "&reject"), h, nil}
	case transport.Release:
	}
	return &request{http.MethodPost, s.urls.lock(lock, "/abandon", ""), h, nil}
}

// leave tells the hub the verdicts that are left, and gives back what is not settled, if there is
// time and somebody to tell.
func (c *c2d) leave() {
	s := c.s
	s.mu.Lock()
	left := append(c.due, c.errands...)
	for _, h := range c.unsettled {
		left = append(left, errand{held: *h, outcome: transport.Release})
	}
	c.unsettled, c.errands = nil, nil
	s.mu.Unlock()
	for _, e := range left {
		if s.late.Err() != nil || c.lane.link == nil { // no connection is made for that
			return
		}
		if e.lock != "" {
			_, _, _ = s.do(s.late, &c.lane, c.request(e.lock, e.outcome))
		}
	}
}

// inbound is a cloud-to-device message as the device gets it. again says that the hub delivered it
// before.
func inbound(a *answer) (m *transport.Message, again bool) {
	m = &transport.Message{
		ID: a.header.Get(headerID), CorrelationID: a.header.Get(headerCorrelation), ContentType: a.header.Get(headerType),
		ContentEncoding: a.header.Get(headerEncoding), Component: a.header.Get(headerSubject),
		Created: moments(a.header.Get(headerCreated)), Expires: moments(a.header.Get(headerExpires)), Body: a.body,
	}
	for name, values := range a.header {
		name = strings.ToLower(name)
		if app, is := strings.CutPrefix(name, headerApp); is && app != "" {
			for _, v := range values {
				m.Properties = append(m.Properties, transport.Property{Name: app, Value: v})
			}
		}
	}
	for _, p := range [...]struct {
		header, name string
	}{{"iothub-userid", "user-id"}, {"iothub-enqueuedtime", "iothub-enqueuedtime"}} {
		if v := a.header.Get(p.header); v != "" {
			m.Properties = append(m.Properties, transport.Property{Name: p.name, Value: v})
		}
	}
	// net/http hands out a map, so the order in which they came is lost. One that is always the same
	// is the next best.
	slices.SortStableFunc(m.Properties, func(a, b transport.Property) int { return strings.Compare(a.Name, b.Name) })
	count, err := strconv.Atoi(a.header.Get("iothub-deliverycount"))
	return m, err == nil && count > 0
}

// moments reads a time in one of the forms in which hubs and back ends write it; the zero time when
// it is in none of them.
func moments(s string) time.Time {
	if t, ok := isotime.Parse(s); ok {
		return t
	}
	if t, err := http.ParseTime(s); err == nil {
		return t.UTC()
	}
	return time.Time{}
}

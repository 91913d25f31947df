package device

import (
	"context"
	"time"

	"github.com/hubline-iot/hubline/internal/callback"
	"github.com/hubline-iot/hubline/internal/jsonscan"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// Desired is a change of the twin's desired properties.
type Desired struct {
	// Version is that of the desired properties after the change.
	Version int64
	// Full: JSON is all of the desired properties, and takes the place of what came before. Otherwise
	// it is a merge patch (RFC 7396), as the hub sent it: a member that is null was removed. A back
	// end that replaces all properties has the hub send the new ones in the same form, so those that
	// it left out are not named; see HandleDesired.
	Full bool
	// JSON is an object, with "$version". It is valid until the handler returns.
	JSON []byte
}

// DesiredHandler handles a change of the desired properties. ctx ends when the client is closed.
type DesiredHandler func(ctx context.Context, d Desired)

// HandleDesired has changes of the twin's desired properties handled by handle, in the order of
// their versions: first all properties as they are, then each change, once. It may be called at any
// time, also before Open. Another call replaces the handler, and the new one begins with all
// properties as they are; nil removes it. Changes that wait for the handler before are not handled.
//
//	After changes that did not
//
// reach the device (it was disconnected, or handle was busy while more than 8 came), all properties
// come as they are by then, with Full set. A twin that cannot be read for that is read again, after
// 10 s at first and 10 minutes at the most (Trace.TwinUnread). What handle gets is never older
// than what it got before.
//
// A hub does not say whether what it sends is a change or all properties (a back end may do
// either), so a property that a back end removed by replacing them all may outlive that at the
// device. Therefore each new connection that follows a change brings all properties again, with
// Full set, though their version may be known; without one before it brings nothing unless
// something has changed. A device for which that is too late reads the twin when it gets a
// change (GetTwin); a back end that removes properties with null is understood at once.
//
// handle is called by one goroutine at a time and may call the client's methods, but Close only in
// a goroutine of its own. A panic is reported to Trace.HandlerPanic and counted; the change is not
// repeated. A client with a handler subscribes before each connection counts as Connected; over a
// transport without twins it becomes Disconnected with Unsupported.
func (c *Client) HandleDesired(handle DesiredHandler) {
	t := c.twinFeature()
	t.mu.Lock()
	if t.changes == nil {
		t.changes = &desired{ctx: newLifetime()}
		if t.ended {
			t.changes.ctx.end()
		}
		t.changes.begin()
	}
	t.changes.handle = handle
	t.changes.afresh()
	t.mu.Unlock()
	c.poke()
}

// desiredQueue is how many changes wait for the handler at the most.
const desiredQueue = 8

// desired keeps the handler in step with the hub. It is part of the twin's monitor.
//
// Notifications may be lost, doubled or late, so versions are counted. The version after the latest
// one is passed on, and an older one is skipped. Any other means that something was missed: then
// the twin is read, until it is as new as every notification seen meanwhile, and passed on as a
// whole.
type desired struct {
	handle  DesiredHandler // nil: none
	ctx     *lifetime      // of the handler; ends with Close
	queue   []Desired
	running bool
	ended   chan struct{} // closed when the handler's goroutine has ended

	latest  int64     // the newest version that was passed on, or waits in the queue
	ever    bool      // one was
	patched bool      // by a change, after which something may be left that was removed
	stale   bool      // something may have been missed: the twin is to be read
	reading bool      // it is being read
	void    bool      // and what comes of it may be older than what was missed
	seen    int64     // the newest version of notifications not passed on since it became stale
	again   time.Time // not to be read before
	unread  int       // so many times it could not be, one after another

	changes, panics, skipped uint64
}

func (d *desired) begin() {
	d.stale, d.seen, d.again, d.unread = true, 0, time.Time{}, 0
}

// afresh begins for another handler.
func (d *desired) afresh() {
	if d.ever && !d.stale {
		d.stale, d.seen, d.again = true, d.latest, time.Time{} // what follows is not older than what came before
	}
	d.ever, d.queue = false, nil
}

// rereadAfter is how long a hub that answers with an older twin than it notified about is given.
const rereadAfter = time.Second

// unreadPause is the delay before a twin is read again that could not be read, when filter and
// policy allow no retry. The cause may pass, and a device must not stay without its properties
// until somebody changes them.
var unreadPause = retrypolicy.ExponentialBackoffWithJitter{
	C: 10 * time.Second, Cmin: 10 * time.Second, Cmax: 10 * time.Minute, Jd: 0.5, Ju: 0.25,
}

// catchUpLocked begins to read the twin if something was missed, and returns when to look again.
// The lock is held.
func (t *twin) catchUpLocked(now time.Time) time.Time {
	d := t.changes
	switch {
	case d.handle == nil || !d.stale || d.reading || len(d.queue) > 0:
		return time.Time{}
	case now.Before(d.again):
		return d.again
	}
	d.reading, d.void = true, false
	t.addLocked(transport.Request{Op: transport.OpTwinGet}, func(r transport.Reply) { t.caughtUpLocked(r) })
	return time.Time{}
}

// caughtUpLocked takes the twin.
func (t *twin) caughtUpLocked(r transport.Reply) {
	d := t.changes
	d.reading = false
	var doc *Twin
	err := r.Err
	if err == nil {
		doc, err = parseTwin(r.Body)
	}
	switch {
	case d.void: // read again at once
		return
	case err != nil:
		d.unread++
		var draw uint64
		_ = callback.Run("Options.Rand", func() { draw = t.c.set.Rand() }) // the lock is held
		d.again = time.Now().Add(unreadPause.Decide(retrypolicy.Attempt{Retry: d.unread, Rand: draw}).Delay)
		if trace := t.c.set.Trace; t.down == nil && trace != nil && trace.TwinUnread != nil {
			_ = callback.Run("Trace.TwinUnread", func() { trace.TwinUnread(err) })
		}
		return
	case doc.DesiredVersion < d.seen:
		d.again = time.Now().Add(rereadAfter)
		return
	}
	d.stale, d.seen, d.unread = false, 0, 0
	if !d.ever || doc.DesiredVersion != d.latest || d.patched {
		t.tellLocked(Desired{Version: doc.DesiredVersion, Full: true, JSON: doc.Desired})
	}
}

// deliver takes a notification.
func (t *twin) deliver(n *transport.Delivery) bool {
	if n.Kind != transport.Desired {
		return false
	}
	t.mu.Lock()
	taken := t.deliverLocked(n)
	t.mu.Unlock()
	return taken
}

func (t *twin) deliverLocked(n *transport.Delivery) bool {
	d := t.changes
	if d == nil || d.handle == nil || n.Msg == nil {
		return false
	}
	version := n.Version
	switch {
	case version <= d.latest && d.ever && version != 0:
		d.skipped++
	case d.stale || version != d.latest+1 || len(d.queue) == desiredQueue || !jsonscan.IsObject(n.Msg.Body):
		// the twin has it as well
		d.stale, d.seen = true, max(d.seen, version)
		if d.unread > 0 { // the hub has it in hand, it seems
			d.again = time.Time{}
		}
		d.void = d.void || version == 0
		t.c.poke()
	default:
		t.tellLocked(Desired{Version: version, JSON: append([]byte(nil), n.Msg.Body...)})
	}
	return true
}

// tellLocked queues a change for the handler.
func (t *twin) tellLocked(change Desired) {
	d := t.changes
	d.queue = append(d.queue, change)
	d.latest, d.ever, d.patched = change.Version, true, !change.Full
	d.changes++
	if !d.running && d.ctx.Err() == nil {
		d.running, d.ended = true, make(chan struct{})
		go t.handle(d.ended)
	}
}

// handle calls the handler until nothing waits, and ends. There is one at a time; tell starts it,
// Close joins it.
func (t *twin) handle(ended chan struct{}) {
	watch(t.handleAll, func(returned bool) {
		if !returned { // the handler ended this goroutine
			d := t.changes
			t.mu.Lock()
			d.panics++
			d.ended = make(chan struct{})
			go t.handle(d.ended)
			t.mu.Unlock()
		}
		close(ended)
	})
}

// handleAll calls the handler until nothing waits.
func (t *twin) handleAll() {
	d := t.changes
	for {
		t.mu.Lock()
		if len(d.queue) == 0 || d.handle == nil || d.ctx.Err() != nil {
			d.running = false
			d.queue = nil
			t.mu.Unlock()
			t.c.poke() // it may be time to catch up
			return
		}
		change, handle := d.queue[0], d.handle
		d.queue = d.queue[1:]
		t.mu.Unlock()
		if protect(t.c.set.Trace, func() { handle(d.ctx, change) }) {
			t.mu.Lock()
			d.panics++
			t.mu.Unlock()
		}
	}
}

func (t *Trace) handlerPanic(v any) {
	if t != nil && t.HandlerPanic != nil {
		_ = callback.Run("Trace.HandlerPanic", func() { t.HandlerPanic(v) })
	}
}

func (t *twin) end() <-chan struct{} {
	t.mu.Lock()
	t.ended = true
	var ended <-chan struct{}
	if d := t.changes; d != nil {
		d.ctx.end()
		if d.running {
			ended = d.ended
		}
	}
	t.mu.Unlock()
	return ended
}

func (t *twin) fill(s *Stats) {
	t.mu.Lock()
	if d := t.changes; d != nil {
		s.DesiredChanges, s.DesiredSkipped = d.changes, d.skipped
		s.HandlerPanics += d.panics
	}
	t.mu.Unlock()
}

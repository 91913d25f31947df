package device

import (
	"context"
	"time"

	"github.com/hubline-iot/hubline/internal/callback"
	"github.com/hubline-iot/hubline/internal/jsonscan"
	"github.com/hubline-iot/hubline/internal/lifetime"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// Desired is a change of the twin's desired properties.
type Desired struct {
	// Version is that of the desired properties after the change.
	Version int64
	// Full: JSON is the complete set of desired properties and replaces what came before. Otherwise
	// JSON is a merge patch (RFC 7396) as the hub sent it: a null member was removed. A hub also sends
	// properties that a back end replaced as a whole in this form, and does not name the ones that
	// were left out; see HandleDesired.
	Full bool
	// JSON is an object, with "$version". It is valid until the handler returns.
	JSON []byte
}

// DesiredHandler handles a change of the desired properties. ctx ends when the client is closed.
type DesiredHandler func(ctx context.Context, d Desired)

// HandleDesired registers handle for changes of the twin's desired properties, which come in the
// order of their versions: first the complete properties, then each change, once. It may be called
// at any time, also before Open. Another call replaces the handler, and the new one begins with the
// complete properties; nil removes it. Changes queued for the previous handler are discarded.
//
// Changes may not reach the device because it was disconnected, or because more than 8 came while
// handle was busy. The complete current properties then follow, with Full set. If reading the twin
// for that fails, it is read again, after 10 s at first and at most 10 minutes (Trace.TwinUnread).
// handle never gets an older version than before, except after a move to another hub (package
// dpstransport): versions begin anew there, and handle begins with the complete properties.
//
// A hub does not mark a notification as a change or as a replacement of all properties. So a
// property that a back end removes by replacing them all may survive on the device. Therefore each
// new connection after a change brings the complete properties again, with Full set, even if their
// version is known. Without a change it brings them only if their version differs. A device that
// needs them earlier reads the twin on each change (GetTwin). A removal with null takes effect at
// once.
//
// One goroutine at a time calls handle. handle may call the client's methods, but Close only in
// another goroutine. A panic is reported to Trace.HandlerPanic and counted; the change is not
// repeated. A client with a handler subscribes before each connection counts as Connected. Over a
// transport that is known to have no twins, HandleDesired fails with Unsupported. Where only the
// peer knows, Status.Err says so, and the connection stays.
func (c *Client) HandleDesired(handle DesiredHandler) error {
	if e := c.lacks(transport.FeatureDesired, transport.OpSubscribe); e != nil && handle != nil {
		return e
	}
	t := c.twinFeature()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.changes == nil {
		t.changes = &desired{ctx: lifetime.New()}
		if t.ended {
			t.changes.ctx.End()
		}
		t.changes.begin()
	}
	t.changes.handle = handle
	t.changes.resetForHandler()
	c.poke()
	return nil
}

// desiredQueue is the maximum number of changes that wait for the handler.
const desiredQueue = 8

// desired keeps the handler up to date with the hub. It is part of the twin's monitor.
//
// Notifications may be lost, duplicated or late, so versions are counted. The version after the
// latest one is passed on, and an older one is skipped. Any other means that something was missed.
// Then the twin is read until it is as new as every notification seen meanwhile, and passed on as a
// whole.
type desired struct {
	handle  DesiredHandler    // nil: none
	ctx     *lifetime.Context // of the handler; ends with Close
	queue   []Desired
	running bool
	ended   chan struct{} // closed when the handler's goroutine has ended

	latest       int64     // the newest version that was passed on or queued
	latestValid  bool      // latest is valid
	patched      bool      // latest came as a change, so removed properties may remain
	stale        bool      // something may have been missed: read the twin
	reading      bool      // a read of the twin is in flight
	readOutdated bool      // and its result may be older than what was missed
	seen         int64     // the newest version notified but not passed on since it became stale
	nextRead     time.Time // the earliest time of the next read
	failedReads  int       // number of failed reads in a row
	rereads      int       // number of reads in a row that were older than seen

	changes, panics, skipped uint64
}

func (d *desired) begin() {
	d.stale, d.seen, d.nextRead, d.failedReads, d.rereads = true, 0, time.Time{}, 0, 0
}

// resetForHandler prepares for another handler.
func (d *desired) resetForHandler() {
	if d.latestValid && !d.stale {
		d.stale, d.seen, d.nextRead = true, d.latest, time.Time{} // next is not older than latest
	}
	d.latestValid, d.queue = false, nil
	d.readOutdated = d.reading // the read may be older than a change that came without a handler
}

const (
	// rereadAfter is the delay before the next read when the hub answers with an older twin than it
	// notified about. It doubles.
	rereadAfter = time.Second
	// maxRereads is the number of reads, within 4 minutes, after which an older twin counts: the hub
	// has no newer one.
	maxRereads = 8
)

// readBackoff is the back-off between failed reads of the twin when filter and policy allow no
// retry. The cause may pass, and a device must not stay without its properties until a back end
// changes them.
var readBackoff = retrypolicy.ExponentialBackoffWithJitter{
	C: 10 * time.Second, Cmin: 10 * time.Second, Cmax: 10 * time.Minute, Jd: 0.5, Ju: 0.25,
}

// catchUpLocked starts a read of the twin if something was missed, and returns when to look again.
func (t *twin) catchUpLocked(now time.Time) time.Time {
	d := t.changes
	switch {
	case d.handle == nil || !d.stale || d.reading || len(d.queue) > 0:
		return time.Time{}
	case now.Before(d.nextRead):
		return d.nextRead
	}
	d.reading, d.readOutdated = true, false
	t.addLocked(transport.Request{Op: transport.OpTwinGet}, func(r transport.Reply) { t.caughtUpLocked(r) })
	return time.Time{}
}

// caughtUpLocked handles the answer to that read.
func (t *twin) caughtUpLocked(r transport.Reply) {
	d := t.changes
	d.reading = false
	var doc *Twin
	err := r.Err
	if err == nil {
		doc, err = parseTwin(r.Body)
	}
	switch {
	case d.readOutdated: // read again at once
		return
	case err != nil:
		d.failedReads++
		var draw uint64
		_ = callback.Run("Options.Rand", func() { draw = t.c.set.Rand() }) // a panic must not leave t.mu locked
		d.nextRead = time.Now().Add(readBackoff.Decide(retrypolicy.Attempt{Retry: d.failedReads, Rand: draw}).Delay)
		if trace := t.c.set.Trace; t.down == nil && trace != nil && trace.TwinUnread != nil {
			_ = callback.Run("Trace.TwinUnread", func() { trace.TwinUnread(err) })
		}
		return
	case doc.DesiredVersion < d.seen && d.rereads < maxRereads:
		d.nextRead = time.Now().Add(rereadAfter << d.rereads)
		d.rereads++
		return
	}
	d.stale, d.seen, d.failedReads, d.rereads = false, 0, 0, 0
	if !d.latestValid || doc.DesiredVersion != d.latest || d.patched {
		t.queueChangeLocked(Desired{Version: doc.DesiredVersion, Full: true, JSON: doc.Desired})
	}
}

// deliver handles a notification.
func (t *twin) deliver(n *transport.Delivery) bool {
	if n.Kind != transport.FeatureDesired {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	d := t.changes
	if d == nil || d.handle == nil || n.Msg == nil {
		return false
	}
	version := n.Version
	switch {
	case version <= d.latest && d.latestValid && version != 0:
		d.skipped++
	case d.stale || version != d.latest+1 || len(d.queue) == desiredQueue || !jsonscan.IsObject(n.Msg.Body):
		// The twin has this change too, so the read returns it.
		d.stale, d.seen = true, max(d.seen, version)
		if d.failedReads > 0 { // the hub evidently has the twin
			d.nextRead = time.Time{}
		}
		d.readOutdated = d.readOutdated || version == 0
		t.c.poke()
	default:
		t.queueChangeLocked(Desired{Version: version, JSON: append([]byte(nil), n.Msg.Body...)})
	}
	return true
}

// queueChangeLocked queues a change for the handler.
func (t *twin) queueChangeLocked(change Desired) {
	d := t.changes
	d.queue = append(d.queue, change)
	d.latest, d.latestValid, d.patched = change.Version, true, !change.Full
	d.changes++
	if !d.running && d.ctx.Err() == nil {
		d.running, d.ended = true, make(chan struct{})
		go t.handle(d.ended)
	}
}

// handle calls the handler until the queue is empty, and ends. One runs at a time;
// queueChangeLocked starts it, Close joins it.
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

// handleAll calls the handler until the queue is empty.
func (t *twin) handleAll() {
	d := t.changes
	for {
		t.mu.Lock()
		if len(d.queue) == 0 || d.handle == nil || d.ctx.Err() != nil {
			d.running = false
			d.queue = nil
			t.mu.Unlock()
			t.c.poke() // a read may be possible again
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
	defer t.mu.Unlock()
	t.ended = true
	var ended <-chan struct{}
	if d := t.changes; d != nil {
		d.ctx.End()
		if d.running {
			ended = d.ended
		}
	}
	return ended
}

func (t *twin) fill(s *Stats) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if d := t.changes; d != nil {
		s.DesiredChanges, s.DesiredSkipped = d.changes, d.skipped
		s.HandlerPanics += d.panics
	}
}

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
	// Full: JSON is the complete set of desired properties and replaces what came before. Otherwise
	// JSON is a merge patch (RFC 7396) as the hub sent it: a null member was removed. A hub also
	// sends properties that a back end replaced as a whole in this form, and does not name the ones
	// that were left out; see HandleDesired.
	Full bool
	// JSON is an object, with "$version". It is valid until the handler returns.
	JSON []byte
}

// DesiredHandler handles a change of the desired properties. ctx ends when the client is closed.
type DesiredHandler func(ctx context.Context, d Desired)

// desiredQueue is the maximum number of changes that wait for the handler.
const desiredQueue = 8

const (
	// rereadAfter is the delay before the next read when the hub answers with an older twin than it
	// notified about. It doubles.
	rereadAfter = time.Second
	// maxRereads is the number of reads, within 4 minutes, after which an older twin counts: the
	// hub has no newer one.
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
	read := transport.Request{Op: transport.OpTwinGet, Want: transport.FeatureDesired, Version: d.held()}
	t.addLocked(read, func(r transport.Reply) { t.caughtUpLocked(r) })
	return time.Time{}
}

// caughtUpLocked handles the answer to that read.
func (t *twin) caughtUpLocked(r transport.Reply) {
	d := t.changes
	d.reading = false
	var doc *Twin
	err := r.Err
	switch {
	case err != nil:
	case len(r.Body) == 0 && r.Version != 0 && r.Version == d.held():
		doc = &Twin{DesiredVersion: r.Version}
	case len(r.Body) == 0 && r.Version != 0 && d.rereads < maxRereads:
		doc = &Twin{DesiredVersion: -1} // pushed before it was known that the twin is another one
	default:
		doc, err = parseTwin(r.Body)
	}
	switch {
	case d.readOutdated: // read again at once
		return
	case err != nil:
		d.failedReads++
		var draw uint64
		_ = callback.Run("Options.Rand", func() { draw = t.set.Rand() }) // a panic must not leave t.mu locked
		d.nextRead = time.Now().Add(readBackoff.Decide(retrypolicy.Attempt{Retry: d.failedReads, Rand: draw}).Delay)
		if trace := t.set.Trace; t.down == nil && trace != nil && trace.TwinUnread != nil {
			_ = callback.Run("Trace.TwinUnread", func() { trace.TwinUnread(err) })
		}
		return
	case doc.DesiredVersion < d.seen && d.rereads < maxRereads:
		d.nextRead = time.Now().Add(rereadAfter << d.rereads)
		d.rereads++
		return
	}
	t.caughtUpToLocked(doc.DesiredVersion, doc.Desired)
}

// caughtUpToLocked passes on all properties, unless the handler has them.
func (t *twin) caughtUpToLocked(version int64, all []byte) {
	d := t.changes
	d.stale, d.seen, d.failedReads, d.rereads = false, 0, 0, 0
	if !d.latestValid || version != d.latest || d.patched {
		t.queueChangeLocked(Desired{Version: version, Full: true, JSON: all})
	}
}

// replacesLocked reports whether pushed properties are as new as all that is known. The first ones
// of a connection may have a lower version than the latest: those of a twin that was made anew.
func (d *desired) replacesLocked(version int64) bool {
	if d.stale {
		return version >= d.seen
	}
	return version > d.latest
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
	case n.Full && d.replacesLocked(version) && len(d.queue) < desiredQueue && jsonscan.IsObject(n.Msg.Body):
		d.readOutdated = d.reading
		t.caughtUpToLocked(version, append([]byte(nil), n.Msg.Body...))
	case n.Full && version < d.latest && !d.stale: // the twin may be another one
		d.stale = true
		t.poke()
	case version <= d.latest && d.latestValid && !d.stale && version != 0:
		d.skipped++
	case d.stale || version != d.latest+1 || len(d.queue) == desiredQueue || !jsonscan.IsObject(n.Msg.Body):
		// The twin has this change too, so the read returns it.
		d.stale, d.seen = true, max(d.seen, version)
		if d.failedReads > 0 { // the hub evidently has the twin
			d.nextRead = time.Time{}
		}
		d.readOutdated = d.readOutdated || version == 0
		t.poke()
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
	callback.Watch(t.handleAll, func(returned bool) {
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
			t.poke() // a read may be possible again
			return
		}
		change, handle := d.queue[0], d.handle
		d.queue = d.queue[1:]
		t.mu.Unlock()
		if callback.Protect(func() { handle(d.ctx, change) }, t.set.Trace.handlerPanic) {
			t.mu.Lock()
			d.panics++
			t.mu.Unlock()
		}
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

package hub

import (
	"errors"
	"time"

	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/internal/files"
	"github.com/hubline-iot/hubline/testbroker/internal/notices"
	"github.com/hubline-iot/hubline/testbroker/internal/telemetry"
)

// Close cuts all connections, stops all listeners and waits for every goroutine of the hub.
func (h *Hub) Close() error {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		<-h.stopped
		return nil
	}
	h.closed = true
	close(h.Done)
	listeners, open := h.listeners, h.connsLocked("")
	h.mu.Unlock()
	h.plug.Stop(ErrClosed)

	var errs []error
	for _, l := range listeners {
		errs = append(errs, l.Close())
	}
	for _, c := range open {
		c.CutFor(ErrClosed) // the broker's own Close waits for the connection's reads
	}
	h.Records.Release()
	h.Wg.Wait()
	for _, q := range h.queuesOf("", Boxes[:]...) {
		q.stop()
	}
	for i := range h.notices {
		h.notices[i].Stop()
	}
	for _, f := range h.Fronts {
		errs = append(errs, f.Shutdown())
	}
	h.Records.End()
	close(h.stopped)
	return errors.Join(errs...)
}

// Reset restores the state of a new hub, except for the registry, the keys and policies, the
// certificates and the ports.
func (h *Hub) Reset() {
	h.mu.Lock()
	if other := h.resetting; other != nil {
		h.mu.Unlock()
		<-other
		return
	}
	through := make(chan struct{})
	h.resetting = through
	open := h.connsLocked("")
	h.mu.Unlock()
	for _, c := range open {
		c.CutFor(ErrReset)
	}
	h.running.Wait() // also for connections that were about to end
	h.plug.Clear()   // it still changes identities and twins, so it ends before all else is cleared

	h.mu.Lock()
	close(h.cleared)
	h.cleared = make(chan struct{})
	h.mu.Unlock()
	h.delayed.Wait() // its effects would be part of the new state
	h.Faults.Clear()
	h.Requests.Clear()
	h.resetGateway()
	h.Telemetry.Clear()
	h.calls.clear()
	h.Files.Clear()
	h.issuer.clear()
	for _, q := range h.queuesOf("", Boxes[:]...) {
		q.stop()
	}
	for i := range h.notices {
		h.notices[i].Clear()
	}
	h.mu.Lock()
	clear(h.queues)
	h.Records.Clear(telemetry.TableMessages, telemetry.TablePartitions,
		tableQueues, tableWaiting, notices.TableFeedback, tableTwins)
	for _, f := range h.Fronts {
		f.Forget("")
	}
	clear(h.twinOf)
	h.removed.clear()
	h.resetting = nil
	h.mu.Unlock()
	close(through)
	h.Records.Saved()
	h.Event(event.Event{Kind: event.HubReset}, nil)
	h.Changed.Wake()
}

// Restore takes the records of an earlier run from the store, and starts the saver. It is called
// once, after the last table was added and before the first connection. The caller closes the hub
// if it fails.
func (h *Hub) Restore() error {
	if err := h.Records.Load(); err != nil || !h.Records.Stores() {
		return err
	}
	for _, q := range h.queuesOf("", Boxes[:]...) {
		q.dispatch() // sets the timer of expiries
	}
	h.Notices(notices.Feedback).Kick()      // the same
	h.Records.Touch(files.TableAccount, "") // the first run has made the key
	h.plug.Changed()
	h.Records.Start()
	return nil
}

// storeFailed cuts all connections and refuses new ones, so that nobody gets an acknowledgement of
// something that is not in the store.
func (h *Hub) storeFailed(err error) {
	h.mu.Lock()
	h.unsaved = true
	open := h.connsLocked("")
	h.mu.Unlock()
	for _, c := range open {
		c.CutFor(err)
	}
	h.Records.Release()
}

// Enter adds the caller, a timer, to the goroutines for which Close waits; false when the hub is
// closed.
func (h *Hub) Enter() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.Wg.Add(1)
	return true
}

// Later calls do after a delay in a goroutine of the hub, unless the hub is closed or reset, or
// done is closed, before. Close and Reset wait for do. Any goroutine may call Later.
func (h *Hub) Later(d time.Duration, done <-chan struct{}, do func()) {
	due := time.NewTimer(d)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || h.resetting != nil {
		due.Stop()
		return
	}
	cleared := h.cleared
	h.Wg.Add(1)
	h.delayed.Add(1)
	go func() {
		defer h.Wg.Done()
		defer h.delayed.Done()
		defer due.Stop()
		select {
		case <-due.C:
			do()
		case <-done:
		case <-cleared:
		case <-h.Done:
		}
	}()
}

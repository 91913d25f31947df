package hub

import "github.com/hubline-iot/hubline/testbroker/internal/files"

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
	h.Notices(Feedback).Kick()              // the same
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

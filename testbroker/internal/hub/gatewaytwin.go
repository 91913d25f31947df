package hub

import "github.com/hubline-iot/hubline/testbroker/internal/document"

// A twinCopy is a gateway's copy of a twin while it is off-line. Guarded by TwinState.mu.
type twinCopy struct {
	desired, reported document.Section
	patched           bool // the reported properties were patched
}

// cutTwinsLocked makes the gateway's copies of all twins, or brings them together with the hub's
// twins. It returns the twins with changes for their listeners.
func (h *Hub) cutTwinsLocked(cut bool) (changed []*TwinState) {
	for _, t := range h.twinOf {
		if cut {
			t.leaveHub()
		} else if h.joinTwin(t) {
			changed = append(changed, t)
		}
		h.touchTwin(t)
	}
	return changed
}

// leaveHub makes the copy.
func (t *TwinState) leaveHub() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.apart = &twinCopy{desired: t.Desired, reported: t.Reported}
}

// joinTwin applies the patches of reported properties, merged into one, to the hub's twin. If the
// hub's desired properties have changed, it adds a change with the difference and returns true.
func (h *Hub) joinTwin(t *TwinState) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.apart
	t.apart = nil
	if c == nil {
		return false
	}
	if c.patched {
		// It fits: the copy fits, and only clients change reported properties.
		patch := document.Difference(t.Reported.Tree, c.reported.Tree)
		if reported, err := t.Reported.Merge(patch, false, h.Now()); err == nil {
			before := t.stateLocked()
			t.Reported = reported
			t.Version++
			h.notifyReportedLocked(t, patch)
			h.notifyDigitalTwinLocked(t, before)
		}
	}
	if t.Desired.Version == c.desired.Version {
		return false
	}
	patch := document.Difference(c.desired.Tree, t.Desired.Tree)
	t.changes.Add(Change{t.Desired.Version, t.Desired.Notification(patch, false), patch})
	return true
}

// viewLocked returns the twin as clients see it.
func (t *TwinState) viewLocked() (desired, reported document.Section) {
	if t.apart != nil {
		return t.apart.desired, t.apart.reported
	}
	return t.Desired, t.Reported
}

// reportLocked sets the reported properties after a client's patch.
func (t *TwinState) reportLocked(now document.Section) {
	if t.apart != nil {
		t.apart.reported, t.apart.patched = now, true
		return
	}
	t.Reported = now
	t.Version++
}

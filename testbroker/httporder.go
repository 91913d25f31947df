package testbroker

import (
	"net/http"
	"time"
)

// order takes a message over HTTP that asks for a fault; false when it is none.
func (q *httpRequest) order(m Message) (httpAnswer, bool) {
	h := q.hub
	answered := false
	taken := h.take(m, func(kind orderKind) {
		answered = h.obedient == ObeyFaultMessages || kind.on&HTTP == 0
	}, func(kind orderKind, f *FaultMessage) { q.conn.obey(q.id, kind, f) })
	switch {
	case !taken:
		return httpAnswer{}, false
	case !answered:
		q.hang()
		return httpAnswer{way: wayNone}, true
	}
	return httpAnswer{status: http.StatusNoContent}, true
}

// obey does what a device asked for on a connection: it cuts what the device uses, or has its
// messages refused.
func (a *httpConn) obey(id identity, kind orderKind, f *FaultMessage) {
	h := a.hub
	h.mu.Lock()
	var used []*conn
	for _, c := range h.connsLocked(id.String()) {
		if _, ok := c.peer.(*httpConn); ok && kind.cut {
			used = append(used, c)
		}
	}
	once := kind.refusal != 0 && f.Duration == 0
	stands := once || kind.refuses && f.Duration > 0
	if stands {
		life := f.Duration
		if once {
			life = maxOrderSeconds * time.Second
		}
		h.standing[id] = standingOrder{orderKind: kind, until: time.Now().Add(life), once: once, record: f}
	}
	f.Happened = stands || len(used) > 0
	happened := f.Happened
	h.mu.Unlock()
	if !happened {
		return
	}
	cause := orderError{f.Type, f.Reason}
	h.event(Event{Kind: FaultObeyed, DeviceID: id.device, ModuleID: id.module, Err: cause}, a.c)
	for _, c := range used {
		c.cutFor(cause)
	}
	h.changed.wake()
}

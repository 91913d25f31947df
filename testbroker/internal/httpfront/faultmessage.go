package httpfront

import (
	"net/http"

	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/faults"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
	"github.com/hubline-iot/hubline/testbroker/internal/web"
)

// order handles a message over HTTP that requests a fault; false when it does not.
func order(q *web.Request, m hubdata.Message) (web.Answer, bool) {
	h := q.Hub
	answered := false
	taken := h.Take(m, func(kind faults.Request) {
		answered = h.FaultMessageMode == fault.ObeyMessages || kind.On&hubdata.HTTP == 0
	}, func(kind faults.Request, f *fault.Message) { obey(q.Conn, q.ID, kind, f) })
	switch {
	case !taken:
		return web.Answer{}, false
	case !answered:
		q.Hang()
		return web.Answer{Delivery: web.DeliverNothing}, true
	}
	return web.Answer{Status: http.StatusNoContent}, true
}

// obey applies a requested fault on a connection: it cuts the device's connections, or makes the
// hub refuse its messages.
func obey(a *web.Conn, id identity.Identity, kind faults.Request, f *fault.Message) {
	h := a.Hub
	var used []*hub.Conn
	for _, c := range h.ConnsOf(id.String()) {
		if _, ok := c.Peer().(*web.Conn); ok && kind.Cut {
			used = append(used, c)
		}
	}
	stands := kind.Stand(f, kind.Refusal != 0)
	happened := stands != nil || len(used) > 0
	h.Requests.Obey(id, f, happened, stands)
	if !happened {
		return
	}
	cause := faults.RequestError{Kind: f.Type, Reason: f.Reason}
	h.Event(event.Event{Kind: event.FaultObeyed, DeviceID: id.Device, ModuleID: id.Module, Err: cause}, a.C)
	for _, c := range used {
		c.CutFor(cause)
	}
	h.Changed.Wake()
}

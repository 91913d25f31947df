package amqpfront

import (
	"strings"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/amqp"
	"github.com/hubline-iot/hubline/testbroker/internal/faults"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
)

// orderAMQP handles a message over AMQP that requests a fault; false when it does not.
func (f *Front) orderAMQP(l *hubLink, d amqp.Delivery, m hubdata.Message) bool {
	h := f.hub
	return h.Take(m, func(kind faults.Request) {
		if h.FaultMessageMode == fault.ObeyMessages || kind.On&hubdata.AMQP == 0 {
			l.settle(d, nil)
			l.conn.engine.Flush()
		}
	}, func(kind faults.Request, asked *fault.Message) { f.obeyAMQP(l, kind, asked) })
}

func (f *Front) obeyAMQP(l *hubLink, kind faults.Request, asked *fault.Message) {
	h := f.hub
	a, id := l.conn, l.id
	lives, links := a.targets(id, kind.Link)
	stands := kind.Stand(asked, kind.Condition != "")
	happened := stands != nil || lives && (!kind.Refuses || kind.Cut)
	h.Requests.Obey(id, asked, happened, stands)
	if !happened {
		return
	}
	cause := faults.RequestError{Kind: asked.Type, Reason: asked.Reason}
	h.Event(event.Event{Kind: event.FaultObeyed, DeviceID: id.Device, ModuleID: id.Module, Err: cause}, a.c)
	switch {
	case kind.Cut:
		a.c.CutFor(cause)
	case kind.Refuses: // refuses messages from this time on
	case kind.Link != fault.LinkAny:
		for _, l := range links {
			l.detach(wire.Errorf(wire.DetachForced, "%s", asked.Reason), true)
		}
	case kind.Session:
		a.end(l.Session(), wire.Errorf(wire.DetachForced, "%s", asked.Reason))
	case kind.Name == "ShutDownAmqp" && strings.EqualFold(asked.Reason, "byebye"):
		a.close(nil, cause)
	default:
		a.close(wire.Errorf(wire.ConnectionForced, "%s", asked.Reason), cause)
	}
	h.Changed.Wake()
}

// targets returns the links of a kind that a requested fault detaches, and whether the connection
// and, unless the kind is [fault.LinkAny], such a link exist.
func (a *conn) targets(id identity.Identity, kind fault.LinkKind) (exist bool, links []*hubLink) {
	a.front.mu.Lock()
	defer a.front.mu.Unlock()
	exist = !a.ended && a.c.Mode.Load() == hub.Open
	if kind == fault.LinkAny {
		return exist, nil
	}
	links = a.linksLocked(id.String(), kind)
	return exist && len(links) > 0, links
}

// barred cuts a connection that acts for an identity that requested to be cut off.
func (a *conn) barred(id identity.Identity) error {
	o, ok := a.hub.Requests.Stands(id, func(o faults.Standing) bool { return o.Cut })
	if !ok {
		return nil
	}
	cause := o.Cause()
	a.c.CutFor(cause)
	return cause
}

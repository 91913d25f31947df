package amqpfront

import (
	"strings"
	"time"

	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/testbroker/internal/amqp"
)

// orderAMQP handles a message over AMQP that requests a fault; false when it does not.
func (f *Front) orderAMQP(l *hubLink, d amqp.Delivery, m hubdata.Message) bool {
	h := f.hub
	return h.Take(m, func(kind hub.FaultRequest) {
		if h.Obedient == fault.ObeyMessages || kind.On&hubdata.AMQP == 0 {
			l.settle(d, nil)
			l.conn.engine.Flush()
		}
	}, func(kind hub.FaultRequest, asked *fault.Message) { f.obeyAMQP(l, kind, asked) })
}

// obeyAMQP applies a requested fault on a link.
func (f *Front) obeyAMQP(l *hubLink, kind hub.FaultRequest, asked *fault.Message) {
	h := f.hub
	a, id := l.conn, l.id
	h.Mu.Lock()
	lives := !a.ended && a.c.Mode.Load() == hub.Open
	once := kind.Condition != "" && asked.Duration == 0
	stands := kind.Refuses && asked.Duration > 0 || once
	if once {
		h.Standing[id] = hub.StandingFault{
			FaultRequest: kind,
			Until:        time.Now().Add(hub.MaxFaultSeconds * time.Second),
			Once:         true,
			Record:       asked,
		}
	} else if stands {
		h.Standing[id] = hub.StandingFault{FaultRequest: kind, Until: time.Now().Add(asked.Duration), Record: asked}
	}
	links := []*hubLink{}
	if kind.Link != fault.LinkAny {
		links = a.linksLocked(id.String(), kind.Link)
		lives = lives && len(links) > 0
	}
	asked.Happened = stands || lives && (!kind.Refuses || kind.Cut)
	happened := asked.Happened
	h.Mu.Unlock()
	if !happened {
		return
	}
	cause := hub.FaultRequestError{Kind: asked.Type, Reason: asked.Reason}
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

// barred cuts a connection that acts for an identity that requested to be cut off.
func (a *conn) barred(id hub.Identity) error {
	o, ok := a.hub.Stands(id, func(o hub.StandingFault) bool { return o.Cut })
	if !ok {
		return nil
	}
	cause := hub.FaultRequestError{Kind: o.Name, Reason: o.Record.Reason}
	a.c.CutFor(cause)
	return cause
}

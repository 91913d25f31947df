package testbroker

import (
	"strings"
	"time"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/testbroker/internal/amqp"
)

// orderAMQP takes a message over AMQP that asks for a fault; false when it is none.
func (f *amqpFront) orderAMQP(l *amqpLink, d amqp.Delivery, m Message) bool {
	h := f.hub
	return h.take(m, func(kind orderKind) {
		if h.obedient == ObeyFaultMessages || kind.on&AMQP == 0 {
			l.settle(d, nil)
			l.conn.engine.Flush()
		}
	}, func(kind orderKind, asked *FaultMessage) { f.obeyAMQP(l, kind, asked) })
}

// obeyAMQP does what a device asked for on a link.
func (f *amqpFront) obeyAMQP(l *amqpLink, kind orderKind, asked *FaultMessage) {
	h := f.hub
	a, id := l.conn, l.id
	h.mu.Lock()
	lives := !a.ended && a.c.mode.Load() == open
	once := kind.condition != "" && asked.Duration == 0
	stands := kind.refuses && asked.Duration > 0 || once
	if once {
		h.standing[id] = standingOrder{orderKind: kind, until: time.Now().Add(maxOrderSeconds * time.Second), once: true,
			record: asked}
	} else if stands {
		h.standing[id] = standingOrder{orderKind: kind, until: time.Now().Add(asked.Duration), record: asked}
	}
	links := []*amqpLink{}
	if kind.link != LinkAny {
		links = a.linksLocked(id.String(), kind.link)
		lives = lives && len(links) > 0
	}
	asked.Happened = stands || lives && (!kind.refuses || kind.cut)
	happened := asked.Happened
	h.mu.Unlock()
	if !happened {
		return
	}
	cause := orderError{asked.Type, asked.Reason}
	h.event(Event{Kind: FaultObeyed, DeviceID: id.device, ModuleID: id.module, Err: cause}, a.c)
	switch {
	case kind.cut:
		a.c.cutFor(cause)
	case kind.refuses: // messages, from now on
	case kind.link != LinkAny:
		for _, l := range links {
			l.detach(wire.Errorf(wire.DetachForced, "%s", asked.Reason), true)
		}
	case kind.session:
		a.end(l.Session(), wire.Errorf(wire.DetachForced, "%s", asked.Reason))
	case kind.name == "ShutDownAmqp" && strings.EqualFold(asked.Reason, "byebye"):
		a.close(nil, cause)
	default:
		a.close(wire.Errorf(wire.ConnectionForced, "%s", asked.Reason), cause)
	}
	h.changed.wake()
}

// barred cuts a connection that wants to act for an identity that asked to be cut off.
func (a *amqpConn) barred(id identity) error {
	o, ok := a.hub.stands(id, func(o standingOrder) bool { return o.cut })
	if !ok {
		return nil
	}
	cause := orderError{o.name, o.record.Reason}
	a.c.cutFor(cause)
	return cause
}

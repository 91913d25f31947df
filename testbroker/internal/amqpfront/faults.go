package amqpfront

import (
	"strings"

	"github.com/hubline-iot/hubline/testbroker/internal/hub"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/testbroker/internal/amqp"
)

// wireFault returns the error of a fault.
func wireFault(f *hub.Fault) *wire.Error {
	e := hub.AMQPError{Condition: f.Condition, Description: f.Description}
	if f.Description == "" {
		e.Description = "fault " + f.Kind.String()
	}
	return errorOf(e)
}

// takeLink is hub.Faults.Take for faults of one kind of links.
func takeLink(f *hub.Faults, kind hub.FaultKind, l *hubLink) *hub.Injected {
	return f.TakeIf(kind, l.id, func(f *hub.Fault) bool { return f.Link == hub.LinkAny || f.Link == l.kind })
}

// attachFaults applies the faults of an attach.
func (a *conn) attachFaults(l *hubLink) error {
	h, c := a.hub, a.c
	if in := takeLink(&h.Faults, hub.DropOnAttach, l); in != nil {
		h.HappenedTo(in, c, l.id)
		c.CutFor(hub.FaultError(hub.DropOnAttach))
		return hub.FaultError(hub.DropOnAttach)
	}
	if in := takeLink(&h.Faults, hub.RefuseAttach, l); in != nil {
		h.HappenedTo(in, c, l.id)
		return wireFault(&in.Fault)
	}
	if in := takeLink(&h.Faults, hub.NoAttach, l); in != nil {
		h.HappenedTo(in, c, l.id)
		return amqp.ErrLater
	}
	if in := takeLink(&h.Faults, hub.SlowAttach, l); in != nil {
		h.HappenedTo(in, c, l.id)
		h.Wg.Go(func() {
			if c.Sleep(in.Fault.Delay) && l.Accept() {
				a.start(l)
			}
		})
		return amqp.ErrLater
	}
	return nil
}

// allow gives the client credit, unless a fault intervenes.
func (a *conn) allow(l *hubLink) {
	h := a.hub
	in := takeLink(&h.Faults, hub.WithholdCredit, l)
	if in == nil {
		l.Allow(h.AMQP.Credit)
		return
	}
	h.HappenedTo(in, a.c, l.id)
	if in.Fault.Delay > 0 {
		h.Wg.Go(func() {
			if a.c.Sleep(in.Fault.Delay) {
				l.Allow(h.AMQP.Credit)
			}
		})
	}
}

// idleFault applies the fault that detaches the link after a delay.
func (a *conn) idleFault(l *hubLink) {
	h := a.hub
	in := takeLink(&h.Faults, hub.DetachWhileIdle, l)
	if in == nil {
		return
	}
	h.Wg.Go(func() {
		if !a.c.Sleep(in.Fault.Delay) {
			h.Faults.Release(in)
			return
		}
		h.HappenedTo(in, a.c, l.id)
		l.detach(wireFault(&in.Fault), !in.Fault.Unclosed)
	})
}

// messageFaults applies the faults that prevent a telemetry message from being stored; false if
// there are none.
func (a *conn) messageFaults(l *hubLink, d amqp.Delivery) bool {
	h, c := a.hub, a.c
	for _, f := range []struct {
		kind hub.FaultKind
		do   func(f *hub.Fault)
	}{
		{hub.CloseOnMessage, func(f *hub.Fault) { a.close(wireFault(f), hub.FaultError(hub.CloseOnMessage)) }},
		{hub.EndOnMessage, func(f *hub.Fault) { a.end(l.Session(), wireFault(f)) }},
		{hub.DetachOnMessage, func(f *hub.Fault) { l.detach(wireFault(f), !f.Unclosed) }},
		{hub.RejectMessage, func(f *hub.Fault) { l.settle(d, wireFault(f)) }},
		{hub.ReleaseMessage, func(*hub.Fault) { a.outcome(l, d, &wire.Released{}) }},
		{hub.ModifyMessage, func(f *hub.Fault) {
			a.outcome(l, d, &wire.Modified{DeliveryFailed: true, UndeliverableHere: f.UndeliverableHere})
		}},
	} {
		if in := h.Faults.Take(f.kind, l.id); in != nil {
			h.HappenedTo(in, c, l.id)
			f.do(&in.Fault)
			return true
		}
	}
	return false
}

func (a *conn) outcome(l *hubLink, d amqp.Delivery, state wire.DeliveryState) {
	if !d.Settled {
		l.Settle(d.ID, state)
	}
}

func errorOf(e hub.AMQPError) *wire.Error {
	if e == (hub.AMQPError{}) {
		return nil
	}
	return &wire.Error{Condition: wire.Symbol(e.Condition), Description: strings.ToValidUTF8(e.Description, "?")}
}

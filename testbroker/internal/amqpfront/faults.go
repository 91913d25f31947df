package amqpfront

import (
	"strings"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/amqp"
	"github.com/hubline-iot/hubline/testbroker/internal/faults"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
)

// wireFault returns the error of a fault.
func wireFault(f *fault.Fault) *wire.Error {
	e := hubdata.AMQPError{Condition: f.Condition, Description: f.Description}
	if f.Description == "" {
		e.Description = "fault " + f.Kind.String()
	}
	return errorOf(e)
}

// takeLink is hub.Faults.Take for faults of one kind of links.
func takeLink(f *faults.Faults, kind fault.Kind, l *hubLink) *faults.Injected {
	return f.TakeIf(kind, l.id, func(f *fault.Fault) bool { return f.Link == fault.LinkAny || f.Link == l.kind })
}

// attachFaults applies the faults of an attach.
func (a *conn) attachFaults(l *hubLink) error {
	h, c := a.hub, a.c
	if in := takeLink(&h.Faults, fault.DropOnAttach, l); in != nil {
		h.HappenedTo(in, c, l.id)
		c.CutFor(hub.FaultError(fault.DropOnAttach))
		return hub.FaultError(fault.DropOnAttach)
	}
	if in := takeLink(&h.Faults, fault.RefuseAttach, l); in != nil {
		h.HappenedTo(in, c, l.id)
		return wireFault(&in.Fault)
	}
	if in := takeLink(&h.Faults, fault.SwallowAttach, l); in != nil {
		h.HappenedTo(in, c, l.id)
		return amqp.ErrLater
	}
	if in := takeLink(&h.Faults, fault.SlowAttach, l); in != nil {
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
	in := takeLink(&h.Faults, fault.WithholdCredit, l)
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
	in := takeLink(&h.Faults, fault.DetachWhileIdle, l)
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

// takeMessage is hub.Faults.Take for faults of the messages on a link. Those for links of any kind
// are faults of telemetry.
func takeMessage(f *faults.Faults, kind fault.Kind, l *hubLink) *faults.Injected {
	return f.TakeIf(kind, l.id, func(f *fault.Fault) bool {
		return f.Link == l.kind || f.Link == fault.LinkAny && l.kind == fault.LinkTelemetry
	})
}

// detachAfterMessage applies the fault that detaches the link in place of an outcome; false if
// there is none.
func (a *conn) detachAfterMessage(l *hubLink) bool {
	in := takeMessage(&a.hub.Faults, fault.DetachAfterMessage, l)
	if in != nil {
		a.hub.HappenedTo(in, a.c, l.id)
		l.detach(wireFault(&in.Fault), !in.Fault.Unclosed)
	}
	return in != nil
}

// messageFaults applies the faults that prevent a message from being stored; false if there are
// none.
func (a *conn) messageFaults(l *hubLink, d amqp.Delivery) bool {
	h, c := a.hub, a.c
	for _, f := range []struct {
		kind fault.Kind
		do   func(f *fault.Fault)
	}{
		{fault.CloseOnMessage, func(f *fault.Fault) { a.close(wireFault(f), hub.FaultError(fault.CloseOnMessage)) }},
		{fault.EndOnMessage, func(f *fault.Fault) { a.end(l.Session(), wireFault(f)) }},
		{fault.DetachOnMessage, func(f *fault.Fault) { l.detach(wireFault(f), !f.Unclosed) }},
		{fault.RejectMessage, func(f *fault.Fault) { l.settle(d, wireFault(f)) }},
		{fault.ReleaseMessage, func(*fault.Fault) { a.outcome(l, d, &wire.Released{}) }},
		{fault.ModifyMessage, func(f *fault.Fault) {
			a.outcome(l, d, &wire.Modified{DeliveryFailed: true, UndeliverableHere: f.UndeliverableHere})
		}},
	} {
		if in := takeMessage(&h.Faults, f.kind, l); in != nil {
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

func errorOf(e hubdata.AMQPError) *wire.Error {
	if e == (hubdata.AMQPError{}) {
		return nil
	}
	return &wire.Error{Condition: wire.Symbol(e.Condition), Description: strings.ToValidUTF8(e.Description, "?")}
}

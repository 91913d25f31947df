package testbroker

import (
	"strings"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/testbroker/internal/amqp"
)

// wire is the error of a fault.
func (f *Fault) wire() *wire.Error {
	e := AMQPError{f.Condition, f.Description}
	if f.Description == "" {
		e.Description = "fault " + f.Kind.String()
	}
	return e.wire()
}

// takeLink is take for faults that are about links of one kind.
func (f *faults) takeLink(kind FaultKind, l *amqpLink) *Injected {
	return f.takeIf(kind, l.id, func(f *Fault) bool { return f.Link == LinkAny || f.Link == l.kind })
}

// attachFaults lets faults have their way with an attach.
func (a *amqpConn) attachFaults(l *amqpLink) error {
	h, c := a.hub, a.c
	if in := h.faults.takeLink(DropOnAttach, l); in != nil {
		h.happenedTo(in, c, l.id)
		c.cutFor(faultError(DropOnAttach))
		return faultError(DropOnAttach)
	}
	if in := h.faults.takeLink(RefuseAttach, l); in != nil {
		h.happenedTo(in, c, l.id)
		return in.fault.wire()
	}
	if in := h.faults.takeLink(NoAttach, l); in != nil {
		h.happenedTo(in, c, l.id)
		return amqp.ErrLater
	}
	if in := h.faults.takeLink(SlowAttach, l); in != nil {
		h.happenedTo(in, c, l.id)
		h.wg.Go(func() {
			if c.sleep(in.fault.Delay) && l.Accept() {
				a.start(l)
			}
		})
		return amqp.ErrLater
	}
	return nil
}

// allow gives the client credit, unless a fault has it otherwise.
func (a *amqpConn) allow(l *amqpLink) {
	h := a.hub
	in := h.faults.takeLink(WithholdCredit, l)
	if in == nil {
		l.Allow(h.amqp.Credit)
		return
	}
	h.happenedTo(in, a.c, l.id)
	if in.fault.Delay > 0 {
		h.wg.Go(func() {
			if a.c.sleep(in.fault.Delay) {
				l.Allow(h.amqp.Credit)
			}
		})
	}
}

// idleFault has a fault detach the link in its time.
func (a *amqpConn) idleFault(l *amqpLink) {
	h := a.hub
	in := h.faults.takeLink(DetachWhileIdle, l)
	if in == nil {
		return
	}
	h.wg.Go(func() {
		if !a.c.sleep(in.fault.Delay) {
			h.faults.release(in)
			return
		}
		h.happenedTo(in, a.c, l.id)
		l.detach(in.fault.wire(), !in.fault.Unclosed)
	})
}

// messageFaults lets faults have their way with a telemetry message that is not stored then; false
// if there are none.
func (a *amqpConn) messageFaults(l *amqpLink, d amqp.Delivery) bool {
	h, c := a.hub, a.c
	for _, f := range []struct {
		kind FaultKind
		do   func(f *Fault)
	}{
		{CloseOnMessage, func(f *Fault) { a.close(f.wire(), faultError(CloseOnMessage)) }},
		{EndOnMessage, func(f *Fault) { a.end(l.Session(), f.wire()) }},
		{DetachOnMessage, func(f *Fault) { l.detach(f.wire(), !f.Unclosed) }},
		{RejectMessage, func(f *Fault) { l.settle(d, f.wire()) }},
		{ReleaseMessage, func(*Fault) { a.outcome(l, d, &wire.Released{}) }},
		{ModifyMessage, func(f *Fault) {
			a.outcome(l, d, &wire.Modified{DeliveryFailed: true, UndeliverableHere: f.UndeliverableHere})
		}},
	} {
		if in := h.faults.take(f.kind, l.id); in != nil {
			h.happenedTo(in, c, l.id)
			f.do(&in.fault)
			return true
		}
	}
	return false
}

func (a *amqpConn) outcome(l *amqpLink, d amqp.Delivery, state wire.DeliveryState) {
	if !d.Settled {
		l.Settle(d.ID, state)
	}
}

func (e AMQPError) wire() *wire.Error {
	if e == (AMQPError{}) {
		return nil
	}
	return &wire.Error{Condition: wire.Symbol(e.Condition), Description: strings.ToValidUTF8(e.Description, "?")}
}

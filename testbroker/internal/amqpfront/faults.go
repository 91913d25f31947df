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

func wireFault(f *fault.Fault) *wire.Error {
	e := hubdata.AMQPError{Condition: f.Condition, Description: f.Description}
	if f.Description == "" {
		e.Description = "fault " + f.Kind.String()
	}
	return errorOf(e)
}

// strike is hub.Hub.Strike for faults of the link's kind.
func (l *hubLink) strike(kind fault.Kind) *faults.Injected {
	return l.conn.hub.Strike(kind, l.id, l.conn.c, l.isKind)
}

func (l *hubLink) isKind(f *fault.Fault) bool { return f.Link == fault.LinkAny || f.Link == l.kind }

func (a *conn) attachFaults(l *hubLink) error {
	if l.strike(fault.DropOnAttach) != nil {
		return a.c.CutBy(fault.DropOnAttach)
	}
	if in := l.strike(fault.RefuseAttach); in != nil {
		return wireFault(&in.Fault)
	}
	if l.strike(fault.SwallowAttach) != nil {
		return amqp.ErrLater
	}
	if in := l.strike(fault.SlowAttach); in != nil {
		a.hub.Wg.Go(func() {
			if a.c.Sleep(in.Fault.Delay) && l.Accept() {
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
	in := l.strike(fault.WithholdCredit)
	if in == nil {
		l.Allow(h.AMQP.Credit)
	} else if in.Fault.Delay > 0 {
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
	in := h.Faults.TakeIf(fault.DetachWhileIdle, l.id, l.isKind)
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

// strikeMessage is hub.Hub.Strike for faults of the messages on the link. Those for links of any
// kind are faults of telemetry.
func (l *hubLink) strikeMessage(kind fault.Kind) *faults.Injected {
	return l.conn.hub.Strike(kind, l.id, l.conn.c, func(f *fault.Fault) bool {
		return f.Link == l.kind || f.Link == fault.LinkAny && l.kind == fault.LinkTelemetry
	})
}

// detachAfterMessage applies the fault that detaches the link in place of an outcome; false if
// there is none.
func (a *conn) detachAfterMessage(l *hubLink) bool {
	in := l.strikeMessage(fault.DetachAfterMessage)
	if in != nil {
		l.detach(wireFault(&in.Fault), !in.Fault.Unclosed)
	}
	return in != nil
}

// messageFaults applies the faults that prevent a message from being stored; false if there are
// none.
func (a *conn) messageFaults(l *hubLink, d amqp.Delivery) bool {
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
		if in := l.strikeMessage(f.kind); in != nil {
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

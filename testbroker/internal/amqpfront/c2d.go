package amqpfront

import (
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/document"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/testbroker/internal/amqp"
)

// lockLost is the error for a client that settles a message whose lock has ended.
const lockLost wire.Symbol = "com.microsoft:message-lock-lost"

// A receiver is a link that receives the messages of a queue.
type receiver struct {
	link *hubLink
	q    *hub.Queue
}

func (r *receiver) Client() *hub.Conn { return r.link.conn.c }

func (r *receiver) Renews(hub.Receiver) bool { return false }

// Replaced detaches the link with the reason.
func (r *receiver) Replaced(by *hub.Conn) {
	r.link.Detach(displaced(r.Client(), by, r.link), true)
	f := r.link.conn.front
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(r.link.conn.links, r.link)
}

// displaced returns the error for a link that another has replaced.
func displaced(old, by *hub.Conn, l *hubLink) *wire.Error {
	if old == by {
		return wire.Errorf(wire.LinkStolen, "another %s link of %s was attached", l.kind, l.id)
	}
	return wire.Errorf("com.microsoft:link-creation-conflict", "409002 LinkCreationConflict: %s is connected elsewhere",
		l.id)
}

// Deliver sends a message if the client has given credit. A gateway also has a window.
func (r *receiver) Deliver(q *hub.Queue, e *hub.QueuedC2D, unacked int) (sent, settled bool) {
	if !r.link.Ready() || q.Hub.Gateway != nil && unacked >= q.Limits.Window {
		return false, false
	}
	tag := q.Hub.LockToken(e)
	token := identity.GUID(tag)
	payload, ok := r.encode(e, token)
	if !ok {
		return false, false // it waits for a link that can carry it
	}
	settled = r.link.Asked.SndSettleMode == wire.SendSettled
	// The client may settle the message before Send returns; that waits for the queue's lock.
	if !r.link.Send(amqp.Outgoing{Tag: tag[:], Settled: settled, Payload: payload}) {
		return false, false
	}
	e.Tag, e.LockToken = string(tag[:]), token
	return true, settled
}

// Skips reports whether the link cannot carry the message.
func (r *receiver) Skips(e *hub.QueuedC2D) bool {
	_, ok := r.encode(e, identity.GUID([16]byte{}))
	return !ok
}

// encode returns the message; false if the link cannot carry it.
func (r *receiver) encode(e *hub.QueuedC2D, token string) ([]byte, bool) {
	payload, err := wire.AppendMessage(nil, message(e, token))
	limit := r.link.Asked.MaxMessageSize
	return payload, err == nil && (limit == 0 || uint64(len(payload)) <= limit)
}

func message(e *hub.QueuedC2D, lockToken string) *wire.Message {
	m := e.C2D
	p := &wire.Properties{ContentType: wire.Symbol(m.ContentType), ContentEncoding: wire.Symbol(m.ContentEncoding)}
	if to := hub.AddressOf(&e.C2DRecord, "/messages/devicebound"); to != "" {
		p.To = wire.Some(to)
	}
	if m.MessageID != "" {
		p.MessageID = m.MessageID
	}
	if m.CorrelationID != "" {
		p.CorrelationID = m.CorrelationID
	}
	if m.UserID != "" {
		p.UserID = []byte(m.UserID)
	}
	if e.Expires || e.Input == "" {
		p.AbsoluteExpiryTime = wire.Some(wire.Timestamp(m.Expiry.UnixMilli()))
	}
	properties := wire.Map{}
	seen := make(map[string]bool)
	add := func(name, value string) {
		if !seen[name] { // keys must be unique
			seen[name] = true
			properties = append(properties, wire.Pair{Key: name, Value: value})
		}
	}
	for _, q := range m.Properties {
		add(q.Name, q.Value)
	}
	for _, q := range [...]hubdata.Property{
		{Name: "iothub-ack", Value: m.Ack}, {Name: "iothub-message-schema", Value: m.Schema},
		{Name: "iothub-creation-time-utc", Value: document.TimeText(m.CreationTime)},
	} {
		if q.Value != "" {
			add(q.Name, q.Value)
		}
	}
	return &wire.Message{
		MessageAnnotations: annotations(e, lockToken), Properties: p, ApplicationProperties: properties,
		Data: [][]byte{m.Body},
	}
}

func annotations(e *hub.QueuedC2D, lockToken string) wire.Map {
	all := wire.Map{
		{Key: wire.Symbol("iothub-enqueuedtime"), Value: wire.Timestamp(e.Enqueued.UnixMilli())},
		{Key: wire.Symbol("iothub-deliverycount"), Value: uint8(min(e.Deliveries, 255))},
		{Key: wire.Symbol("x-opt-sequence-number"), Value: uint64(e.Sequence)},
		{Key: wire.Symbol("x-opt-lock-token"), Value: lockToken},
	}
	for _, a := range [...]struct {
		name  wire.Symbol
		value string
	}{
		{"x-opt-input-name", e.Input}, {"iothub-connection-device-id", e.C2D.ConnectionDeviceID},
		{"iothub-connection-module-id", e.C2D.ConnectionModuleID}, {"iothub-interface-id", e.C2D.InterfaceID},
		{"dt-subject", e.C2D.Component}, {"Diagnostic-Id", e.C2D.DiagnosticID},
		{"Correlation-Context", e.C2D.DiagnosticContext},
	} {
		if a.value != "" {
			all = append(all, wire.Pair{Key: a.name, Value: a.value})
		}
	}
	return all
}

// settle applies a client's outcome to a C2D message. If the lock has ended, the client gets an
// error.
func (r *receiver) settle(tag string, state wire.DeliveryState) wire.DeliveryState {
	to := hubdata.C2DEnqueued // released, modified, or settled without a state
	switch state.(type) {
	case nil:
		state = &wire.Released{}
	case *wire.Accepted:
		to = hubdata.C2DCompleted
	case *wire.Rejected:
		to = hubdata.C2DRejected
	}
	if !r.q.SettleTag(r, tag, to) {
		return &wire.Rejected{Error: wire.Errorf(lockLost, "412002 DeviceMessageLockLost")}
	}
	return state
}

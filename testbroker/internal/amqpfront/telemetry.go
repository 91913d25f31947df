package amqpfront

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"time"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/document"
	"github.com/hubline-iot/hubline/testbroker/internal/faults"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/telemetry"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/testbroker/internal/amqp"
)

// telemetry stores a message or a batch and answers it, unless a fault intervenes.
func (a *conn) telemetry(l *hubLink, d amqp.Delivery) error {
	all, bad := a.readTelemetry(l, d)
	if bad != nil {
		a.refusedLink(l.Link, l.id, bad)
		l.settle(d, bad)
		return nil
	}
	h, c, id := a.hub, a.c, l.id
	if len(all) == 1 && a.front.orderAMQP(l, d, all[0]) {
		return nil
	}
	for _, in := range h.Faults.Reached(id) {
		h.Begin(in)
	}
	if c.Mode.Load() != hub.Open {
		return c.Drain()
	}
	if refusal := a.front.overdrawn(l); refusal != nil {
		l.settle(d, refusal)
		return nil
	}
	if h.Strike(fault.DropBeforePublish, id, c, nil) != nil {
		return c.CutBy(fault.DropBeforePublish)
	}
	if stop := a.messageFaults(l, d); stop {
		return nil
	}
	if h.Strike(fault.Forget, id, c, nil) == nil {
		for i := range all {
			all[i].Received = h.Now()
		}
		h.Store(all...)
		for i := range all {
			h.Faults.Spend(id, all[i].Received, telemetry.SizeOf(&all[i]))
		}
		h.Changed.Wake()
	}
	if h.Strike(fault.DropAfterPublish, id, c, nil) != nil {
		return c.CutBy(fault.DropAfterPublish)
	}
	if a.detachAfterMessage(l) {
		return nil
	}
	if in := h.Strike(fault.GarbageOnPublish, id, c, nil); in != nil {
		a.engine.Flush()
		c.Write(hub.GarbageOf(&in.Fault, shortFrame))
	}
	if !d.Settled {
		a.acknowledge(l, d)
	}
	return nil
}

// overdrawn refuses a message because of a quota or a throttle, or because its device requested
// that.
func (f *Front) overdrawn(l *hubLink) *wire.Error {
	h := f.hub
	c, id := l.conn.c, l.id
	if in := h.Faults.InForce(fault.Throttle, id); in != nil && l.acks.Waiting() >= in.Fault.Limit {
		h.HappenedTo(in, c, id)
		return throttled()
	}
	if in := h.Faults.Exhausted(id, h.Now()); in != nil {
		h.HappenedTo(in, c, id)
		return wire.Errorf(wire.ResourceLimitExceeded, "403002 IotHubQuotaExceeded")
	}
	o, ok := h.Requests.Stands(id, func(o faults.Standing) bool { return o.Condition != "" })
	if !ok {
		return nil
	}
	return wire.Errorf(wire.Symbol(o.Condition), "%s", o.Record.Reason)
}

// acknowledge sends the outcome accepted, subject to faults.
func (a *conn) acknowledge(l *hubLink, d amqp.Delivery) {
	h, c, id := a.hub, a.c, l.id
	if h.Strike(fault.SwallowPuback, id, c, nil) != nil {
		return
	}
	var due time.Time
	if in := h.Strike(fault.SlowPuback, id, c, nil); in != nil {
		due = time.Now().Add(in.Fault.Delay)
	}
	if in := h.Faults.InForce(fault.Throttle, id); in != nil {
		if at := h.Faults.Pace(in); at.After(due) {
			due = at
			h.HappenedTo(in, c, id)
		}
	}
	say := func() {
		// taken before the client has the outcome and can declare another fault
		drop := h.Faults.Take(fault.DropAfterPuback, id)
		l.Settle(d.ID, &wire.Accepted{})
		switch {
		case drop == nil:
		case c.Mode.Load() != hub.Open:
			h.Faults.Release(drop)
		default:
			h.HappenedTo(drop, c, id)
			a.engine.Flush()
			c.CloseGracefully(hub.FaultError(fault.DropAfterPuback))
		}
	}
	if !l.acks.Add(c, due, say) {
		say()
	}
}

func (a *conn) readTelemetry(l *hubLink, d amqp.Delivery) ([]hubdata.Message, *wire.Error) {
	parts := [][]byte{d.Payload}
	switch d.Format {
	case 0:
	case wire.BatchFormat:
		outer, err := wire.DecodeMessage(d.Payload)
		if err != nil {
			return nil, asWire(err)
		}
		if parts = outer.Data; len(parts) == 0 || len(parts) > telemetry.MaxBatch {
			return nil, wire.Errorf(wire.InvalidField, "batch of %d messages, 1 to %d are allowed", len(parts),
				telemetry.MaxBatch)
		}
	default:
		return nil, wire.Errorf(wire.NotImplemented, "message format 0x%x", d.Format)
	}
	address, _ := addressOf(l.Link)
	var all []hubdata.Message
	total := 0
	for _, p := range parts {
		m, err := wire.DecodeMessage(p)
		if err != nil {
			return nil, asWire(err)
		}
		if a.hub.AMQP.StrictTypes {
			if err := strictTypes(m); err != nil {
				return nil, asWire(err)
			}
		}
		t, err := telemetryOf(m)
		if err != nil {
			return nil, asWire(err)
		}
		if total += telemetry.SizeOf(&t); total > hubdata.MaxMessage {
			return nil, wire.Errorf(wire.MessageSizeExceeded, "413001 MessageTooLarge: more than %d bytes", hubdata.MaxMessage)
		}
		t.DeviceID, t.ModuleID, t.Protocol, t.Topic, t.Connection = l.id.Device, l.id.Module, hubdata.AMQP, address,
			a.c.Number
		if !d.Settled {
			t.QoS = 1
		}
		all = append(all, t)
	}
	return all, nil
}

// annotationNames and propertyNames map the annotations and the application properties that are
// system properties to their names in the log.
var (
	annotationNames = map[wire.Symbol]string{
		"dt-subject":          "$.sub",
		"iothub-interface-id": "$.ifid",
		"Diagnostic-Id":       "$.diagid",
		"Correlation-Context": "$.diagctx",
	}
	propertyNames = map[string]string{
		"iothub-creation-time-utc":    "$.ctime",
		"iothub-message-schema":       "$.schema",
		"iothub-outputname":           "$.on",
		"iothub-connection-device-id": "$.cdid",
		"iothub-connection-module-id": "$.cmid",
	}
)

// telemetryOf converts a message to a log entry. System properties get their MQTT names.
func telemetryOf(m *wire.Message) (hubdata.Message, error) {
	body, err := bodyOf(m)
	if err != nil {
		return hubdata.Message{}, err
	}
	t := hubdata.Message{Body: body}
	if p := m.Properties; p != nil {
		standardProperties(&t, p)
	}
	if err := telemetry.CheckID(t.MessageID); err != nil {
		return t, wire.Errorf(wire.InvalidField, "%v", err)
	}
	for _, p := range m.MessageAnnotations {
		name, _ := p.Key.(wire.Symbol)
		text, ok := p.Value.(string)
		known := annotationNames[name]
		switch {
		case known != "" && !ok:
			return t, wire.Errorf(wire.InvalidField, "annotation %s is a %T, only strings are allowed", name, p.Value)
		case text == "":
		case known != "":
			telemetry.AddSystem(&t, known, text)
		default:
			telemetry.AddSystem(&t, string(name), text)
		}
	}
	for _, p := range m.ApplicationProperties {
		name, _ := p.Key.(string)
		value, ok := propertyText(p.Value)
		switch {
		case name == "":
			return t, wire.Errorf(wire.InvalidField, "property without a name")
		case p.Value == nil: // as if it were not there
		case !ok:
			return t, wire.Errorf(wire.InvalidField, "property %q is a %T, only simple values are allowed", name, p.Value)
		case propertyNames[name] != "":
			telemetry.AddSystem(&t, propertyNames[name], value)
		default:
			t.Properties = append(t.Properties, hubdata.Property{Name: name, Value: value})
		}
	}
	return t, nil
}

// standardProperties adds the properties section to a log entry.
func standardProperties(t *hubdata.Message, p *wire.Properties) {
	expiry := ""
	if p.AbsoluteExpiryTime.OK {
		expiry = time.UnixMilli(int64(p.AbsoluteExpiryTime.V)).UTC().Format(document.TimeLayout)
	}
	for _, f := range [...]hubdata.Property{
		{Name: "$.mid", Value: idText(p.MessageID)}, {Name: "$.cid", Value: idText(p.CorrelationID)},
		{Name: "$.uid", Value: string(p.UserID)}, {Name: "$.to", Value: p.To.V},
		{Name: "$.ct", Value: string(p.ContentType)}, {Name: "$.ce", Value: string(p.ContentEncoding)},
		{Name: "$.exp", Value: expiry},
	} {
		if f.Value != "" {
			telemetry.AddSystem(t, f.Name, f.Value)
		}
	}
}

func idText(id any) string {
	switch id := id.(type) {
	case string:
		return id
	case uint64:
		return strconv.FormatUint(id, 10)
	case wire.UUID:
		return id.String()
	case []byte:
		return base64.StdEncoding.EncodeToString(id)
	case nil:
		return ""
	}
	return fmt.Sprint(id)
}

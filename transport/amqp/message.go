package amqp

import (
	"encoding/base64"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/hubline-iot/hubline/transport"
)

// plain is a message that the library encodes: for a broker with Options.Addresses, or for a hub
// without batches. It is reused for the next message. After a link loss the library may keep the
// address of a sent message's Format, so Format is never written to.
type plain struct {
	message    amqp.Message
	properties amqp.MessageProperties
	data       [1][]byte
}

// fill sets the message to m. For a hub the creation time is an application property. For a broker
// the message is durable, so it survives a restart as in a hub.
func (f *plain) fill(m *transport.Message, hub bool) *amqp.Message {
	f.data[0] = m.Body
	out := &f.message
	out.Data, out.Properties, out.Header = f.data[:], f.standard(m, hub), nil
	if hub {
		out.Annotations, out.ApplicationProperties = hubProperties(m)
		return out
	}
	out.Header, out.Annotations, out.ApplicationProperties = &durable, nil, nil
	if len(m.Properties) > 0 || m.Component != "" {
		out.ApplicationProperties = make(map[string]any, len(m.Properties)+1)
		if m.Component != "" {
			out.ApplicationProperties[subject] = m.Component
		}
		own(out.ApplicationProperties, m)
	}
	return out
}

// own adds the application properties of the program.
func own(to map[string]any, m *transport.Message) {
	for _, q := range m.Properties {
		to[q.Name] = q.Value
	}
}

// hubProperties returns the annotations and the application properties for a hub, nil for none.
func hubProperties(m *transport.Message) (annotated amqp.Annotations, all map[string]any) {
	if n := count(m, annotations); n > 0 {
		annotated = make(amqp.Annotations, n)
	}
	if n := len(m.Properties) + count(m, application); n > 0 || !m.Created.IsZero() {
		all = make(map[string]any, n+1)
	}
	for i := range properties {
		q := &properties[i]
		switch text := q.value(m); {
		case text == "" || q.sent == nowhere:
		case q.sent == annotations:
			annotated[q.name] = text
		default:
			all[q.name] = text
		}
	}
	if !m.Created.IsZero() {
		all[creationTime] = m.Created.UTC().Format(timeLayout)
	}
	own(all, m)
	return annotated, all
}

// standard returns the section of AMQP's own properties, nil for none.
func (f *plain) standard(m *transport.Message, hub bool) *amqp.MessageProperties {
	f.properties = amqp.MessageProperties{}
	p, set := &f.properties, false
	for _, field := range [...]struct {
		from *string
		to   **string
	}{
		{&m.ContentType, &p.ContentType}, {&m.ContentEncoding, &p.ContentEncoding}, {&m.ResponseTopic, &p.ReplyTo},
	} {
		if *field.from != "" {
			*field.to, set = field.from, true
		}
	}
	if m.ID != "" {
		p.MessageID, set = m.ID, true
	}
	if m.CorrelationID != "" {
		p.CorrelationID, set = m.CorrelationID, true
	}
	if m.System != nil && m.System.To != "" {
		p.To, set = &m.System.To, true
	}
	if m.System != nil && m.System.UserID != "" {
		p.UserID, set = []byte(m.System.UserID), true
	}
	if !m.Expires.IsZero() {
		at := m.Expires.Truncate(time.Millisecond)
		p.AbsoluteExpiryTime, set = &at, true
	}
	if !m.Created.IsZero() && !hub {
		at := m.Created.Truncate(time.Millisecond)
		p.CreationTime, set = &at, true
	}
	if !set {
		return nil
	}
	return p
}

// durable is the header of a message that survives a restart of the broker. The library does not
// write to it.
var durable = amqp.MessageHeader{Durable: true, Priority: 4}

const timeLayout = "2006-01-02T15:04:05.000Z"

// enqueuedTime is the annotation of a hub's message that becomes a property of that name.
const enqueuedTime = "iothub-enqueuedtime"

// bodyOf returns the body: data, or a value that is a string or binary.
func bodyOf(m *amqp.Message) []byte {
	switch {
	case len(m.Data) == 1:
		return m.Data[0]
	case len(m.Data) > 1:
		return slices.Concat(m.Data...)
	}
	switch v := m.Value.(type) {
	case string:
		return []byte(v)
	case []byte:
		return v
	}
	return nil
}

// inbound converts a message from a hub, or from another broker. again: it was delivered before.
func inbound(m *amqp.Message, hub bool) (out transport.Message, again bool) {
	var system transport.SystemProperties
	out.Body = bodyOf(m)
	if p := m.Properties; p != nil {
		readStandard(p, &out, &system)
	}
	readAnnotations(m.Annotations, hub, &out, &system)
	for name, v := range m.ApplicationProperties {
		if readApplication(name, v, hub, &out, &system) {
			continue
		}
		if text, ok := v.(string); ok && name == creationTime {
			if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
				out.Created = at.UTC()
				continue
			}
		}
		out.Properties = append(out.Properties, transport.Property{Name: name, Value: valueText(v)})
	}
	// The library returns a map, whose order is random.
	slices.SortFunc(out.Properties, func(a, b transport.Property) int { return strings.Compare(a.Name, b.Name) })
	if v, ok := m.Annotations[enqueuedTime]; ok {
		out.Properties = append(out.Properties, transport.Property{Name: enqueuedTime, Value: valueText(v)})
	}
	if system != none {
		out.System = &system
	}
	if hub {
		out.ResponseTopic = "" // a hub takes no answers there
	}
	return out, deliveriesBefore(m) > 0
}

// deliveriesBefore returns how often the peer says that it delivered a message before.
func deliveriesBefore(m *amqp.Message) (n int) {
	if v, ok := m.Annotations["iothub-deliverycount"]; ok {
		n, _ = strconv.Atoi(valueText(v))
	}
	if h := m.Header; h != nil {
		n = max(n, int(min(h.DeliveryCount, math.MaxInt16)))
	}
	return n
}

// readStandard reads the section of AMQP's own properties.
func readStandard(p *amqp.MessageProperties, out *transport.Message, system *transport.SystemProperties) {
	out.ID, out.CorrelationID = idText(p.MessageID), idText(p.CorrelationID)
	system.UserID = string(p.UserID)
	for _, field := range [...]struct {
		from *string
		to   *string
	}{
		{p.ContentType, &out.ContentType}, {p.ContentEncoding, &out.ContentEncoding}, {p.ReplyTo, &out.ResponseTopic},
		{p.To, &system.To},
	} {
		if field.from != nil {
			*field.to = *field.from
		}
	}
	if p.AbsoluteExpiryTime != nil {
		out.Expires = p.AbsoluteExpiryTime.UTC()
	}
	if p.CreationTime != nil {
		out.Created = p.CreationTime.UTC()
	}
}

// idText returns a message id, of any of its four types, as text.
func idText(id any) string {
	if id == nil {
		return ""
	}
	return valueText(id)
}

// valueText returns a simple AMQP value as text.
func valueText(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case []byte:
		return base64.StdEncoding.EncodeToString(v)
	case amqp.UUID:
		return v.String()
	case time.Time:
		return v.UTC().Format(timeLayout)
	}
	return fmt.Sprint(v)
}

package amqp

import (
	"encoding/base64"
	"fmt"
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
// the message is durable, so it survives a restart as in a hub. The component becomes an annotation
// for a hub only: a peer detaches the link for an unknown annotation that does not begin with
// "x-opt-" (AMQP 1.0 part 3, 3.2.10).
func (f *plain) fill(m *transport.Message, hub bool) *amqp.Message {
	f.data[0] = m.Body
	f.properties = amqp.MessageProperties{}
	out, p, set := &f.message, &f.properties, false
	out.Data, out.Properties, out.ApplicationProperties = f.data[:], nil, nil
	out.Header, out.Annotations = nil, nil
	if !hub {
		out.Header = &durable
	}
	if m.ID != "" {
		p.MessageID, set = m.ID, true
	}
	if m.CorrelationID != "" {
		p.CorrelationID, set = m.CorrelationID, true
	}
	if m.ContentType != "" {
		p.ContentType, set = &m.ContentType, true
	}
	if m.ContentEncoding != "" {
		p.ContentEncoding, set = &m.ContentEncoding, true
	}
	if !m.Expires.IsZero() {
		at := m.Expires.Truncate(time.Millisecond)
		p.AbsoluteExpiryTime, set = &at, true
	}
	if !m.Created.IsZero() && !hub {
		at := m.Created.Truncate(time.Millisecond)
		p.CreationTime, set = &at, true
	}
	if set {
		out.Properties = p
	}
	if m.Component != "" && hub {
		out.Annotations = amqp.Annotations{subject: m.Component}
	}
	timed, marked := !m.Created.IsZero() && hub, m.Component != "" && !hub
	if n := len(m.Properties); n > 0 || timed || marked {
		out.ApplicationProperties = make(map[string]any, n+1)
		if timed {
			out.ApplicationProperties[creationTime] = m.Created.UTC().Format(timeLayout)
		}
		if marked {
			out.ApplicationProperties[subject] = m.Component
		}
		for _, q := range m.Properties {
			out.ApplicationProperties[q.Name] = q.Value
		}
	}
	return out
}

// durable is the header of a message that survives a restart of the broker. The library does not
// write to it.
var durable = amqp.MessageHeader{Durable: true, Priority: 4}

const timeLayout = "2006-01-02T15:04:05.000Z"

// annotationNames are the annotations of a cloud-to-device message that become properties, under
// the same names. Lock token and sequence number do not.
var annotationNames = []string{"iothub-enqueuedtime", "iothub-deliverycount", "x-opt-input-name"}

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

// inbound converts a cloud-to-device message. again: the hub delivered it before.
func inbound(m *amqp.Message) (out transport.Message, again bool) {
	out.Body = bodyOf(m)
	if h := m.Header; h != nil {
		again = h.DeliveryCount > 0
	}
	if p := m.Properties; p != nil {
		out.ID, out.CorrelationID = idText(p.MessageID), idText(p.CorrelationID)
		if p.ContentType != nil {
			out.ContentType = *p.ContentType
		}
		if p.ContentEncoding != nil {
			out.ContentEncoding = *p.ContentEncoding
		}
		if p.AbsoluteExpiryTime != nil {
			out.Expires = p.AbsoluteExpiryTime.UTC()
		}
		if p.CreationTime != nil {
			out.Created = p.CreationTime.UTC()
		}
		if len(p.UserID) > 0 {
			out.Properties = append(out.Properties, transport.Property{Name: "user-id", Value: string(p.UserID)})
		}
	}
	out.Component, _ = m.Annotations[subject].(string)
	for name, v := range m.ApplicationProperties {
		if text, ok := v.(string); ok && name == subject {
			out.Component = text
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
	for _, name := range annotationNames {
		v, ok := m.Annotations[name]
		if !ok {
			continue
		}
		if name == "iothub-deliverycount" {
			n, _ := strconv.Atoi(valueText(v))
			again = again || n > 0
			continue
		}
		out.Properties = append(out.Properties, transport.Property{Name: name, Value: valueText(v)})
	}
	return out, again
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

// Package message converts between transport.Message and the messages of AMQP 1.0, for IoT hubs and
// other brokers.
package message

import (
	"encoding/base64"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/transport"
)

const timeLayout = "2006-01-02T15:04:05.000Z"

// enqueuedTime is the annotation of a hub's message that becomes a property of that name.
const enqueuedTime = "iothub-enqueuedtime"

// Body returns the body: data, or a simple value, as text unless it is binary. ok is false for
// another body, which has no bytes.
func Body(m *wire.Message) (body []byte, ok bool) {
	switch v := m.Value.(type) {
	case nil:
		return m.Body(), len(m.Sequence) == 0
	case []byte:
		return v, true
	case wire.Map, wire.List, wire.Array, *wire.Described, wire.Decimal32, wire.Decimal64, wire.Decimal128:
		return nil, false
	}
	return []byte(ValueText(m.Value)), true
}

// NoBody is the text with which a message is rejected whose body has no bytes.
const NoBody = "the body is neither data nor a simple value"

// Inbound converts a message from a hub, or from another broker. redelivered: it came before.
func Inbound(m *wire.Message, hub bool) (out transport.Message, redelivered bool) {
	var system transport.SystemProperties
	out.Body, _ = Body(m)
	if p := m.Properties; p != nil {
		readStandard(p, &out, &system)
	}
	readAnnotations(m.MessageAnnotations, hub, &out, &system)
	for _, pair := range m.ApplicationProperties {
		name, v := wire.Text(pair.Key), pair.Value
		if readApplication(name, v, hub, &out, &system) {
			continue
		}
		if text, ok := v.(string); ok && name == creationTime {
			if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
				out.Created = at.UTC()
				continue
			}
		}
		out.Properties = append(out.Properties, transport.Property{Name: name, Value: ValueText(v)})
	}
	slices.SortFunc(out.Properties, func(a, b transport.Property) int { return strings.Compare(a.Name, b.Name) })
	if v, ok := m.MessageAnnotations.Get(enqueuedTime); ok {
		out.Properties = append(out.Properties, transport.Property{Name: enqueuedTime, Value: ValueText(v)})
	}
	if system != none {
		out.System = &system
	}
	if hub {
		out.ResponseTopic = "" // a hub takes no answers there
	}
	return out, DeliveriesBefore(m) > 0
}

// DeliveriesBefore returns how often the peer says that it delivered a message before.
func DeliveriesBefore(m *wire.Message) (n int) {
	if v, ok := m.MessageAnnotations.Get("iothub-deliverycount"); ok {
		n, _ = strconv.Atoi(ValueText(v))
	}
	if h := m.Header; h != nil {
		n = max(n, int(min(h.DeliveryCount, math.MaxInt16)))
	}
	return n
}

// readStandard reads the section of AMQP's own properties.
func readStandard(p *wire.Properties, out *transport.Message, system *transport.SystemProperties) {
	out.ID, out.CorrelationID = IDText(p.MessageID), IDText(p.CorrelationID)
	system.UserID = string(p.UserID)
	out.ContentType, out.ContentEncoding = string(p.ContentType), string(p.ContentEncoding)
	out.ResponseTopic, system.To = p.ReplyTo.V, p.To.V
	if p.AbsoluteExpiryTime.OK {
		out.Expires = time.UnixMilli(int64(p.AbsoluteExpiryTime.V)).UTC()
	}
	if p.CreationTime.OK {
		out.Created = time.UnixMilli(int64(p.CreationTime.V)).UTC()
	}
}

// IDText returns a message id, of any of its four types, as text.
func IDText(id any) string {
	if id == nil {
		return ""
	}
	return ValueText(id)
}

// ValueText returns a simple AMQP value as text.
func ValueText(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case []byte:
		return base64.StdEncoding.EncodeToString(v)
	case wire.Symbol:
		return string(v)
	case wire.Char:
		return string(rune(v))
	case wire.UUID:
		return v.String()
	case wire.Timestamp:
		return time.UnixMilli(int64(v)).UTC().Format(timeLayout)
	}
	return fmt.Sprint(v)
}

package nexthub

import (
	"time"

	"github.com/hubline-iot/hubline/internal/nextwire"
	"github.com/hubline-iot/hubline/transport"
)

// envelope returns the MQTT message that carries m.
func envelope(typ string, correlation nextwire.ID, m nextwire.Message, expires time.Time) *transport.Message {
	return &transport.Message{
		Body: nextwire.Append(nil, m), ContentType: nextwire.ContentType, CorrelationID: string(correlation[:]),
		Properties: []transport.Property{{Name: nextwire.PropertyType, Value: typ}}, Expires: expires,
	}
}

// typeOf returns the user property "type" of a message, empty if it has none.
func typeOf(m *transport.Message) string {
	for i := range m.Properties {
		if m.Properties[i].Name == nextwire.PropertyType {
			return m.Properties[i].Value
		}
	}
	return ""
}

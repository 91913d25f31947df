package amqpfront

import (
	"fmt"
	"time"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/testbroker/internal/document"
)

// The log has bodies of bytes and properties of text. Clients in languages without declared types
// send numbers, booleans and values in their place.

// strictTypes refuses a message with properties that are no strings, or a body that is no data.
func strictTypes(m *wire.Message) error {
	if m.HasValue {
		return wire.Errorf(wire.NotAllowed, "body that is not data")
	}
	for _, p := range m.ApplicationProperties {
		if _, ok := p.Value.(string); !ok {
			return wire.Errorf(wire.InvalidField, "property %q is a %T, only strings are allowed", p.Key, p.Value)
		}
	}
	return nil
}

// bodyOf returns the body of a message: its data, or a value that is a text or bytes.
func bodyOf(m *wire.Message) ([]byte, error) {
	if len(m.Sequence) > 0 {
		return nil, wire.Errorf(wire.NotAllowed, "body that is a sequence")
	}
	if !m.HasValue {
		return m.Body(), nil
	}
	switch v := m.Value.(type) {
	case nil:
		return nil, nil
	case string:
		return []byte(v), nil
	case []byte:
		return v, nil
	}
	return nil, wire.Errorf(wire.NotAllowed, "body that is a value of the type %T, only text and bytes are allowed",
		m.Value)
}

// propertyText returns the text of a simple value; false for others.
func propertyText(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case wire.Symbol:
		return string(v), true
	case wire.Char:
		return string(rune(v)), true
	case wire.UUID:
		return v.String(), true
	case wire.Timestamp:
		return time.UnixMilli(int64(v)).UTC().Format(document.TimeLayout), true
	case bool, uint8, uint16, uint32, uint64, int8, int16, int32, int64, float32, float64:
		return fmt.Sprint(v), true
	}
	return "", false
}

package amqpwire_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
)

// FuzzFields compares what is written value by value with what is written as a whole.
func FuzzFields(f *testing.F) {
	f.Add("a", "b", int64(1), uint32(7), []byte("x"), 2)
	f.Add("", "", int64(-129), uint32(0), []byte{}, 0)
	f.Add(strings.Repeat("k", 300), strings.Repeat("v", 240), int64(1)<<40, uint32(256), make([]byte, 256), 130)
	f.Fuzz(func(t *testing.T, key, text string, long int64, id uint32, body []byte, many int) {
		key, text = strings.ToValidUTF8(key, "?"), strings.ToValidUTF8(text, "?")
		name := wire.Symbol(strings.Map(func(r rune) rune { return r & 0x7f }, key))
		if body == nil {
			body = []byte{} // nil is absent
		}
		many = min(max(many, 0), 300)
		m := &wire.Message{MessageAnnotations: wire.Map{}, ApplicationProperties: wire.Map{}, Data: [][]byte{body},
			Properties: &wire.Properties{ContentType: name, ContentEncoding: name}}
		annotations := wire.BeginMessageAnnotations(nil)
		for range many {
			m.MessageAnnotations = append(m.MessageAnnotations, wire.Pair{Key: name, Value: long},
				wire.Pair{Key: name, Value: wire.Timestamp(long)}, wire.Pair{Key: name, Value: text})
			annotations.Symbol(name)
			annotations.Long(long)
			annotations.Symbol(name)
			annotations.Timestamp(wire.Timestamp(long))
			annotations.Symbol(name)
			annotations.String(text)
		}
		properties := wire.BeginProperties(annotations.End())
		if text == "" {
			properties.Absent()
		} else {
			m.Properties.MessageID = text
			properties.String(text)
		}
		if len(body) == 0 {
			properties.Absent()
		} else {
			m.Properties.UserID = body
			properties.Binary(body)
		}
		for range 4 {
			properties.Absent()
		}
		for range 2 {
			if name == "" {
				properties.Absent()
			} else {
				properties.Symbol(name)
			}
		}
		application := wire.BeginApplicationProperties(properties.End())
		for range many {
			m.ApplicationProperties = append(m.ApplicationProperties, wire.Pair{Key: key, Value: text})
			application.String(key)
			application.String(text)
		}
		want, err := wire.AppendMessage(nil, m)
		require.NoError(t, err)
		require.Equal(t, want, wire.AppendData(application.End(), body))

		for _, settled := range []bool{false, true} {
			want, err = wire.AppendFrame([]byte("before"), uint16(id), &wire.Transfer{Handle: id, DeliveryID: wire.Some(id / 3),
				DeliveryTag: body, MessageFormat: wire.Some(uint32(0)), Settled: wire.Some(settled)}, []byte(text))
			require.NoError(t, err)
			require.Equal(t, want, wire.AppendDelivery([]byte("before"), uint16(id), id, id/3, body, settled, []byte(text)))
		}
	})
}

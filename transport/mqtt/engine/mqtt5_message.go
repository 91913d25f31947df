package engine

import (
	"errors"
	"time"

	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
)

// Names of the user properties for fields of a Message that MQTT 5 has no property for, unless a
// dialect has others. An application cannot use them: Message.Validate reserves them.
const (
	nameID       = "message-id"
	nameCreated  = "creation-time"
	nameEncoding = "content-encoding"
	nameSubject  = "dt-subject"
)

var names = dialect.Names{ID: nameID, Created: nameCreated, Encoding: nameEncoding, Component: nameSubject}

// utf8Encoding is the ContentEncoding that is sent as the payload format indicator.
const utf8Encoding = "utf-8"

// appendProperties appends the properties of m, or returns an error about m alone. now is the clock
// of m.Expires. It allocates only when dst must grow.
func appendProperties(dst []byte, m *transport.Message, by *dialect.Names, now func() time.Time) ([]byte,
	*transport.Error) {
	if by == nil {
		by = &names
	}
	if by.Type != "" {
		dst = mqttwire.AppendPair(dst, "type", by.Type)
	}
	if m.ContentEncoding == utf8Encoding {
		dst = mqttwire.AppendNumber(dst, mqttwire.PayloadFormat, 1)
	}
	if !m.Expires.IsZero() {
		dst = mqttwire.AppendNumber(dst, mqttwire.MessageExpiry, seconds(m.Expires.Sub(now())))
	}
	if m.ContentType != "" {
		if !mqttwire.ValidText(m.ContentType) {
			return dst, noText("ContentType")
		}
		dst = mqttwire.AppendString(dst, mqttwire.ContentType, m.ContentType)
		if by.ContentType != "" {
			dst = mqttwire.AppendPair(dst, by.ContentType, m.ContentType)
		}
	}
	if m.ResponseTopic != "" {
		if !mqttwire.ValidText(m.ResponseTopic) {
			return dst, noText("ResponseTopic")
		}
		dst = mqttwire.AppendString(dst, mqttwire.ResponseTopic, m.ResponseTopic)
	}
	if m.CorrelationID != "" {
		if len(m.CorrelationID) > mqttwire.MaxText {
			return dst, noText("CorrelationID")
		}
		dst = mqttwire.AppendString(dst, mqttwire.CorrelationData, m.CorrelationID)
	}
	if m.ID != "" {
		if !mqttwire.ValidText(m.ID) {
			return dst, noText("ID")
		}
		dst = mqttwire.AppendPair(dst, by.ID, m.ID)
	}
	if !m.Created.IsZero() {
		dst = append(mqttwire.AppendPairName(dst, by.Created), 0, byte(times.ISOSize))
		dst = times.AppendISO(dst, m.Created)
	}
	if m.ContentEncoding != "" && (by.EncodingToo || m.ContentEncoding != utf8Encoding) {
		if !mqttwire.ValidText(m.ContentEncoding) {
			return dst, noText("ContentEncoding")
		}
		dst = mqttwire.AppendPair(dst, by.Encoding, m.ContentEncoding)
	}
	if m.Component != "" {
		if !mqttwire.ValidText(m.Component) {
			return dst, noText("Component")
		}
		dst = mqttwire.AppendPair(dst, by.Component, m.Component)
	}
	for i := range m.Properties {
		p := &m.Properties[i]
		if !mqttwire.ValidText(p.Name) || !mqttwire.ValidText(p.Value) {
			return dst, noText("Properties")
		}
		dst = mqttwire.AppendPair(dst, p.Name, p.Value)
	}
	return dst, nil
}

func noText(field string) *transport.Error {
	return mqttwire.Refused(transport.OpSend, transport.Invalid, errors.New("message "+field+textRule))
}

// maxProperties is the most user properties of a received message that are kept: a message of many
// empty ones would take ten times its size.
const maxProperties = 512

// readProperties sets the fields of m from the properties of its PUBLISH, without those whose value
// is not allowed. It allocates one string for all.
func readProperties(m *transport.Message, p mqttwire.Properties) {
	if len(p) == 0 {
		return
	}
	all := string(p)
	for rest := p; ; {
		v, after, ok := rest.Next()
		if !ok {
			return
		}
		end := len(all) - len(after) // of the property, with which its text or value ends
		rest = after
		if v.Check() != nil {
			continue
		}
		switch v.ID {
		case mqttwire.PayloadFormat:
			if v.Number == 1 {
				m.ContentEncoding = utf8Encoding
			}
		case mqttwire.MessageExpiry:
			m.Expires = time.Now().Add(time.Duration(v.Number) * time.Second)
		case mqttwire.ContentType:
			m.ContentType = all[end-len(v.Text) : end]
		case mqttwire.ResponseTopic:
			m.ResponseTopic = all[end-len(v.Text) : end]
		case mqttwire.CorrelationData:
			m.CorrelationID = all[end-len(v.Text) : end]
		case mqttwire.UserProperty:
			value := end - len(v.Value)
			setProperty(m, all[value-2-len(v.Text):value-2], all[value:end])
		default: // subscription identifiers, which are never requested
		}
	}
}

func setProperty(m *transport.Message, name, value string) {
	switch name {
	case nameID:
		m.ID = value
		return
	case nameEncoding:
		m.ContentEncoding = value
		return
	case nameSubject:
		m.Component = value
		return
	case nameCreated:
		if at, ok := times.ParseISO(value); ok {
			m.Created = at
			return
		}
	}
	if len(m.Properties) < maxProperties {
		m.Properties = append(m.Properties, transport.Property{Name: name, Value: value})
	}
}

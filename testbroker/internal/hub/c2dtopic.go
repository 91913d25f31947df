package hub

import (
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

import "strings"

// TimeLayout is the layout of times in topics. Some clients require exactly seven decimals.
const TimeLayout = "2006-01-02T15:04:05.0000000Z"

// DeviceBound returns the topic on which the identity receives C2D messages, without a property
// bag.
func (id Identity) DeviceBound() string { return id.Resource() + "/messages/devicebound/" }

// c2dTopic returns the topic of a C2D message. The destination is always present and first, because
// some clients find the bag by it or fail without a bag. The dollar sign of system properties is
// encoded, as some clients require.
func c2dTopic(m hubdata.C2D, id Identity) string {
	var b strings.Builder
	b.WriteString(id.DeviceBound())
	b.WriteString("%24.to=" + escape("/"+id.Resource()+"/messages/deviceBound"))
	expiry := ""
	if !m.Expiry.IsZero() {
		expiry = m.Expiry.UTC().Format(TimeLayout)
	}
	for _, p := range [...]struct{ name, value string }{
		{"%24.mid", m.MessageID}, {"%24.cid", m.CorrelationID}, {"%24.uid", m.UserID}, {"%24.ct", m.ContentType},
		{"%24.ce", m.ContentEncoding}, {"%24.exp", expiry}, {"iothub-ack", m.Ack},
	} {
		if p.value != "" {
			b.WriteString("&" + p.name + "=" + escape(p.value))
		}
	}
	for _, p := range m.Properties {
		b.WriteString("&" + escape(p.Name) + "=" + escape(p.Value))
	}
	b.WriteString(m.Extra)
	return b.String()
}

// escape percent-encodes every byte except the unreserved ones of RFC 3986.
func escape(s string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '.', c == '_', c == '~':
			b.WriteByte(c)
		default:
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		}
	}
	return b.String()
}

package hub

import "strings"

// TimeLayout is the form of times in topics: exactly seven decimals, without which some clients
// cannot read it.
const TimeLayout = "2006-01-02T15:04:05.0000000Z"

// Commands is the topic that the identity receives C2D messages at, without a property bag.
func (id Identity) Commands() string { return id.Resource() + "/messages/devicebound/" }

// topic is what a C2D message is published to. The destination comes always and first: there are
// clients that find the bag by it, or fail without a bag. The dollar sign of system properties is
// encoded, which some clients insist on.
func (m C2D) topic(id Identity) string {
	var b strings.Builder
	b.WriteString(id.Commands())
	b.WriteString("%24.to=" + escape("/"+id.Resource()+"/messages/deviceBound"))
	expiry := ""
	if !m.Expiry.IsZero() {
		expiry = m.Expiry.UTC().Format(TimeLayout)
	}
	for _, p := range [...]Property{
		{"%24.mid", m.MessageID}, {"%24.cid", m.CorrelationID}, {"%24.uid", m.UserID}, {"%24.ct", m.ContentType},
		{"%24.ce", m.ContentEncoding}, {"%24.exp", expiry}, {"iothub-ack", m.Ack},
	} {
		if p.Value != "" {
			b.WriteString("&" + p.Name + "=" + escape(p.Value))
		}
	}
	for _, p := range m.Properties {
		b.WriteString("&" + escape(p.Name) + "=" + escape(p.Value))
	}
	b.WriteString(m.Extra)
	return b.String()
}

// escape percent-encodes every byte but the unreserved ones of RFC 3986.
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

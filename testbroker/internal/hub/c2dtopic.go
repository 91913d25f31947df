package hub

import (
	"strings"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/document"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
)

// Prefix returns the beginning of the topics of a queue's messages.
func Prefix(id identity.Identity, b Box) string {
	if b == Inputs {
		return id.Resource() + "/inputs/"
	}
	return id.Resource() + "/messages/devicebound/"
}

// A bag is the property bag of a topic while it is built.
type bag struct{ strings.Builder }

// add adds a property whose name is encoded already, unless its value is empty.
func (b *bag) add(name, value string) {
	if value != "" {
		b.pair(name, value)
	}
}

func (b *bag) pair(name, value string) {
	if b.Len() > 0 {
		b.WriteByte('&')
	}
	b.WriteString(name + "=" + escape(value))
}

func (b *bag) properties(all []hubdata.Property) {
	for _, p := range all {
		b.pair(escape(p.Name), p.Value)
	}
}

// c2dTopic returns the topic of a C2D message. The destination is always present and first, because
// some clients find the bag by it or fail without a bag. The dollar sign of system properties is
// encoded, as some clients require.
func c2dTopic(m hubdata.C2D, id identity.Identity) string {
	var b bag
	to := m.To
	if to == "" {
		to = "/" + id.Resource() + "/messages/deviceBound"
	}
	b.add("%24.to", to)
	b.add("%24.mid", m.MessageID)
	b.add("%24.cid", m.CorrelationID)
	b.add("%24.uid", m.UserID)
	b.add("%24.ct", m.ContentType)
	b.add("%24.ce", m.ContentEncoding)
	b.add("%24.exp", document.TimeText(m.Expiry))
	b.add("%24.schema", m.Schema)
	b.add("%24.cdid", m.ConnectionDeviceID)
	b.add("%24.cmid", m.ConnectionModuleID)
	b.add("%24.sub", m.Component)
	b.rare(m)
	b.add("iothub-ack", m.Ack)
	b.properties(m.Properties)
	return Prefix(id, Commands) + b.String() + m.Extra
}

// inputTopic returns the topic of a message to an input. The order is that of edge gateways, whose
// system properties are the last.
func inputTopic(m hubdata.C2D, id identity.Identity, input string) string {
	var b bag
	b.properties(m.Properties)
	b.add("iothub-ack", m.Ack)
	b.add("%24.ce", m.ContentEncoding)
	b.add("%24.ct", m.ContentType)
	b.add("%24.schema", m.Schema)
	b.add("%24.to", m.To)
	b.add("%24.uid", m.UserID)
	b.add("%24.cid", m.CorrelationID)
	b.add("%24.mid", m.MessageID)
	b.add("%24.cdid", m.ConnectionDeviceID)
	b.add("%24.cmid", m.ConnectionModuleID)
	b.add("%24.sub", m.Component)
	b.add("%24.exp", document.TimeText(m.Expiry))
	b.rare(m)
	return Prefix(id, Inputs) + input + "/" + b.String() + m.Extra
}

func (b *bag) rare(m hubdata.C2D) {
	b.add("%24.ctime", document.TimeText(m.CreationTime))
	b.add("%24.ifid", m.InterfaceID)
	b.add("%24.diagid", m.DiagnosticID)
	b.add("%24.diagctx", m.DiagnosticContext)
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

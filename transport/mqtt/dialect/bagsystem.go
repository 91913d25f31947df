package dialect

import (
	"github.com/hubline-iot/hubline/internal/texts"
	"github.com/hubline-iot/hubline/transport"
)

// What stands here is for messages with an Output or with System. Boards link it only with
// dialect.Hub.

// rareField is a system property with its name in the bag.
type rareField struct {
	name  string // without the "$."
	value *string
}

// rare are the system properties that appendBag and decodeBag do not know, in the order in which
// they are sent.
func rare(m *transport.Message, p *transport.SystemProperties) [9]rareField {
	return [...]rareField{
		{"to", &p.To}, {"uid", &p.UserID}, {"on", &m.Output}, {"schema", &p.Schema}, {"ifid", &p.InterfaceID},
		{"cdid", &p.ConnectionDeviceID}, {"cmid", &p.ConnectionModuleID},
		{"diagid", &p.DiagnosticID}, {"diagctx", &p.DiagnosticContext},
	}
}

const systemPrefix = "%24."

// plain reports whether m has no rare property, as most messages.
func plain(m *transport.Message) bool { return m.System == nil && m.Output == "" }

// appendBagAll is appendBag for a message with all its properties.
func appendBagAll(dst []byte, m *transport.Message) []byte {
	if plain(m) {
		return appendBag(dst, m)
	}
	start := len(dst)
	for _, f := range rare(m, systemOf(m)) {
		if *f.value != "" {
			dst = append(append(append(pair(dst, start), systemPrefix...), f.name...), '=')
			dst = texts.AppendEscaped(dst, *f.value)
		}
	}
	return appendFrom(dst, start, m)
}

// bagSizeAll returns the number of bytes that appendBagAll appends.
func bagSizeAll(m *transport.Message) int {
	if plain(m) {
		return bagSize(m)
	}
	n, pairs := 0, 0
	for _, f := range rare(m, systemOf(m)) {
		if *f.value != "" {
			n += len(systemPrefix) + len(f.name) + len("=") + texts.EscapedSize(*f.value)
			pairs++
		}
	}
	rest := bagSize(m)
	if rest > 0 {
		pairs++
	}
	return n + rest + max(0, pairs-1)
}

// noSystem is System of messages without one.
var noSystem transport.SystemProperties

func systemOf(m *transport.Message) *transport.SystemProperties {
	if m.System == nil {
		return &noSystem
	}
	return m.System
}

// decodeBagAll is decodeBag for all properties. p is memory for m.System, which stays nil if the
// bag has nothing for it.
func decodeBagAll(bag string, m *transport.Message, p *transport.SystemProperties) {
	*p = transport.SystemProperties{}
	decode(bag, m, func(name, value string) bool {
		for _, f := range rare(m, p) {
			if f.name == name {
				*f.value = value
				return true
			}
		}
		return false
	})
	if *p != (transport.SystemProperties{}) {
		m.System = p
	}
}

package dialect

import (
	"strings"
	"time"

	"github.com/hubline-iot/hubline/internal/texts"
	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/transport"
)

// The property bag of a hub is the last level of a message's topic, with properties in the form of
// a URL's query, percent-encoded, and system properties under names that begin with "$.".

// textKeys and systemTexts are the system properties that are strings, in the order in which they
// are sent; momentKeys and moments are those that are times. Empty and zero ones are not sent.
var (
	textKeys   = [...]string{"%24.mid=", "%24.cid=", "%24.ct=", "%24.ce=", "%24.sub="}
	momentKeys = [...]string{"%24.ctime=", "%24.exp="}
)

func systemTexts(m *transport.Message) [len(textKeys)]*string {
	return [...]*string{&m.ID, &m.CorrelationID, &m.ContentType, &m.ContentEncoding, &m.Component}
}

func moments(m *transport.Message) [len(momentKeys)]*time.Time {
	return [...]*time.Time{&m.Created, &m.Expires}
}

// appendBag appends m's bag to dst, without what System and Output hold; appendBagAll is for those.
// It allocates only when dst must grow.
func appendBag(dst []byte, m *transport.Message) []byte { return appendFrom(dst, len(dst), m) }

// appendFrom is appendBag to a bag that begins at start.
func appendFrom(dst []byte, start int, m *transport.Message) []byte {
	for i, value := range systemTexts(m) {
		if *value != "" {
			dst = texts.AppendEscaped(append(pair(dst, start), textKeys[i]...), *value)
		}
	}
	for i, at := range moments(m) {
		if !at.IsZero() {
			dst = appendTime(append(pair(dst, start), momentKeys[i]...), *at)
		}
	}
	for i := range m.Properties {
		p := &m.Properties[i]
		dst = texts.AppendEscaped(pair(dst, start), p.Name)
		dst = append(dst, '=')
		dst = texts.AppendEscaped(dst, p.Value)
	}
	return dst
}

// bagSize returns the number of bytes that appendBag appends; 0 for a message without properties.
func bagSize(m *transport.Message) int {
	n, pairs := 0, len(m.Properties)
	for i, value := range systemTexts(m) {
		if *value != "" {
			n += len(textKeys[i]) + texts.EscapedSize(*value)
			pairs++
		}
	}
	for i, at := range moments(m) {
		if !at.IsZero() {
			n += len(momentKeys[i]) + timeSize
			pairs++
		}
	}
	for i := range m.Properties {
		n += texts.EscapedSize(m.Properties[i].Name) + 1 + texts.EscapedSize(m.Properties[i].Value)
	}
	return n + max(0, pairs-1)
}

// pair appends the separator before a pair that is not the first.
func pair(dst []byte, start int) []byte {
	if len(dst) > start {
		dst = append(dst, '&')
	}
	return dst
}

// appendTime appends t in ISO 8601, UTC, with milliseconds, percent-encoded:
// 2030-01-01T00%3A00%3A00.000Z.
func appendTime(dst []byte, t time.Time) []byte {
	var buf [times.ISOSize]byte
	for _, b := range times.AppendISO(buf[:0], t) {
		if b == ':' {
			dst = append(dst, "%3A"...)
		} else {
			dst = append(dst, b)
		}
	}
	return dst
}

// timeSize is the number of bytes that appendTime appends.
const timeSize = times.ISOSize + 2*len("3A")

// decodeBag reads a bag into m. It accepts variants that hubs are known to send: a raw "$" for
// "%24", a pair without "=", an empty value, one "/" behind the bag. Invalid percent-encoding is
// kept as it is. Application properties and system properties without a field in Message become
// Properties under their names in the bag, except the address, "$.to". decodeBagAll reads all.
func decodeBag(bag string, m *transport.Message) { decode(bag, m, nil) }

// decode is decodeBag. Unless nil, rare takes system properties by their names without "$.", and
// reports whether it did.
func decode(bag string, m *transport.Message, rare func(name, value string) bool) {
	bag = strings.TrimSuffix(bag, "/")
	for bag != "" {
		var item string
		item, bag, _ = strings.Cut(bag, "&")
		rawName, rawValue, _ := strings.Cut(item, "=")
		if rawName == "" {
			continue
		}
		name, value := unescape(rawName), unescape(rawValue)
		if strings.HasPrefix(name, "$.") {
			switch name[2:] {
			case "mid":
				m.ID = value
				continue
			case "cid":
				m.CorrelationID = value
				continue
			case "ct":
				m.ContentType = value
				continue
			case "ce":
				m.ContentEncoding = value
				continue
			case "sub":
				m.Component = value
				continue
			case "ctime":
				m.Created = parseTime(value)
				continue
			case "exp":
				m.Expires = parseTime(value)
				continue
			}
			if rare == nil && name == "$.to" || rare != nil && rare(name[2:], value) {
				continue
			}
		}
		m.Properties = append(m.Properties, transport.Property{Name: name, Value: value})
	}
}

// unescape decodes percent-encoding. Invalid encoding is kept as it is.
func unescape(s string) string {
	if strings.IndexByte(s, '%') < 0 {
		return s
	}
	if out, ok := texts.AppendUnescaped(make([]byte, 0, len(s)), s); ok {
		return string(out)
	}
	return s
}

// parseTime accepts any number of decimals. It returns the zero time for an invalid text.
func parseTime(s string) time.Time {
	t, _ := times.ParseISO(s)
	return t
}

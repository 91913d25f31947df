package wire

import (
	"strings"
	"time"

	"github.com/hubline-iot/hubline/internal/isotime"
	"github.com/hubline-iot/hubline/internal/percent"
	"github.com/hubline-iot/hubline/transport"
)

// A bag is the last level of a message's topic: properties as in a URL's query, percent-encoded,
// system properties under names that begin with "$.".

// text is a system property that is one, as the bag has it, and moment one that is a time. What is
// empty or zero is not sent.
type (
	text struct {
		key   string // with the "=" behind it
		value string
	}
	moment struct {
		key string
		at  *time.Time
	}
)

// texts and moments are the system properties of m's, in the order in which they are sent.
func texts(m *transport.Message) [5]text {
	return [5]text{
		{"%24.mid=", m.ID}, {"%24.cid=", m.CorrelationID}, {"%24.ct=", m.ContentType}, {"%24.ce=", m.ContentEncoding},
		{"%24.sub=", m.Component},
	}
}

func moments(m *transport.Message) [2]moment {
	return [2]moment{{"%24.ctime=", &m.Created}, {"%24.exp=", &m.Expires}}
}

// AppendBag appends m's bag to dst. It allocates only when dst must grow.
func AppendBag(dst []byte, m *transport.Message) []byte {
	start := len(dst)
	for _, f := range texts(m) {
		if f.value != "" {
			dst = percent.Append(append(pair(dst, start), f.key...), f.value)
		}
	}
	for _, f := range moments(m) {
		if !f.at.IsZero() {
			dst = appendTime(append(pair(dst, start), f.key...), *f.at)
		}
	}
	for i := range m.Properties {
		p := &m.Properties[i]
		dst = percent.Append(pair(dst, start), p.Name)
		dst = append(dst, '=')
		dst = percent.Append(dst, p.Value)
	}
	return dst
}

// BagSize is the size of what AppendBag appends; 0 for a message that has nothing to put into a
// bag.
func BagSize(m *transport.Message) int {
	n, pairs := 0, len(m.Properties)
	for _, f := range texts(m) {
		if f.value != "" {
			n += len(f.key) + percent.Size(f.value)
			pairs++
		}
	}
	for _, f := range moments(m) {
		if !f.at.IsZero() {
			n += len(f.key) + timeSize
			pairs++
		}
	}
	for i := range m.Properties {
		n += percent.Size(m.Properties[i].Name) + 1 + percent.Size(m.Properties[i].Value)
	}
	return n + max(0, pairs-1)
}

// pair separates a pair from the one before.
func pair(dst []byte, start int) []byte {
	if len(dst) > start {
		dst = append(dst, '&')
	}
	return dst
}

// appendTime appends t in ISO 8601, UTC, with milliseconds, percent-encoded:
// 2030-01-01T00%3A00%3A00.000Z.
func appendTime(dst []byte, t time.Time) []byte {
	var buf [isotime.Size]byte
	for _, b := range isotime.Append(buf[:0], t) {
		if b == ':' {
			dst = append(dst, "%3A"...)
		} else {
			dst = append(dst, b)
		}
	}
	return dst
}

// timeSize is the size of what appendTime appends.
const timeSize = isotime.Size + 2*len("3A")

// systemNames are what the service calls the system properties that a Message has no field for.
// Applications cannot use these names, so they stand among the Properties without being mistaken.
// Of those that are not listed the name of the wire stays.
var systemNames = [...]struct{ wire, name string }{
	{"uid", "user-id"},
	{"schema", "iothub-message-schema"},
	{"ifid", "iothub-interface-id"},
	{"on", "iothub-outputname"},
	{"cdid", "iothub-connection-device-id"},
	{"cmid", "iothub-connection-module-id"},
	{"diagid", "iothub-diagnostics-id"},
	{"diagctx", "iothub-diagnostics-context"},
}

// DecodeBag reads a bag into m. It takes what hubs are known to send: a raw "$" for "%24", a pair
// without "=", an empty value, one "/" behind the bag. What is not percent-encoded properly is
// taken as it stands. System properties that a Message has no field for become Properties, but for
// the address.
func DecodeBag(bag string, m *transport.Message) {
	bag = strings.TrimSuffix(bag, "/")
	for bag != "" {
		var item string
		item, bag, _ = strings.Cut(bag, "&")
		rawName, rawValue, _ := strings.Cut(item, "=")
		if rawName == "" {
			continue
		}
		name, value := unescape(rawName), unescape(rawValue)
		if !strings.HasPrefix(name, "$.") {
			m.Properties = append(m.Properties, transport.Property{Name: name, Value: value})
			continue
		}
		switch name[2:] {
		case "mid":
			m.ID = value
		case "cid":
			m.CorrelationID = value
		case "ct":
			m.ContentType = value
		case "ce":
			m.ContentEncoding = value
		case "sub":
			m.Component = value
		case "ctime":
			m.Created = parseTime(value)
		case "exp":
			m.Expires = parseTime(value)
		case "to": // our own address
		default:
			for i := range systemNames {
				if systemNames[i].wire == name[2:] {
					name = systemNames[i].name
					break
				}
			}
			m.Properties = append(m.Properties, transport.Property{Name: name, Value: value})
		}
	}
}

func unescape(s string) string {
	if strings.IndexByte(s, '%') < 0 {
		return s
	}
	if out, ok := percent.Decode(make([]byte, 0, len(s)), s); ok {
		return string(out)
	}
	return s
}

// parseTime takes any number of decimals. What is no time is zero.
func parseTime(s string) time.Time {
	t, _ := isotime.Parse(s)
	return t
}

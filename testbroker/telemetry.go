package testbroker

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// MaxMessage is the size limit of a message in bytes: body, values of system properties, names and
// values of application properties.
const MaxMessage = 256 << 10

// Property is a name with a value.
type Property struct{ Name, Value string }

// Message is a telemetry message as the hub stored it.
type Message struct {
	// DeviceID and ModuleID name the sender. ModuleID is empty for the device itself.
	DeviceID, ModuleID string

	// System properties, empty when absent. Times are the sender's text.
	MessageID       string
	CorrelationID   string
	ContentType     string
	ContentEncoding string
	Component       string // of Plug and Play: "$.sub" over MQTT, "dt-subject" over AMQP and HTTP
	CreationTime    string
	Expiry          string

	// System holds all system properties in the order of the topic, decoded, with their wire names
	// such as "$.mid". Over HTTP, where there is no order, they and the application properties are in
	// the order of their headers' names.
	System []Property
	// Properties holds the application properties in the order of the topic, decoded. The hub adds
	// "mqtt-retain" to a message sent with RETAIN, and "iothub-MessageType" to a will. Names that came
	// as headers of HTTP are in lower case; those of a batch are as they were sent.
	Properties []Property
	// Body is the payload.
	Body []byte

	// Protocol is what it came over.
	Protocol Protocol
	// Topic is what the client published to, undecoded; over AMQP the address of the link, over HTTP
	// the path.
	Topic string
	// QoS is 0 or 1; over AMQP 0 for a message that was sent settled, over HTTP 1.
	QoS byte
	// PacketID is that of MQTT; zero with QoS 0 and for a will.
	PacketID uint16
	// Dup is the DUP flag of MQTT: the sender says that it tries again.
	Dup bool
	// Connection is the number of the connection that the message came by, counted from 1 over the
	// life of the hub.
	Connection uint64
	// Received is when the hub stored it, by the hub's clock.
	Received time.Time
	// Sequence numbers the messages in the order in which the hub stored them, from 1, since it was
	// new or [Hub.Reset].
	Sequence int
}

// Property returns the value of the first application property of that name; false when there is
// none.
func (m *Message) Property(name string) (string, bool) {
	for _, p := range m.Properties {
		if p.Name == name {
			return p.Value, true
		}
	}
	return "", false
}

func (m Message) clone() Message {
	m.System = slices.Clone(m.System)
	m.Properties = slices.Clone(m.Properties)
	m.Body = slices.Clone(m.Body)
	return m
}

func (m *Message) sender() identity { return identity{m.DeviceID, m.ModuleID} }

// size counts as the service's limit does.
func (m *Message) size() int {
	n := len(m.Body)
	for _, p := range m.System {
		n += len(p.Value)
	}
	for _, p := range m.Properties {
		n += len(p.Name) + len(p.Value)
	}
	return n
}

// parseTelemetry reads a topic that the given identity published to.
func parseTelemetry(id identity, topic string) (Message, error) {
	bag, ok := strings.CutPrefix(topic, id.telemetry())
	if !ok {
		return Message{}, fmt.Errorf("%s may not publish to %q", id, topic)
	}
	all, err := parseBag(bag)
	if err != nil {
		return Message{}, fmt.Errorf("topic %q: %w", topic, err)
	}
	m := Message{DeviceID: id.device, ModuleID: id.module, Topic: topic}
	for _, p := range all {
		if !strings.HasPrefix(p.Name, "$.") {
			m.Properties = append(m.Properties, p)
			continue
		}
		m.System = append(m.System, p)
		switch p.Name {
		case "$.mid":
			m.MessageID = p.Value
		case "$.cid":
			m.CorrelationID = p.Value
		case "$.ct":
			m.ContentType = p.Value
		case "$.ce":
			m.ContentEncoding = p.Value
		case "$.sub":
			m.Component = p.Value
		case "$.ctime":
			m.CreationTime = p.Value
		case "$.exp":
			m.Expiry = p.Value
		}
	}
	return m, nil
}

// parseBag reads
//
//	[ pair *( "&" pair ) ] [ "/" ]        pair = name [ "=" [ value ] ]
//
// with names and values percent-encoded. A plus sign stands for itself.
func parseBag(bag string) ([]Property, error) {
	bag = strings.TrimSuffix(bag, "/")
	if bag == "" {
		return nil, nil
	}
	if strings.Contains(bag, "/") {
		return nil, errors.New("slash in the property bag")
	}
	all := make([]Property, 0, strings.Count(bag, "&")+1)
	for pair := range strings.SplitSeq(bag, "&") {
		name, value, _ := strings.Cut(pair, "=")
		var p Property
		var err error
		if p.Name, err = unescape(name); err != nil {
			return nil, err
		}
		if p.Value, err = unescape(value); err != nil {
			return nil, err
		}
		if p.Name == "" {
			return nil, errors.New("property without a name")
		}
		all = append(all, p)
	}
	return all, nil
}

func unescape(s string) (string, error) {
	text, err := url.PathUnescape(s)
	if err == nil && !utf8.ValidString(text) {
		err = fmt.Errorf("%q is not UTF-8", s)
	}
	return text, err
}

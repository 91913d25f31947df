package dialect

import (
	"errors"
	"strings"

	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/internal/texts"
	"github.com/hubline-iot/hubline/transport"
)

// The dialects of IoT Hub. They are values and not a switch so that a linker drops what a board's
// program does not use.
var (
	// Hub has all: telemetry with all system properties, cloud-to-device messages, outputs and inputs
	// of modules, the twin, direct methods, and requests for certificates, which package
	// provisioning/dpscert makes. A module's messages are those of its inputs; a device's are
	// cloud-to-device messages.
	Hub Dialect = hub{}
	// HubTwinAndMethods has no requests for certificates, and neither outputs, inputs nor
	// Message.System: messages to send with an Output or with System are refused as Unsupported. The
	// rare properties of incoming messages stay in Properties under their names on the wire, such as
	// "$.uid", except the address.
	HubTwinAndMethods Dialect = hubTwinAndMethods{}
	// HubMessages has neither the twin nor methods, which take about 5 KB of flash: requests for them
	// are answered with Unsupported. It is HubTwinAndMethods otherwise. In programs built by TinyGo
	// that never call HandleMessages or HandleInput of a device.Client, messages have no properties.
	HubMessages Dialect = hubMessages{}
)

type (
	hub               struct{}
	hubTwinAndMethods struct{}
	hubMessages       struct{}
)

func (hubTwinAndMethods) Session(c *Config) (Session, Hello, error) {
	s := new(twinSession)
	hello, err := s.open(c, apiVersion)
	return s, hello, err
}

func (hubMessages) Session(c *Config) (Session, Hello, error) {
	s := new(messageSession)
	hello, err := s.open(c, apiVersion)
	return s, hello, err
}

// apiVersion is the version of the service's API that the topics and bags here follow.
const apiVersion = "2021-04-12"

// deviceBound and inputs end the topic filters for messages.
const (
	deviceBound = "/messages/devicebound/#"
	inputs      = "/inputs/#"
)

// messageSession has the topics of one identity. Ids stand in them unencoded.
type messageSession struct {
	telemetry string // the topic to publish to, followed by a bag
	messages  string // the topic filter for cloud-to-device messages, or for inputs; it ends in "#"
}

// open sets the topics. version is that of the service's API.
func (s *messageSession) open(c *Config, version string) (Hello, error) {
	if c.Properties {
		return Hello{}, mqttwire.Invalid("options: Protocol is MQTT 5, and a hub speaks 3.1.1; leave it nil, or set Dialect")
	}
	if c.Creds.UserName != "" {
		return Hello{}, mqttwire.Invalid("credentials: UserName is set, and an IoT hub makes its own; leave it empty")
	}
	for _, f := range [...]struct{ name, id string }{{"DeviceID", c.Creds.DeviceID}, {"ModuleID", c.Creds.ModuleID}} {
		if strings.ContainsAny(f.id, "+#") {
			return Hello{}, mqttwire.Invalid("credentials: " + f.name + " " + texts.Quote(f.id) +
				" has '+' or '#', which a topic " +
				"of MQTT cannot have [MQTT-3.3.2-2]; use AMQP or HTTPS, or choose another id")
		}
	}
	base := "devices/" + c.Creds.DeviceID
	id := c.Creds.DeviceID
	if c.Creds.ModuleID != "" {
		base += "/modules/" + c.Creds.ModuleID
		id += "/" + c.Creds.ModuleID
	}
	s.telemetry, s.messages = base+"/messages/events/", base+deviceBound
	h := Hello{ClientID: id, UserName: userName(c, id, version), MaxSize: transport.MaxMessageSize}
	if c.Will != nil {
		return h, h.setWill(s.Publication(c.Will))
	}
	return h, nil
}

// setWill sets the will to p, unless the session refuses to publish it.
func (h *Hello) setWill(p Publication, refused *transport.Error) error {
	if refused != nil {
		return mqttwire.Invalid("options: Will: " + refused.Error())
	}
	h.Will = p
	return nil
}

// userName returns the user name of CONNECT.
func userName(c *Config, id, version string) string {
	b := append([]byte(c.Creds.Host), '/')
	b = append(b, id...)
	b = append(append(b, "/?api-version="...), version...)
	b = append(b, "&DeviceClientType="...)
	b = texts.AppendEscaped(b, c.Agent)
	if c.ModelID != "" {
		b = texts.AppendEscaped(append(b, "&model-id="...), c.ModelID)
	}
	return string(b)
}

var (
	errTopic = errors.New("an IoT hub has topics of its own; leave the message's Topic and ResponseTopic empty")
	errRare  = errors.New("message Output and System have no place in this dialect; leave them unset, or use dialect.Hub")
)

func (s *messageSession) Publication(m *transport.Message) (Publication, *transport.Error) {
	if m.Output != "" || m.System != nil {
		return Publication{}, mqttwire.Refused(transport.OpSend, transport.Unsupported, errRare)
	}
	return s.publication(m, bagSize(m))
}

// publication is Publication for a message whose bag has this size.
func (s *messageSession) publication(m *transport.Message, size int) (Publication, *transport.Error) {
	if m.Topic != "" || m.ResponseTopic != "" {
		return Publication{}, mqttwire.Refused(transport.OpSend, transport.Unsupported, errTopic)
	}
	return Publication{Msg: m, Topic: s.telemetry, Suffix: size, Retain: m.Retain, AtMostOnce: m.AtMostOnce}, nil
}

func (s *messageSession) AppendSuffix(dst []byte, m *transport.Message) []byte {
	return appendBag(dst, m)
}

func (s *messageSession) Filters(want transport.Features) []Filter {
	if want != transport.FeatureMessages {
		return nil
	}
	return []Filter{{Topic: s.messages, QoS: 1}}
}

func (s *messageSession) AppendRequest(dst []byte, _ *transport.Request) ([]byte, byte, bool) {
	return dst, 0, false
}

func (s *messageSession) Take(sink transport.Sink, topic []byte, d *transport.Delivery) {
	inbox := s.messages[:len(s.messages)-len("#")]
	if len(topic) >= len(inbox) && string(topic[:len(inbox)]) == inbox {
		decodeBag(string(topic[len(inbox):]), d.Msg)
		d.Kind = transport.FeatureMessages
		sink.Deliver(d)
	}
}

func (s *messageSession) Missed(transport.Sink, []byte, *transport.Delivery, int, int) {}

package nexthub

import (
	"errors"
	"slices"
	"strings"

	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/internal/nextwire"
	"github.com/hubline-iot/hubline/internal/operr"
	"github.com/hubline-iot/hubline/internal/texts"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
)

// Names of the user properties. Decision: a message on a custom topic has those of telemetry but
// the type, so that a consumer detects repetitions by the message id there, too.
var (
	telemetryNames = names(nextwire.TypeTelemetry)
	customNames    = names("")
)

func names(typ string) dialect.Names {
	return dialect.Names{Type: typ, ID: nextwire.PropertyMessageID, Encoding: nextwire.PropertyEncoding,
		Component: nextwire.PropertyComponent, Created: nextwire.PropertyCreated,
		ContentType: nextwire.PropertyContentType, EncodingToo: true}
}

// Publication refuses fields that this kind of hub has no place for.
func (s *session) Publication(m *transport.Message) (dialect.Publication, *transport.Error) {
	p := dialect.Publication{Msg: m, Topic: s.telemetry, Names: &telemetryNames, AtMostOnce: m.AtMostOnce}
	if err := operr.NoPlaceOutsideHubs(m, "MQTT 5"); err != nil {
		err.Proto = mqttwire.Proto
		return p, err
	}
	switch {
	case m.ResponseTopic != "":
		return p, noPlace("ResponseTopic")
	case m.Retain:
		return p, noPlace("Retain")
	case m.Topic == "" && slices.ContainsFunc(m.Properties, isType):
		return p, noPlace(`property "type"`)
	case m.Topic == "":
		return p, nil
	}
	p.Names = &customNames
	topic, refused := s.topic.fill(m.Topic, s.id)
	p.Topic = topic
	if refused == nil && m.AtMostOnce {
		refused = refusedMessage(transport.Unsupported, "message AtMostOnce: custom topics take QoS 1; leave it unset")
	}
	return p, refused
}

// isType reports whether a property would be taken for the type of the message, which telemetry
// has. Decision: it is refused, as the hub might drop the message.
func isType(p transport.Property) bool { return p.Name == nextwire.PropertyType }

func noPlace(field string) *transport.Error {
	return refusedMessage(transport.Unsupported, "message "+field+
		" has no place in a hub with the MQTT v5 profile; leave it unset")
}

func refusedMessage(kind transport.Kind, text string) *transport.Error {
	return mqttwire.Refused(transport.OpSend, kind, errors.New(text))
}

// AppendSuffix has nothing to append.
func (s *session) AppendSuffix(dst []byte, _ *transport.Message) []byte { return dst }

// filled is the latest custom topic, most often that of the next message, too.
type filled struct{ template, topic string }

const placeholder = "{deviceId}"

// fill puts the device's id in place of "{deviceId}". Other topics than custom ones are not for
// messages: those of the profile and those of brokers themselves.
func (f *filled) fill(template, id string) (string, *transport.Error) {
	if f.template == template {
		return f.topic, nil
	}
	topic := strings.ReplaceAll(template, placeholder, id)
	switch {
	case strings.ContainsAny(strings.ReplaceAll(template, placeholder, ""), "{}"):
		return "", refusedMessage(transport.Invalid, "message Topic "+texts.Quote(template)+
			" has a placeholder other than {deviceId}, the only one of custom topics")
	case strings.ContainsAny(topic, "+#"):
		return "", refusedMessage(transport.Invalid, "message Topic "+texts.Quote(template)+
			" has '+' or '#': the hub takes no wildcards in a topic to publish to")
	case nextwire.Reserved(topic):
		return "", refusedMessage(transport.Unsupported, "message Topic "+texts.Quote(template)+
			" is no custom topic; leave Topic empty for telemetry")
	}
	*f = filled{template, topic}
	return topic, nil
}

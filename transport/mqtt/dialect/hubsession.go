package dialect

import (
	"strings"

	"github.com/hubline-iot/hubline/transport"
)

// hubSession is the session of Hub. To the smaller ones it adds all system properties, outputs, and
// for a module its inputs: it receives on devices/D/modules/M/inputs/NAME/ with a bag behind, in
// place of the topic of cloud-to-device messages, which a module does not have.
type hubSession struct {
	certificateSession
	module bool
	system transport.SystemProperties // of the message that came
}

func (hub) Session(c *Config) (Session, Hello, error) {
	s, version := new(hubSession), apiVersion
	if c.Certificates {
		version = apiVersionCertificates
	}
	plain := *c
	plain.Will = nil
	hello, err := s.open(&plain, version)
	if err == nil && c.Will != nil {
		err = hello.setWill(s.Publication(c.Will))
	}
	if s.module = c.Creds.ModuleID != ""; s.module {
		s.messages = strings.TrimSuffix(s.messages, deviceBound) + inputs
	}
	return s, hello, err
}

func (s *hubSession) Publication(m *transport.Message) (Publication, *transport.Error) {
	return s.publication(m, bagSizeAll(m))
}

func (s *hubSession) AppendSuffix(dst []byte, m *transport.Message) []byte {
	return appendBagAll(dst, m)
}

// Take ignores messages without the name of an input.
func (s *hubSession) Take(sink transport.Sink, topic []byte, d *transport.Delivery) {
	inbox := s.messages[:len(s.messages)-len("#")]
	if len(topic) < len(inbox) || string(topic[:len(inbox)]) != inbox {
		s.certificateSession.Take(sink, topic, d)
		return
	}
	properties := string(topic[len(inbox):])
	if s.module {
		var input string
		if input, properties, _ = strings.Cut(properties, "/"); input == "" {
			return
		}
		d.Msg.Input = unescape(input)
	}
	decodeBagAll(properties, d.Msg, &s.system)
	d.Kind = transport.FeatureMessages
	sink.Deliver(d)
}

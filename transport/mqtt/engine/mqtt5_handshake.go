package engine

import (
	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/transport"
)

func (v *five) read(s *session, h mqttwire.Header, body []byte) (topic []byte, m *transport.Message, done bool,
	err error) {
	in, done, err := v.readPublish(s, h.Flags, body, true)
	if err != nil || done {
		return nil, nil, done, asViolation(err)
	}
	m = s.delivery(&in).Msg
	readProperties(m, in.Properties)
	return in.Topic, m, false, nil
}

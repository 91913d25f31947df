package engine

import (
	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/transport"
)

func (v *five) read(s *session, h mqttwire.Header, body []byte) ([]byte, *transport.Message, error) {
	in, err := mqttwire.ReadPublish5(h.Flags, body)
	if err != nil {
		return nil, nil, mqttwire.Violation{Err: err}
	}
	m := s.delivery(&in).Msg
	readProperties(m, in.Properties)
	return in.Topic, m, nil
}

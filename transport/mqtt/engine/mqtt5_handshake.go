package engine

import (
	"github.com/hubline-iot/hubline/internal/mqttpacket"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/internal/wire"
)

func (v *five) read(s *session, h mqttpacket.Header, body []byte) ([]byte, *transport.Message, error) {
	in, err := mqttpacket.ReadPublish5(h.Flags, body)
	if err != nil {
		return nil, nil, wire.Violation{Err: err}
	}
	m := s.delivery(&in).Msg
	readProperties(m, in.Properties)
	return in.Topic, m, nil
}

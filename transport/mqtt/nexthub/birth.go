package nexthub

import (
	"errors"
	"time"

	"github.com/hubline-iot/hubline/internal/nextwire"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
)

// Handshake subscribes, whatever CONNACK says of the session: the CONNACK before it may have been
// lost, with the session new and empty. Then comes the birth.
func (s *session) Handshake() dialect.Plan {
	// The hub ignores session_present, so that it is left out.
	birth := nextwire.Birth{DesiredVersion: s.held, PushDesired: s.push}
	m := envelope(nextwire.TypeBirth, s.twin.nonce, &birth, time.Time{})
	m.ContentType = ""
	return &dialect.Handshake{
		Filters: []dialect.Filter{{Topic: nextwire.Filter(s.id), QoS: 1}},
		Message: dialect.Publication{Msg: m, Topic: nextwire.Up(s.id, nextwire.FeaturePresence), AtMostOnce: true},
		Answer:  s.acknowledged, Limit: nextwire.StepTimeout,
	}
}

var errBirthAck = errors.New("the hub's answer to the birth of the connection is unreadable")

// acknowledged takes the birth-ack. One with the nonce of another connection is ignored.
func (s *session) acknowledged(topic []byte, m *transport.Message) (mine, done bool, err error) {
	if string(topic) != nextwire.Down(s.id, nextwire.FeaturePresence) {
		return false, false, nil
	}
	if nonce, ok := nextwire.ParseID(m.CorrelationID); !ok || nonce != s.twin.nonce || !nextwire.IsBirthAck(typeOf(m)) {
		return true, false, nil
	}
	var ack nextwire.BirthAck
	if nextwire.Decode(m.Body, &ack) != nil {
		return true, false, errBirthAck
	}
	s.twin.begin(&ack, s.held, s.push)
	s.mu.Lock()
	s.methods.connection++
	s.mu.Unlock()
	s.connected()
	return true, true, nil
}

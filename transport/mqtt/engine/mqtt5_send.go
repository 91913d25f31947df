package engine

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/internal/texts"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
)

var (
	errNoRetain = errors.New("the broker keeps no messages; leave Retain of the message and of dialect.Topics unset")
	errOnlyQoS0 = errors.New("the broker takes QoS 0 only; set AtMostOnce of the message, or of dialect.Topics")
)

func (v *five) prepare(_ *session, p dialect.Publication, o outgoing) (outgoing, error) {
	return v.prepareBy(p, o, v.auth.creds.Time)
}

// prepareBy is prepare with the clock of the message.
func (v *five) prepareBy(p dialect.Publication, o outgoing, now func() time.Time) (outgoing, error) {
	switch {
	case o.Retain && v.peer.noRetain: // [MQTT-3.2.2-14]
		return o, mqttwire.Refused(transport.OpSend, transport.Unsupported, errNoRetain)
	case o.QoS > 0 && v.peer.onlyQoS0: // [MQTT-3.2.2-11]
		return o, mqttwire.Refused(transport.OpSend, transport.Unsupported, errOnlyQoS0)
	}
	block, refused := appendProperties(v.block[:0], p.Msg, p.Names, now)
	if v.alias = v.aliasOf(p); v.alias > 0 && refused == nil {
		block = mqttwire.AppendNumber(block, mqttwire.TopicAlias, uint32(v.alias))
		if int(v.alias) <= len(v.aliases) {
			o.Topic = 0
		}
	}
	v.block = block
	if refused != nil {
		return o, refused
	}
	o.Properties = mqttwire.BlockSize(len(block))
	o.head = o.HeadSize()
	if size := o.head + o.Body; size > v.peer.maxPacket { // [MQTT-3.2.2-15]
		return o, mqttwire.Refused(transport.OpSend, transport.TooLarge, errors.New("the packet has "+strconv.Itoa(size)+
			" bytes, "+strconv.Itoa(o.Body)+" of them in the body, and the broker takes "+strconv.Itoa(v.peer.maxPacket)+
			" at most; send less at once"))
	}
	return o, nil
}

// aliasOf returns the alias of a message's topic: a new one, if it is above the known ones; 0 for
// none.
func (v *five) aliasOf(p dialect.Publication) uint16 {
	if !v.opt.TopicAliases || p.Suffix > 0 || len(p.Topic) <= aliasSize {
		return 0
	}
	for i := range v.aliases {
		if v.aliases[i] == p.Topic {
			return uint16(i + 1)
		}
	}
	if len(v.aliases) < v.peer.aliases {
		return uint16(len(v.aliases) + 1)
	}
	return 0
}

// aliasSize is the size of a topic alias among the properties.
const aliasSize = 3

func (v *five) appendHead(s *session, dst []byte, id uint16, p dialect.Publication, o outgoing) []byte {
	dst = mqttwire.AppendPublish(dst, &o.Outgoing)
	if o.Topic > 0 {
		dst = append(dst, p.Topic...)
		if p.Suffix > 0 {
			dst = s.dialect.AppendSuffix(dst, p.Msg)
		}
		if int(v.alias) > len(v.aliases) {
			v.aliases = append(v.aliases, p.Topic)
		}
	}
	if o.QoS > 0 {
		dst = mqttwire.AppendID(dst, id)
	}
	return mqttwire.AppendBlock(dst, v.block)
}

func (v *five) appendSubscribe(dst []byte, id uint16, filters []dialect.Filter) ([]byte, transport.Kind, error) {
	for i := range filters {
		topic := filters[i].Topic
		shared := strings.HasPrefix(topic, "$share/")
		switch {
		case v.peer.noShared && shared:
			return dst, transport.Unsupported, errors.New("the broker has no shared subscriptions; give dialect.Topics " +
				"Commands without \"$share/\", not " + texts.Quote(topic))
		case v.peer.noWildcard && strings.ContainsAny(topic, "+#"):
			return dst, transport.Unsupported, errors.New("the broker takes no wildcards; give dialect.Topics Commands " +
				"that are whole topics, not " + texts.Quote(topic))
		}
	}
	if v.opt.ExactlyOnce {
		filters = append([]dialect.Filter(nil), filters...)
		for i := range filters {
			filters[i].QoS = 2
		}
	}
	dst, err := mqttwire.AppendSubscribe5(dst, id, mqttwire.Options{NoLocal: v.opt.NoLocal,
		RetainHandling: byte(v.opt.RetainHandling)}, filters...)
	return dst, transport.Invalid, err
}

// appendSettled acknowledges a message: with PUBREC if its reference is one of QoS 2, else PUBACK.
func (v *five) appendSettled(s *session, dst, ref []byte, outcome transport.Outcome) []byte {
	id, second := uint16(ref[0])<<8|uint16(ref[1]), len(ref) == onceRef
	if second && uint16(ref[2])<<8|uint16(ref[3]) != v.generation {
		return dst // it belongs to a session that the broker has forgotten
	}
	s.mu.Lock()
	here := v.unsettled.Has(id) // else it came on an earlier connection
	switch {
	case outcome == transport.OutcomeRelease:
		if here {
			v.declined++
		}
		if v.declined >= v.receiveMaximum && v.ending == nil && s.err == nil {
			v.ending = time.AfterFunc(releasedFor, func() { v.endReleased(s) })
		}
	case here || second:
		if v.unsettled.Remove(id) {
			v.waiting--
		}
		if second {
			v.received.Add(id)
			if here {
				v.pending++
			}
		}
	}
	s.mu.Unlock()
	switch {
	case outcome == transport.OutcomeRelease:
		return dst
	case second:
		return mqttwire.AppendAck(dst, mqttwire.Pubrec, id, 0)
	case !here:
		return dst
	}
	return mqttwire.AppendAck(dst, mqttwire.Puback, id, 0)
}

// endReleased ends a connection on which all messages were released.
func (v *five) endReleased(s *session) {
	s.mu.Lock()
	if s.err == nil {
		v.help(func() {
			s.sayGoodbye(errAllReleased)
			s.fail(errAllReleased)
		})
	}
	s.mu.Unlock()
}

// releasedFor is how long a connection is kept on which the broker may send nothing more, so that
// the handler has time until it gets the released messages again. Over AMQP it is the longest.
const releasedFor = 30 * time.Second

// errAllReleased ends such a connection: a released message comes again on the next one.
var errAllReleased = errors.New("as many messages as the receive maximum were released; the next connection brings " +
	"them again")

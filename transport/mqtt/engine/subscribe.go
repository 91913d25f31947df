package engine

import (
	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
)

// subscription is a SUBSCRIBE that waits for its SUBACK; id is zero when there is none.
type subscription struct {
	id   uint16
	req  uint32
	want transport.Features
}

// maxSubs is the most subscriptions in flight.
const maxSubs = 4

// suback replies to the OpSubscribe.
func (s *session) suback(id uint16, codes []byte) error {
	sub, filters, err := s.answered(id, len(codes))
	if err != nil {
		return err
	}
	var reply transport.Reply
	for i, code := range codes {
		if !mqttwire.Granted(code) {
			reply.Err = mqttwire.Refused(transport.OpSubscribe, mqttwire.SubackMeaning(code).Kind,
				&SubackError{Filter: filters[i].Topic, Code: code})
			break
		}
	}
	return s.subscribedTo(sub, reply)
}

// subscribedTo replies to the OpSubscribe.
func (s *session) subscribedTo(sub subscription, reply transport.Reply) error {
	s.sink.Reply(sub.req, reply)
	if reply.Err == nil && sub.want&transport.FeatureMessages != 0 {
		s.backlog.Subscribed()
		if s.backlog.Over() {
			return mqttwire.ErrBehind
		}
	}
	return nil
}

// answered removes and returns the subscription of a SUBACK, and its filters.
func (s *session) answered(id uint16, codes int) (subscription, []dialect.Filter, error) {
	sub, ok := s.takeSubscription(id)
	filters := s.dialect.Filters(sub.want)
	if !ok || codes != len(filters) {
		return sub, nil, mqttwire.NewViolation("the hub sent a SUBACK that answers no SUBSCRIBE")
	}
	return sub, filters, nil
}

// takeSubscription removes and returns the subscription with this id; ok is false without one.
func (s *session) takeSubscription(id uint16) (sub subscription, ok bool) {
	s.mu.Lock()
	for i := range s.subs {
		if s.subs[i].id == id {
			sub, ok = s.subs[i], true
			s.subs[i] = subscription{}
			break
		}
	}
	s.mu.Unlock()
	return sub, ok
}

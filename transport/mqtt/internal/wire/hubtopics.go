package wire

import (
	"strconv"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/internal/jsonscan"
	"github.com/hubline-iot/hubline/internal/mqttpacket"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/internal/status"
)

// Topics for the twin and for direct methods name no device: they apply to the connection's device.
// ("Communicate with an IoT hub using the MQTT protocol")
const (
	hubPrefix     = "$iothub/"
	twinGet       = "$iothub/twin/GET/?$rid="
	twinPatch     = "$iothub/twin/PATCH/properties/reported/?$rid="
	twinAnswer    = "$iothub/twin/res/"
	desiredChange = "$iothub/twin/PATCH/properties/desired/"
	methodCall    = "$iothub/methods/POST/"
	methodAnswer  = "$iothub/methods/res/"

	paramVersion    = "$version="
	paramRequest    = "$rid="
	paramRetryAfter = "retry-after="
)

// MaxFilters is the most filters in one SUBSCRIBE.
const MaxFilters = 4

// Filters appends the topic filters for the wanted features to dst. Cloud-to-device messages use
// QoS 1. The others use QoS 0: their requests end with the connection.
func (t *Topics) Filters(dst []Filter, want transport.Features) []Filter {
	for _, f := range [MaxFilters]struct {
		feature transport.Features
		filter  Filter
	}{
		{transport.Messages, Filter{Topic: t.Messages, QoS: 1}},
		{transport.Methods, Filter{Topic: methodCall + "#", QoS: 0}},
		{transport.Desired, Filter{Topic: desiredChange + "#", QoS: 0}},
		{transport.Twin, Filter{Topic: twinAnswer + "#", QoS: 0}},
	} {
		if want&f.feature != 0 {
			dst = append(dst, f.filter)
		}
	}
	return dst
}

// Filter is a topic filter with the QoS to request.
type Filter = mqttpacket.Filter

// AppendRequest appends the topic for a request for the twin, or for an answer to a method. ok is
// false for other requests.
func AppendRequest(dst []byte, r *transport.Request) (_ []byte, ok bool) {
	switch r.Op {
	case transport.OpTwinGet:
		dst = append(dst, twinGet...)
		dst = strconv.AppendUint(dst, uint64(r.ID), 10)
	case transport.OpTwinPatch:
		dst = append(dst, twinPatch...)
		dst = strconv.AppendUint(dst, uint64(r.ID), 10)
		if r.Version != 0 {
			dst = append(append(dst, '&'), paramVersion...)
			dst = strconv.AppendInt(dst, r.Version, 10)
		}
	case transport.OpRespond:
		dst = append(dst, methodAnswer...)
		dst = strconv.AppendInt(dst, int64(r.Status), 10)
		dst = append(append(dst, "/?"...), paramRequest...)
		dst = append(dst, r.Ref...)
	default:
		return dst, false
	}
	return dst, true
}

// FromHub reports whether topic belongs to the twin or to methods.
func FromHub[T string | []byte](topic T) bool {
	return len(topic) >= len(hubPrefix) && string(topic[:len(hubPrefix)]) == hubPrefix
}

// Take passes a message on a topic of the twin or of methods to sink. Malformed messages are
// ignored.
func (in *Inbound) Take(sink transport.Sink, topic string, body []byte) {
	if rest, ok := strings.CutPrefix(topic, twinAnswer); ok {
		if id, r, ok := answer(rest, body); ok {
			sink.Reply(id, r)
		}
		return
	}
	in.message = transport.Message{Body: body, Properties: in.message.Properties[:0]}
	in.delivery = transport.Delivery{Msg: &in.message}
	if rest, ok := strings.CutPrefix(topic, desiredChange); ok {
		in.delivery.Kind = transport.Desired
		in.delivery.Version, _ = jsonscan.Int(param(rest, paramVersion))
		sink.Deliver(&in.delivery)
		return
	}
	if rest, ok := strings.CutPrefix(topic, methodCall); ok {
		in.call(sink, rest)
	}
}

// call delivers a method call, with the message in in.delivery.
func (in *Inbound) call(sink transport.Sink, rest string) {
	name, query, ok := strings.Cut(rest, "/")
	request := param(query, paramRequest)
	if !ok || name == "" || request == "" {
		return
	}
	// Hubs escape the characters of a name that a topic cannot hold, "+" and "#" [MQTT-4.7.1], and
	// "%".
	in.delivery.Kind, in.delivery.Name, in.delivery.Ref = transport.Methods, []byte(unescape(name)), []byte(request)
	sink.Deliver(&in.delivery)
}

// answer parses the answer to a request for the twin: "200/?$rid=1&$version=2".
func answer(rest string, body []byte) (id uint32, r transport.Reply, ok bool) {
	code, query, _ := strings.Cut(rest, "/")
	n, ok := jsonscan.Int(code)
	request, ok2 := jsonscan.Int(param(query, paramRequest))
	if !ok || !ok2 || n < 0 || n > 999 || request < 0 || request > 1<<32-1 {
		return 0, r, false
	}
	r.Status, r.Body = int(n), body
	r.Version, _ = jsonscan.Int(param(query, paramVersion))
	if _, good := status.KindOf(r.Status); !good {
		e := status.Refusal(transport.OpTwinGet, Proto, r.Status, body)
		if after, ok := jsonscan.Int(param(query, paramRetryAfter)); ok && after > 0 && after < 1<<31 {
			e.RetryAfter = time.Duration(after) * time.Second
		}
		r.Err = e
	}
	return uint32(request), r, true
}

// AnswerTooLarge returns the reply to the twin request whose answer, on this topic, does not fit
// into the engine's buffer. ok is false for other topics.
func AnswerTooLarge(topic string, size, limit int) (id uint32, r transport.Reply, ok bool) {
	rest, ok := strings.CutPrefix(topic, twinAnswer)
	if !ok {
		return 0, r, false
	}
	id, r, ok = answer(rest, nil)
	e := TooLarge(size, limit)
	e.Op = transport.OpTwinGet
	r.Err = e
	return id, r, ok
}

// Missed reports a change of the desired properties, or a method call, that did not fit into the
// engine's buffer. A change without a version tells the sink that changes were missed; a call
// without a message must be answered.
func (in *Inbound) Missed(sink transport.Sink, topic string) {
	if strings.HasPrefix(topic, desiredChange) {
		in.Take(sink, desiredChange, []byte("{}"))
	} else if rest, ok := strings.CutPrefix(topic, methodCall); ok {
		in.delivery = transport.Delivery{}
		in.call(sink, rest)
	}
}

// param returns the value of a parameter in query; name ends in "=".
func param(query, name string) string {
	query = strings.TrimPrefix(query, "?")
	for query != "" {
		var item string
		item, query, _ = strings.Cut(query, "&")
		if value, ok := strings.CutPrefix(item, name); ok {
			return value
		}
	}
	return ""
}

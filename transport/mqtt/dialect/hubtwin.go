package dialect

import (
	"strconv"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/internal/jsonscan"
	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/internal/statuscode"
	"github.com/hubline-iot/hubline/transport"
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

// twinSession adds the twin and direct methods.
type twinSession struct{ messageSession }

// Filters has QoS 1 for cloud-to-device messages. The others use QoS 0: their requests end with the
// connection.
func (s *twinSession) Filters(want transport.Features) []Filter {
	filters := make([]Filter, 0, 4)
	for _, f := range [...]struct {
		feature transport.Features
		filter  Filter
	}{
		{transport.FeatureMessages, Filter{Topic: s.messages, QoS: 1}},
		{transport.FeatureMethods, Filter{Topic: methodCall + "#", QoS: 0}},
		{transport.FeatureDesired, Filter{Topic: desiredChange + "#", QoS: 0}},
		{transport.FeatureTwin, Filter{Topic: twinAnswer + "#", QoS: 0}},
	} {
		if want&f.feature != 0 {
			filters = append(filters, f.filter)
		}
	}
	return filters
}

func (s *twinSession) AppendRequest(dst []byte, r *transport.Request) ([]byte, byte, bool) {
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
		return dst, 0, false
	}
	return dst, 0, true
}

// aboutDevice reports whether topic belongs to the twin or to methods.
func aboutDevice(topic []byte) bool {
	return len(topic) >= len(hubPrefix) && string(topic[:len(hubPrefix)]) == hubPrefix
}

// Take ignores malformed messages about the twin and methods.
func (s *twinSession) Take(sink transport.Sink, topic []byte, d *transport.Delivery) {
	if !aboutDevice(topic) {
		s.messageSession.Take(sink, topic, d)
		return
	}
	d.Ref = nil
	text := string(topic)
	if rest, ok := strings.CutPrefix(text, twinAnswer); ok {
		if id, r, ok := answer(rest, d.Msg.Body); ok {
			sink.Reply(id, r)
		}
	} else if rest, ok := strings.CutPrefix(text, desiredChange); ok {
		d.Kind = transport.FeatureDesired
		d.Version, _ = jsonscan.Int(param(rest, paramVersion))
		sink.Deliver(d)
	} else if rest, ok := strings.CutPrefix(text, methodCall); ok {
		call(sink, rest, d)
	}
}

// call delivers a method call.
func call(sink transport.Sink, rest string, d *transport.Delivery) {
	name, query, ok := strings.Cut(rest, "/")
	request := param(query, paramRequest)
	if !ok || name == "" || request == "" {
		return
	}
	// Hubs escape the characters of a name that a topic cannot hold, "+" and "#" [MQTT-4.7.1], and
	// "%".
	d.Kind, d.Name, d.Ref = transport.FeatureMethods, []byte(unescape(name)), []byte(request)
	sink.Deliver(d)
}

// Missed answers the request for a twin with TooLarge. A change without a version tells the sink
// that changes were missed; a call without a message must be answered.
func (s *twinSession) Missed(sink transport.Sink, topic []byte, d *transport.Delivery, size, limit int) {
	text := string(topic)
	if rest, ok := strings.CutPrefix(text, twinAnswer); ok {
		if id, r, ok := answer(rest, nil); ok {
			e := mqttwire.TooLarge(size, size, limit)
			e.Op = transport.OpTwinGet
			r.Err = e
			sink.Reply(id, r)
		}
	} else if strings.HasPrefix(text, desiredChange) {
		d.Kind, d.Msg.Body = transport.FeatureDesired, []byte("{}")
		sink.Deliver(d)
	} else if rest, ok := strings.CutPrefix(text, methodCall); ok {
		d.Msg = nil
		call(sink, rest, d)
	}
}

// answer parses the answer to a request for the twin: "200/?$rid=1&$version=2".
func answer(rest string, body []byte) (id uint32, r transport.Reply, ok bool) {
	code, query, _ := strings.Cut(rest, "/")
	n, ok := jsonscan.Int(code)
	request, ok2 := jsonscan.Int(param(query, paramRequest))
	if !ok || !ok2 || n < 0 || n > 999 || !mqttwire.TwinID(uint64(request)) {
		return 0, r, false
	}
	r.Status, r.Body = int(n), body
	r.Version, _ = jsonscan.Int(param(query, paramVersion))
	if _, good := statuscode.TwinKind(r.Status); !good {
		e := statuscode.TwinRefusal(transport.OpTwinGet, mqttwire.Proto, r.Status, body)
		if after, ok := jsonscan.Int(param(query, paramRetryAfter)); ok && after > 0 && after < 1<<31 {
			e.RetryAfter = time.Duration(after) * time.Second
		}
		r.Err = e
	}
	return uint32(request), r, true
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

package dpsamqp

import (
	"strings"
	"time"

	"github.com/hubline-iot/hubline/internal/amqpclient"
	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/internal/jsonscan"
	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/transport"
)

// Application properties of a request, and values of the first.
const (
	operationType = "iotdps-operation-type"
	operationID   = "iotdps-operation-id"
	force         = "iotdps-forceRegistration"

	register = "iotdps-register"
	poll     = "iotdps-get-operationstatus"
)

// request returns the message of a request.
func request(r *provisioning.Request, id string) *wire.Message {
	m := &wire.Message{Properties: &wire.Properties{CorrelationID: id}}
	if r.Operation != "" {
		m.ApplicationProperties = wire.Map{{Key: operationType, Value: poll}, {Key: operationID, Value: r.Operation}}
		m.Value, m.HasValue = poll, true // a message has a body; the official C# client sends this one
		return m
	}
	m.ApplicationProperties = wire.Map{{Key: operationType, Value: register}, {Key: force, Value: false}}
	m.Data = [][]byte{r.Body}
	return m
}

// body returns the body of an answer: its data sections, or its value if that is a text.
func body(m *wire.Message) []byte {
	all := m.Body()
	switch value := m.Value.(type) {
	case string:
		return []byte(value)
	case []byte:
		return value
	}
	return all
}

// answerOf returns the answer that a message is. One without an error has the status 200.
func answerOf(m *wire.Message, now time.Time) *provisioning.Answer {
	a := &provisioning.Answer{RetryAfter: retryAfter(m.ApplicationProperties, now), Body: body(m)}
	if !hasCode(a.Body) {
		a.Status = 200
	}
	return a
}

// hasCode reports whether text is the service's JSON about an error.
func hasCode(text []byte) bool {
	code, ok := jsonscan.Member(text, "errorCode")
	return ok && string(code) != "null"
}

// rejection returns the answer that the error of a rejected request contains. Without one, the
// condition is the error.
func rejection(e *wire.Error, now time.Time) (*provisioning.Answer, error) {
	var after time.Duration
	var text []byte
	if e != nil {
		after, text = retryAfter(e.Info, now), []byte(e.Description)
	}
	if hasCode(text) {
		return &provisioning.Answer{RetryAfter: after, Body: text}, nil
	}
	cause := amqpclient.ConditionOf("message", e)
	return nil, &transport.Error{Kind: amqpclient.Conditions[cause.Condition], RetryAfter: after, Err: cause}
}

// retryAfter returns the longest delay in the members named retry-after, in any letter case; 0 if
// there is none.
func retryAfter(all wire.Map, now time.Time) (after time.Duration) {
	for _, p := range all {
		if strings.EqualFold(wire.Text(p.Key), "retry-after") {
			after = max(after, delay(p.Value, now))
		}
	}
	return after
}

// maxSeconds replaces longer delays. Package provisioning takes an hour at most.
const maxSeconds = 1 << 20

// delay returns the delay that a value says: a number of seconds, or a text as in HTTP.
func delay(value any, now time.Time) time.Duration {
	switch v := value.(type) {
	case string:
		d, _ := times.ParseRetryAfter(v, now)
		return min(d, maxSeconds*time.Second)
	case int8:
		return seconds(int64(v))
	case int16:
		return seconds(int64(v))
	case int32:
		return seconds(int64(v))
	case int64:
		return seconds(v)
	case uint8:
		return seconds(int64(v))
	case uint16:
		return seconds(int64(v))
	case uint32:
		return seconds(int64(v))
	case uint64:
		return seconds(int64(min(v, maxSeconds)))
	}
	return 0
}

func seconds(n int64) time.Duration { return time.Duration(max(0, min(n, maxSeconds))) * time.Second }

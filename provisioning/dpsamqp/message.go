package dpsamqp

import (
	"strings"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/hubline-iot/hubline/internal/amqpconn"
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
func request(r *provisioning.Request, id string) *amqp.Message {
	m := &amqp.Message{Properties: &amqp.MessageProperties{CorrelationID: id}}
	if r.Operation != "" {
		m.ApplicationProperties = map[string]any{operationType: poll, operationID: r.Operation}
		m.Value = poll // a message has a body; the official C# client sends this one
		return m
	}
	m.ApplicationProperties = map[string]any{operationType: register, force: false}
	m.Data = [][]byte{r.Body}
	return m
}

// body returns the body of an answer: its data sections, or its value if that is a text.
func body(m *amqp.Message) []byte {
	var all []byte
	for _, part := range m.Data {
		all = append(all, part...)
	}
	switch value := m.Value.(type) {
	case string:
		return append(all, value...)
	case []byte:
		return append(all, value...)
	}
	return all
}

// answerOf returns the answer that a message is. One without an error has the status 200.
func answerOf(m *amqp.Message, now time.Time) *provisioning.Answer {
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
func rejection(e *amqp.Error, now time.Time) (*provisioning.Answer, error) {
	var after time.Duration
	var text []byte
	if e != nil {
		after, text = retryAfter(e.Info, now), []byte(e.Description)
	}
	if hasCode(text) {
		return &provisioning.Answer{RetryAfter: after, Body: text}, nil
	}
	cause := amqpconn.ConditionOf("message", e)
	return nil, &transport.Error{Kind: amqpconn.Conditions[cause.Condition], RetryAfter: after, Err: cause}
}

// retryAfter returns the longest delay in the members named retry-after, in any letter case; 0 if
// there is none.
func retryAfter(all map[string]any, now time.Time) (after time.Duration) {
	for name, value := range all {
		if strings.EqualFold(name, "retry-after") {
			after = max(after, delay(value, now))
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

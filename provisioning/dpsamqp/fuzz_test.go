package dpsamqp

import (
	"testing"
	"time"
	"unicode/utf8"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/transport"
)

// FuzzRejection reads any error of a rejected request, and any answer.
func FuzzRejection(f *testing.F) {
	for _, text := range []string{"", "gone", "{}", `{"errorCode":429001,"message":"x"}`, `{"errorCode":null}`,
		"{\"errorCode\":"} {
		for _, hint := range []string{"", "3", "-1", "99999999999999999999", "Tue, 01 Jan 2030 00:00:30 GMT"} {
			f.Add("amqp:not-found", text, hint, int64(3))
			f.Add("", text, hint, int64(-1<<63))
		}
	}
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, condition, text, hint string, n int64) {
		all := wire.Map{{Key: "retry-after", Value: hint}, {Key: "Retry-After", Value: n},
			{Key: wire.Symbol("RETRY-AFTER"), Value: uint64(n)}, {Key: "x", Value: nil}}
		check := func(after time.Duration) {
			if after < 0 || after > maxSeconds*time.Second {
				t.Fatalf("%q, %d: %s", hint, n, after)
			}
		}
		answer, err := rejection(&wire.Error{Condition: wire.Symbol(condition), Description: text, Info: all}, now)
		switch e := transport.Find(err); {
		case (err == nil) == (answer == nil):
			t.Fatalf("%v, %v", answer, err)
		case err == nil && (answer.Status != 0 || !hasCode(answer.Body)):
			t.Fatalf("%+v", answer)
		case err == nil:
			check(answer.RetryAfter)
		default:
			check(e.RetryAfter)
		}
		answer = answerOf(&wire.Message{ApplicationProperties: all, Data: [][]byte{[]byte(text)}}, now)
		check(answer.RetryAfter)
		if string(answer.Body) != text || (answer.Status == 200) == hasCode([]byte(text)) {
			t.Fatalf("%+v", answer)
		}
		if !utf8.ValidString(text) {
			return // no id of an operation
		}
		if _, err := wire.AppendMessage(nil, request(&provisioning.Request{Operation: text}, "1")); err != nil {
			t.Fatal(err)
		}
	})
}

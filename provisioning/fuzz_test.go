package provisioning

import (
	"encoding/json"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/hubline-iot/hubline/internal/jsonscan"
	"github.com/hubline-iot/hubline/transport"
)

func FuzzRead(f *testing.F) {
	for _, body := range []string{"", "{}", `{"operationId":"4.d0a671905ea5b2c8.42d78160-4c78-479e-8be7-61d5e55dac0d",` +
		`"status":"assigning"}`,
		`{"status":"assigned","registrationState":{"assignedHub":"h","deviceId":"d","payload":null,` +
			`"issuedCertificateChain":["AQID", "\u0041Q=="]}}`, `{"errorCode":429001,"message":"\ud83d\ude00 \ud83d"}`,
		`{"status":"failed","registrationState":{"errorCode":400207,"errorMessage":"x"}}`, `{"status":"\u0061ssigned"}`} {
		f.Add(200, int64(3e9), []byte(body))
		f.Add(0, int64(-1), []byte(body))
		f.Add(429, int64(1<<62), []byte(body))
	}
	f.Fuzz(func(t *testing.T, status int, after int64, body []byte) {
		r, err := read(&Answer{Status: status, RetryAfter: time.Duration(after), Body: body}, len(body)%2 == 0)
		if err != nil {
			e := transport.Find(err)
			if e == nil || e.Scope != transport.ScopeOperation || e.RetryAfter < 0 || len(err.Error()) > 16<<10 {
				t.Fatalf("%v", err)
			}
			return
		}
		if r.after < 0 || r.after > time.Hour || len(r.operation) > maxOperation {
			t.Fatalf("%+v", r)
		}
		if a := r.assignment; a != nil {
			creds := transport.Credentials{Host: a.Hub, DeviceID: a.DeviceID}
			if creds.Validate() != nil || len(a.Chain) > maxChain || len(a.Payload) > len(body) {
				t.Fatalf("%+v", a)
			}
		}
	})
}

// FuzzUnquote compares with encoding/json.
func FuzzUnquote(f *testing.F) {
	for _, s := range []string{`"a"`, `"\ud83d\ude00"`, `"\ud83d\u0041"`, `"\u00e9\/\b"`, `"\ude00\ud83d"`, `"\\u0041"`,
		"\"\xff\""} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var want string
		if len(raw) < 2 || raw[0] != '"' || raw[len(raw)-1] != '"' || !utf8.Valid(raw) || json.Unmarshal(raw, &want) != nil {
			return
		}
		if got := jsonscan.Text(raw); got != want {
			t.Fatalf("%s: %q, want %q", raw, got, want)
		}
		list := append(append([]byte(`[ `), raw...), ',')
		list = append(append(list, raw...), ']')
		n := 0
		if !eachText(list, func(text string) {
			if n++; text != want {
				t.Fatalf("%s: %q", list, text)
			}
		}) || n != 2 {
			t.Fatalf("%s: %d texts", list, n)
		}
	})
}

func TestUnquote(t *testing.T) {
	for raw, want := range map[string]string{
		`"a"`: "a", `""`: "", `"\"\\\/\b\f\n\r\t"`: "\"\\/\b\f\n\r\t", `"\u00e9\u20AC"`: "é€", `"\ud83d\ude00!"`: "😀!",
		`"\ud83dx"`: "\ufffdx", `"\ud83d"`: "\ufffd", `"\ud83d\u0041"`: "\ufffdA", `"\ude00"`: "\ufffd", `5`: "", `null`: "",
	} {
		if got := jsonscan.Text([]byte(raw)); got != want {
			t.Errorf("%s: %q, want %q", raw, got, want)
		}
	}
}

package scrub_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/internal/scrub"
)

func TestText(t *testing.T) {
	for _, row := range []struct{ name, in, want string }{
		{"nothing", "mqtt dial: service unavailable: CONNACK 3 (server unavailable)",
			"mqtt dial: service unavailable: CONNACK 3 (server unavailable)"},
		{"empty", "", ""},
		{"token of a hub", "SharedAccessSignature sr=hub%2Fdevices%2Fd&sig=aB%2Bc%3D&se=1700000000&skn=device",
			"SharedAccessSignature sr=hub%2Fdevices%2Fd&sig=(hidden)&se=1700000000&skn=device"},
		{"connection string", "bad: HostName=h;DeviceId=d;SharedAccessKeyName=device;SharedAccessKey=c2VjcmV0Pz8/;x",
			"bad: HostName=h;DeviceId=d;SharedAccessKeyName=device;SharedAccessKey=(hidden);x"},
		{"at the end", "password=hunter2", "password=(hidden)"},
		{"without a value", "token=", "token="},
		{"attribute without a value", "password value=", "password value="},
		{"quoted", `pwd="two words", host`, `pwd="(hidden)", host`},
		{"indented JSON", "{\n  \"a\" : 1,\n  \"token\" :\n    \"abc\",\n  \"b\" : 2\n}",
			"{\n  \"a\" : 1,\n  \"token\" :\n    (hidden)"},
		{"indented JSON with a list", "{\n  \"token\" : [\n    \"a\"\n  ],\n  \"b\" : 2\n}", "{\n  \"token\" : [(hidden)"},
		{"JSON in a URL", "?q=%7B%22token%22%3A%20%22abc%22%2C%22b%22%3A2%7D&x=1",
			"?q=%7B%22token%22%3A%20%22(hidden)%22%2C%22b%22%3A2%7D&x=1"},
		{"a list in a URL", "%22token%22%3A%5B%22a%22%5D%2C%22b%22%3A2&x=1", "%22token%22%3A(hidden)"},
		{"a list over lines without quotes", "token: [\nabc\n]\nconnect: refused", "token: [(hidden)"},
		{"in braces", "Pwd={hunter2;x};Uid=u", "Pwd={(hidden)"},
		{"a quote that does not end", "pwd='it\nconnect: refused", "pwd='(hidden)\nconnect: refused"},
		{"an escape in quotes", `pwd="a\" b", host`, `pwd="(hidden)`},
		{"a name in quotes", `key="Password" value="abc"`, `key="(hidden)`},
		{"in a quoted URL", `Get "https://t.example/?access_token=eyJ.a.b": EOF`,
			`Get "https://t.example/?access_token=(hidden)": EOF`},
		{"before a cause", `Post "https://h/x?sig=abc&se=1": dial tcp 10.0.0.1:443: connect: connection refused`,
			`Post "https://h/x?sig=(hidden)&se=1": dial tcp 10.0.0.1:443: connect: connection refused`},
		{"user of a URL", "dial https://user:pass@proxy.example:8080/a: refused",
			"dial https://(hidden)@proxy.example:8080/a: refused"},
		{"password with an at sign and a slash", "dial https://u:p@ss/hunter2@host/x: refused",
			"dial https://(hidden)@host/x: refused"},
		{"password with a slash", "https://u:hun/ter2@host/x", "https://(hidden)@host/x"},
		{"password that begins with a slash", "https://u:/hunter2@host/x", "https://(hidden)@host/x"},
		{"password without a scheme that begins with a slash", "u:/hunter2@host/x", "u:(hidden)@host/x"},
		{"password with more digits than a port", "https://u:123456/hunter2@host", "https://(hidden)@host"},
		{"password with quotes", "https://u:a'hun|ter2`@host", "https://(hidden)@host"},
		{"at sign in a path after a port", "https://host:443/a@b", "https://host:443/a@b"},
		{"at sign in a path", "https://host/a@b", "https://host/a@b"},
		{"password with a question mark", "https://u:p@ss?hunter2@host/x", "https://(hidden)@host/x"},
		{"user of a proxy without a scheme", `parse "user:hunter2@proxy:3128": refused`,
			`parse "user:(hidden)@proxy:3128": refused`},
		{"path with an at sign", "https://h:8080/@scope/x https://h/a@b", "https://h:8080/@scope/x https://h/a@b"},
		{"address without a user", "wss://hub.example/$iothub a@b", "wss://hub.example/$iothub a@b"},
		{"percent-encoded", "next=https%3A%2F%2Fx%3Fa%26sig%3Dabc", "next=https%3A%2F%2Fx%3Fa%26sig%3D(hidden)"},
		{"escaped for JSON", `{"uri":"https://s/c/b?sv=1\u0026sig=abc"}`, `{"uri":"https://s/c/b?sv=1\u0026sig=(hidden)"}`},
		{"behind an escaped line's end", `bad:\nsig=abc`, `bad:\nsig=(hidden)`},
		{"encoded name after a mark", "?sig%3Dabc", "?sig%3D(hidden)"},
		{"header", "Authorization: Bearer eyJabc", "Authorization: Bearer (hidden)"},
		{"a scheme in a header without a blank", "Cookie:basic]", "Cookie:(hidden)"},
		{"header in quotes", `curl -H "Authorization: Basic dTpodW50ZXIyeA=" "https://h/x" failed`,
			`curl -H "Authorization: Basic (hidden)`},
		{"header whose value is in quotes", "Authorization: 'abc'\nAccept: a", "Authorization: (hidden)\nAccept: a"},
		{"folded header", "Authorization: Bearer eyJabc\r\n def\r\nAccept: a", "Authorization: Bearer (hidden)"},
		{"header folded before its value", "Authorization:\r\n Bearer abc1\nAccept: a", "Authorization:\r\n (hidden)"},
		{"padding after a scheme", "Basic abcd=, refused", "Basic (hidden), refused"},
		{"folded sentence", "token:\n  expired\nauthorization:\n  denied", "token:\n  expired\nauthorization:\n  denied"},
		{"inside a word", "design=1 monkey=2", "design=1 monkey=2"},
		{"several", "sig=a&token=b", "sig=(hidden)&token=(hidden)"},
		{"letters beyond ASCII", "İ sig=geheim ß", "İ sig=(hidden) ß"},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := scrub.Text(row.in); got != row.want {
				t.Errorf("got %q, want %q", got, row.want)
			}
			if again := scrub.Text(row.want); again != row.want {
				t.Errorf("done again it is %q, want %q", again, row.want)
			}
		})
	}
}

// The time grows with the length, not with its square.
func TestLongHostileTextsTakeLittleTime(t *testing.T) {
	for _, part := range []string{"basic%20a=", `cookie%3a1=cookie\n`, `cookie:{a}"`, "/-----key", "token: [\n", "://",
		"cookie:a='", "cookie:a='a\n ", "authorization:basic 'a\n", "cookie:='=`=%22x", "cookie:'   ",
		"pwd='' ", "pwd='a\n"} {
		begin := time.Now()
		scrub.Text(strings.Repeat(part, 128<<10/len(part)))
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("%q: %v", part, took)
		}
	}
}

func TestErrorOfNil(t *testing.T) {
	if got := scrub.Error(nil) + scrub.Error(errors.New("sig=x")); got != "sig=(hidden)" {
		t.Errorf("got %q", got)
	}
}

func FuzzText(f *testing.F) {
	f.Add("a://b@c?sig=", "d")
	f.Add("bearer '", "'")
	f.Add("", "password value=")
	f.Add("authorization:\r\n ", "cookie:basic]")
	f.Fuzz(func(t *testing.T, before, after string) {
		in := before + " SharedAccessKey=4Z7Kv0Qw1x5Tn9 " + after
		out := scrub.Text(in)
		if strings.Contains(out, "4Z7Kv0Qw1x5Tn9") || len(out) > len("(hidden)")*len(in) {
			t.Errorf("%q", out)
		}
		if out := scrub.Peer(in); len(out) > scrub.MaxPeer+len("...") {
			t.Errorf("%d bytes: %q", len(out), out)
		}
		for range 8 { // it hides more, if anything, and comes to an end
			out = scrub.Text(out)
		}
		if again := scrub.Text(out); again != out {
			t.Errorf("%q became %q", out, again)
		}
	})
}

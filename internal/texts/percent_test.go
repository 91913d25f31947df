package texts_test

import (
	"strings"
	"testing"

	"github.com/hubline-iot/hubline/internal/texts"
)

var vectors = []struct{ plain, escaped string }{
	{"", ""},
	{"hub1.example.test/devices/dev-1", "hub1.example.test%2Fdevices%2Fdev-1"},
	{"a:b@c$d", "a%3Ab%40c%24d"},
	{"D3YPCbjg9OEBgbkWVCXmOeKhVVkbOo7jR+VPYEFxF5w=", "D3YPCbjg9OEBgbkWVCXmOeKhVVkbOo7jR%2BVPYEFxF5w%3D"},
	{"high temp", "high%20temp"},
	{"application/json;charset=utf-8", "application%2Fjson%3Bcharset%3Dutf-8"},
	{"$.mid", "%24.mid"},
	{"100%", "100%25"},
	{"%41", "%2541"},
	{"a+b&c=d#e", "a%2Bb%26c%3Dd%23e"},
	{"-._~", "-._~"},
	{"é€😀", "%C3%A9%E2%82%AC%F0%9F%98%80"},
	{"\x00\x7f\xff", "%00%7F%FF"},
}

func TestVectors(t *testing.T) {
	for _, v := range vectors {
		if got := string(texts.AppendEscaped(nil, v.plain)); got != v.escaped {
			t.Errorf("Append(%q) = %q, want %q", v.plain, got, v.escaped)
		}
		if got := texts.EscapedSize(v.plain); got != len(v.escaped) {
			t.Errorf("Size(%q) = %d, want %d", v.plain, got, len(v.escaped))
		}
		if got, ok := texts.AppendUnescaped(nil, v.escaped); !ok || string(got) != v.plain {
			t.Errorf("Decode(%q) = %q, %v, want %q", v.escaped, got, ok, v.plain)
		}
	}
}

func TestEveryByte(t *testing.T) {
	const unreserved = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
	const digits = "0123456789ABCDEF"
	for b := range 256 {
		plain := string([]byte{byte(b)})
		want := "%" + digits[b/16:b/16+1] + digits[b%16:b%16+1]
		decoded := want
		if strings.Contains(unreserved, plain) {
			want = plain
		}
		if got := string(texts.AppendEscaped(nil, plain)); got != want {
			t.Errorf("Append(%q) = %q, want %q", plain, got, want)
		}
		for _, s := range []string{decoded, strings.ToLower(decoded)} {
			if got, ok := texts.AppendUnescaped(nil, s); !ok || string(got) != plain {
				t.Errorf("Decode(%q) = %q, %v, want %q", s, got, ok, plain)
			}
		}
		if b != '%' {
			if got, ok := texts.AppendUnescaped(nil, plain); !ok || string(got) != plain {
				t.Errorf("Decode(%q) = %q, %v, want itself", plain, got, ok)
			}
		}
	}
}

func TestDecodeRefusesAHalfEscape(t *testing.T) {
	for _, s := range []string{"%", "%4", "a%", "a%4", "%%", "%%41", "%4%41", "%4g", "%g4", "%zz", "% 41", "%+1", "%-1",
		"%4\x00", "%é", "%41%", "%\uff11\uff11"} {
		if got, ok := texts.AppendUnescaped(nil, s); ok {
			t.Errorf("Decode(%q) = %q, want a refusal", s, got)
		}
	}
}

func TestBothKeepWhatIsInTheBuffer(t *testing.T) {
	if got := string(texts.AppendEscaped([]byte("a="), "b/c")); got != "a=b%2Fc" {
		t.Errorf("Append: %q", got)
	}
	if got, ok := texts.AppendUnescaped([]byte("a="), "b%2Fc"); !ok || string(got) != "a=b/c" {
		t.Errorf("Decode: %q, %v", got, ok)
	}
}

func TestPlusIsItself(t *testing.T) {
	if got, ok := texts.AppendUnescaped(nil, "a+b%20c"); !ok || string(got) != "a+b c" {
		t.Errorf("%q, %v", got, ok)
	}
}

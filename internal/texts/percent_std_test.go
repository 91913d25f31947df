//go:build !tinygo

package texts_test

import (
	"strings"
	"testing"

	"github.com/hubline-iot/hubline/internal/texts"
)

func TestNothingIsAllocatedIntoABufferThatIsLargeEnough(t *testing.T) {
	buf := make([]byte, 0, 128)
	var ok bool
	if n := testing.AllocsPerRun(200,
		func() { buf = texts.AppendEscaped(buf[:0], "hub1.example.test/devices/a:b@c$d") }); n != 0 {
		t.Errorf("Append: %v allocations", n)
	}
	if n := testing.AllocsPerRun(200,
		func() { buf, ok = texts.AppendUnescaped(buf[:0], "hub1.example.test%2Fdevices%2Fa%3Ab") }); n != 0 || !ok {
		t.Errorf("Decode: %v allocations, %v", n, ok)
	}
}

func FuzzDecode(f *testing.F) {
	for _, v := range vectors {
		f.Add(v.plain)
		f.Add(v.escaped)
	}
	f.Add("%4")
	f.Add("%zz")
	f.Fuzz(func(t *testing.T, s string) {
		// Decoding returns the original, and only "%" escapes remain in the escaped form.
		escaped := string(texts.AppendEscaped(nil, s))
		if back, ok := texts.AppendUnescaped(nil, escaped); !ok || string(back) != s {
			t.Fatalf("%q became %q became %q, %v", s, escaped, back, ok)
		}
		if i := strings.IndexFunc(escaped,
			func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune("/+&=#?;$", r) }); i >= 0 {
			t.Fatalf("%q became %q with %q in it", s, escaped, escaped[i])
		}
		// Decoding never makes the text longer, and escaping the result decodes to the same text.
		plain, ok := texts.AppendUnescaped(nil, s)
		if !ok {
			if !strings.Contains(s, "%") {
				t.Fatalf("%q was refused", s)
			}
			return
		}
		if len(plain) > len(s) {
			t.Fatalf("%q grew to %q", s, plain)
		}
		if again, ok := texts.AppendUnescaped(nil, string(texts.AppendEscaped(nil, string(plain)))); !ok ||
			string(again) != string(plain) {
			t.Fatalf("%q: %q became %q, %v", s, plain, again, ok)
		}
	})
}

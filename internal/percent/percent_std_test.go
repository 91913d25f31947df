//go:build !tinygo

package percent_test

import (
	"strings"
	"testing"

	"github.com/hubline-iot/hubline/internal/percent"
)

func TestNothingIsAllocatedIntoABufferThatIsLargeEnough(t *testing.T) {
	buf := make([]byte, 0, 128)
	var ok bool
	if n := testing.AllocsPerRun(200,
		func() { buf = percent.Append(buf[:0], "hub1.example.test/devices/a:b@c$d") }); n != 0 {
		t.Errorf("Append: %v allocations", n)
	}
	if n := testing.AllocsPerRun(200,
		func() { buf, ok = percent.Decode(buf[:0], "hub1.example.test%2Fdevices%2Fa%3Ab") }); n != 0 || !ok {
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
		escaped := string(percent.Append(nil, s))
		if back, ok := percent.Decode(nil, escaped); !ok || string(back) != s {
			t.Fatalf("%q became %q became %q, %v", s, escaped, back, ok)
		}
		if i := strings.IndexFunc(escaped,
			func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune("/+&=#?;$", r) }); i >= 0 {
			t.Fatalf("%q became %q with %q in it", s, escaped, escaped[i])
		}
		// Decoding never makes the text longer, and escaping the result decodes to the same text.
		plain, ok := percent.Decode(nil, s)
		if !ok {
			if !strings.Contains(s, "%") {
				t.Fatalf("%q was refused", s)
			}
			return
		}
		if len(plain) > len(s) {
			t.Fatalf("%q grew to %q", s, plain)
		}
		if again, ok := percent.Decode(nil, string(percent.Append(nil, string(plain)))); !ok ||
			string(again) != string(plain) {
			t.Fatalf("%q: %q became %q, %v", s, plain, again, ok)
		}
	})
}

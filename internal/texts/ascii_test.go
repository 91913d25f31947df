package texts_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/hubline-iot/hubline/internal/texts"
)

func TestToLower(t *testing.T) {
	for s, want := range map[string]string{"": "", "abc-1": "abc-1", "aBC@[Z": "abc@[z", "ÄB": "Äb"} {
		if got := texts.ToLower(s); got != want {
			t.Errorf("%q: %q, want %q", s, got, want)
		}
	}
}

func TestEqualFold(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"", "", true}, {"a", "A", true}, {"HostName", "hostname", true}, {"a", "b", false}, {"a", "aa", false},
		{"[", "{", false}, {"@", "`", false}, {"K", "\u212a", false}, {"é", "É", false},
	} {
		if got := texts.EqualFold(c.a, c.b); got != c.want {
			t.Errorf("EqualFold(%q, %q) = %v", c.a, c.b, got)
		}
	}
}

// For ASCII, the functions agree with the standard library's.
func FuzzAgainstTheLibrary(f *testing.F) {
	f.Add("HostName", "hostname")
	f.Add("a\"b\\c", "A\"B\\C")
	f.Fuzz(func(t *testing.T, a, b string) {
		text, err := strconv.Unquote(texts.Quote(a))
		if err != nil || text != a {
			t.Errorf("Quote(%q) = %s, which reads as %q, %v", a, texts.Quote(a), text, err)
		}
		if strings.ContainsFunc(a+b, func(r rune) bool { return r > '~' }) {
			return
		}
		if texts.EqualFold(a, b) != strings.EqualFold(a, b) {
			t.Errorf("EqualFold(%q, %q) = %v", a, b, !strings.EqualFold(a, b))
		}
		if texts.EqualFold(a, b) && texts.HashFold(a) != texts.HashFold(b) {
			t.Errorf("HashFold of %q and of %q", a, b)
		}
	})
}

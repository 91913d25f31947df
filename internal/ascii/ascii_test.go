package ascii_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/hubline-iot/hubline/internal/ascii"
)

func TestToLower(t *testing.T) {
	for s, want := range map[string]string{"": "", "abc-1": "abc-1", "aBC@[Z": "abc@[z", "ÄB": "Äb"} {
		if got := ascii.ToLower(s); got != want {
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
		if got := ascii.EqualFold(c.a, c.b); got != c.want {
			t.Errorf("EqualFold(%q, %q) = %v", c.a, c.b, got)
		}
	}
}

// For ASCII, the functions agree with the standard library's.
func FuzzAgainstTheLibrary(f *testing.F) {
	f.Add("HostName", "hostname")
	f.Add("a\"b\\c", "A\"B\\C")
	f.Fuzz(func(t *testing.T, a, b string) {
		text, err := strconv.Unquote(ascii.Quote(a))
		if err != nil || text != a {
			t.Errorf("Quote(%q) = %s, which reads as %q, %v", a, ascii.Quote(a), text, err)
		}
		if strings.ContainsFunc(a+b, func(r rune) bool { return r > '~' }) {
			return
		}
		if ascii.EqualFold(a, b) != strings.EqualFold(a, b) {
			t.Errorf("EqualFold(%q, %q) = %v", a, b, !strings.EqualFold(a, b))
		}
	})
}

func TestNumbersAreThoseOfTheLibrary(t *testing.T) {
	for _, n := range []int64{0, 1, -1, 9, 10, -10, 99, 100, 65535, 1 << 31, -1 << 31, 1<<63 - 1, -1 << 63} {
		if got := string(ascii.AppendInt([]byte("n="), n)); got != "n="+strconv.FormatInt(n, 10) {
			t.Errorf("AppendInt(%d) = %q", n, got)
		}
		if got := string(ascii.AppendUint(nil, uint64(n))); got != strconv.FormatUint(uint64(n), 10) {
			t.Errorf("AppendUint(%d) = %q", uint64(n), got)
		}
		if got := ascii.Itoa(int(n)); got != strconv.Itoa(int(n)) {
			t.Errorf("Itoa(%d) = %q", n, got)
		}
	}
}

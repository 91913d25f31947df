package texts_test

import (
	"testing"

	"github.com/hubline-iot/hubline/internal/texts"
)

func TestUnquote(t *testing.T) {
	for _, c := range []struct {
		in, out string
		ok      bool
	}{
		{"", "", true}, {" a \n", "a", true}, {`"a"`, "a", true}, {" ' a ' ", "a", true}, {"`a`", "a", true},
		{"\u201ca\u201d", "a", true}, {"\u2018a\u2019", "a", true}, {`""`, "", true}, {"a'", "a'", true},
		{"\ufeffa", "a", true}, {" \ufeff \"a\"\r\n", "a", true},
		{`"a`, "a", false}, {`"`, "", false}, {`"a'`, "a'", false},
	} {
		if out, ok := texts.Unquote(c.in); out != c.out || ok != c.ok {
			t.Errorf("Unquote(%q) = %q, %v", c.in, out, ok)
		}
	}
}

func TestOneEditApart(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"retain", "retain", true}, {"retain", "RETAIN", true}, {"retan", "retain", true}, {"retaiin", "retain", true},
		{"retein", "retain", true}, {"retian", "retain", true}, {"rtian", "retain", false}, {"r", "retain", false},
		{"", "a", true}, {"", "ab", false}, {"ab", "ba", true}, {"abc", "cba", false},
	} {
		if texts.OneEditApart(c.a, c.b) != c.want || texts.OneEditApart(c.b, c.a) != c.want {
			t.Errorf("OneEditApart(%q, %q) = %v", c.a, c.b, !c.want)
		}
	}
}

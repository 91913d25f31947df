package dpsfront

import (
	"strings"
	"testing"
)

func FuzzParsePath(f *testing.F) {
	for _, s := range []string{"0ne/registrations/reg-1", "/0ne/Registrations/reg-1", "0ne/registrations", "//",
		"0ne/x/y/z"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		scope, id, ok := parsePath(s)
		if strings.Contains(scope+id, "/") || !ok && scope+id != "" {
			t.Fatalf("%q read as %q %q %v", s, scope, id, ok)
		}
		if ok && !strings.EqualFold(strings.TrimPrefix(s, "/"), scope+"/registrations/"+id) {
			t.Fatalf("%q read as %q %q", s, scope, id)
		}
	})
}

func FuzzRetryHints(f *testing.F) {
	for _, s := range []string{"3", "", "-1", "99999999999", "Thu, 01 Jan 2026 00:00:00 GMT"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if m := retryHints(s); (s == "") != (len(m) == 0) || len(symbols(m)) != len(m) {
			t.Fatalf("%q: %v", s, m)
		}
	})
}

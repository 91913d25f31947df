package texts_test

import (
	"strings"
	"testing"

	"github.com/hubline-iot/hubline/internal/texts"
)

func TestFill(t *testing.T) {
	for _, c := range []struct{ text, module, want, problem string }{
		{"", "", "", ""},
		{"up", "", "up", ""},
		{"site/{device}/up", "", "site/pump-1/up", ""},
		{"{device}/{module}", "m", "pump-1/m", ""},
		{"{device}{device}", "", "pump-1pump-1", ""},
		{"a{b", "", "", "has '{' without '}'; use {device} or {module}"},
		{"a}b{", "", "", "has '{' without '}'"},
		{"a}b", "", "a}b", ""},
		{"{device}}", "", "pump-1}", ""},
		{"{module}", "", "", "has {module}, and the credentials have no ModuleID; set it, or leave the placeholder out"},
		{"{Device}", "", "", `has the unknown placeholder "{Device}"; use {device} or {module}`},
		{"{}", "", "", `placeholder "{}"`},
		{"{{device}}", "", "", `placeholder "{{device}"`},
		{"a/{device}/{x}", "", "", `placeholder "{x}"`},
	} {
		got, problem := texts.FillIDs(c.text, "pump-1", c.module)
		if got != c.want || !strings.HasPrefix(problem, "has") && problem != "" || (problem != "") != (c.problem != "") ||
			!strings.Contains(problem, c.problem) {
			t.Errorf("Fill(%q) = %q, %q", c.text, got, problem)
		}
	}
	// Ids are not searched for placeholders.
	if got, problem := texts.FillIDs("{device}/{module}", "{module}", "{x}"); got != "{module}/{x}" || problem != "" {
		t.Errorf("%q, %q", got, problem)
	}
}

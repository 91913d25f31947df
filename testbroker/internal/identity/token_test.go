package identity_test

import (
	"strings"
	"testing"

	"github.com/hubline-iot/hubline/testbroker/internal/identity"
)

func FuzzParseToken(f *testing.F) {
	for _, s := range []string{
		"SharedAccessSignature " +
			"sr=hub1.example.test%2Fdevices%2Fdev-1&sig=D3YPCbjg9OEBgbkWVCXmOeKhVVkbOo7jR%2BVPYEFxF5w%3D&se=1893456000",
		"SharedAccessSignature " +
			"sr=hub1.example.test&sig=jqevsbxyY%2BOSlaPjzWQE4xd83NR3tgaQfh7sJnadmj8%3D&se=1893456000&skn=device",
		"sharedaccesssignature se=0&sig=YQ%3D%3D&sr=a%252Fb&skn=", "", "SharedAccessSignature ",
		"SharedAccessSignature sr=&sig=&se=", "SharedAccessSignature sr=%zz&sig=YQ%3D%3D&se=99999999999999999999",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		tok, err := identity.ParseToken(s)
		if err != nil {
			return
		}
		if tok.Resource == "" || len(tok.Sig) == 0 || tok.Expires < 0 || !strings.Contains(s, tok.Resource) {
			t.Fatalf("%q read as %+v", s, tok)
		}
		covers := func(module string) bool {
			return tok.Covers("hub1.example.test", identity.Identity{Device: "dev-1", Module: module})
		}
		if covers("") && !covers("mod-1") {
			t.Fatalf("%q covers a device but not its module", s)
		}
	})
}

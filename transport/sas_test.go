package transport_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// goldenKey is the bytes 00 to 1f.
const goldenKey = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="

var goldenExpiry = time.Unix(1893456000, 0)

// golden are tokens computed by other software.
var golden = []struct {
	resource, keyName string
	toSign            string
	token             string
}{
	{
		"hub1.example.test/devices/dev-1", "",
		"hub1.example.test%2Fdevices%2Fdev-1\n1893456000",
		"SharedAccessSignature " +
			"sr=hub1.example.test%2Fdevices%2Fdev-1&sig=D3YPCbjg9OEBgbkWVCXmOeKhVVkbOo7jR%2BVPYEFxF5w%3D&se=1893456000",
	},
	{
		"hub1.example.test/devices/dev-1/modules/mod-1", "",
		"hub1.example.test%2Fdevices%2Fdev-1%2Fmodules%2Fmod-1\n1893456000",
		"SharedAccessSignature sr=hub1.example.test%2Fdevices%2Fdev-1%2Fmodules%2Fmod-1" +
			"&sig=BygQTaq%2B%2BexEDIDsROvbR7QfclF0h64UGKEmLJ7BcRY%3D&se=1893456000",
	},
	{
		"hub1.example.test", "device",
		"hub1.example.test\n1893456000",
		"SharedAccessSignature " +
			"sr=hub1.example.test&sig=jqevsbxyY%2BOSlaPjzWQE4xd83NR3tgaQfh7sJnadmj8%3D&se=1893456000&skn=device",
	},
	{
		"hub1.example.test/devices/a:b@c$d", "",
		"hub1.example.test%2Fdevices%2Fa%3Ab%40c%24d\n1893456000",
		"SharedAccessSignature " +
			"sr=hub1.example.test%2Fdevices%2Fa%3Ab%40c%24d&sig=KFs6rqlpKwuOwJ3tW6KhXFpJwccSJHoJ%2BjzDW5TAhfs%3D&se=1893456000",
	},
}

func TestSignTokenGivesTheGoldenTokens(t *testing.T) {
	sign, err := transport.SharedKey(goldenKey)
	if err != nil {
		t.Errorf("SharedKey: %v", err)
		return
	}
	for _, g := range golden {
		var signed string
		spy := func(ctx context.Context, text []byte) ([]byte, error) {
			signed = string(text)
			return sign(ctx, text)
		}
		token, err := transport.SignToken(context.Background(), spy, g.resource, g.keyName, goldenExpiry)
		if err != nil || token.Text.Reveal() != g.token || !token.Expires.Equal(goldenExpiry) {
			t.Errorf("%s:\n got %s, expires %v, %v\nwant %s", g.resource, token.Text.Reveal(), token.Expires, err, g.token)
		}
		if signed != g.toSign {
			t.Errorf("%s: signed %q, want %q", g.resource, signed, g.toSign)
		}
	}
}

func TestSignTokenCutsTheExpiryToSeconds(t *testing.T) {
	sign, _ := transport.SharedKey(goldenKey)
	token, err := transport.SignToken(context.Background(), sign, golden[0].resource, "",
		goldenExpiry.Add(999*time.Millisecond))
	if err != nil || token.Text.Reveal() != golden[0].token || !token.Expires.Equal(goldenExpiry) {
		t.Errorf("%s, expires %v, %v", token.Text.Reveal(), token.Expires, err)
	}
}

func TestSignTokenEscapesThePolicyName(t *testing.T) {
	sign, _ := transport.SharedKey(goldenKey)
	token, err := transport.SignToken(context.Background(), sign, "h", "a b&sig=c", goldenExpiry)
	if err != nil || !strings.HasSuffix(token.Text.Reveal(), "&se=1893456000&skn=a%20b%26sig%3Dc") {
		t.Errorf("%s, %v", token.Text.Reveal(), err)
	}
}

func TestSignTokenReturnsTheSignersError(t *testing.T) {
	broken := errors.New("no secure element")
	sign := func(context.Context, []byte) ([]byte, error) { return nil, broken }
	token, err := transport.SignToken(context.Background(), sign, "h", "", goldenExpiry)
	if !errors.Is(err, broken) || token.Text != nil {
		t.Errorf("%v, %v", token, err)
	}
}

func TestSharedKeyErrorDoesNotRepeatTheKey(t *testing.T) {
	for _, key := range []string{
		"", "c2Vj cmV0!", "c2VjcmV0c2VjcmV0c2VjcmV0", "c2VjcmV0c2VjcmV0c2VjcmV0c2V", "c2VjcmV0c2VjcmV0_2VjcmV0-2VjcmV0",
		"====",
	} {
		sign, err := transport.SharedKey(key)
		if key == "c2VjcmV0c2VjcmV0c2VjcmV0" {
			if err != nil || sign == nil {
				t.Errorf("a good key: %v", err)
			}
			continue
		}
		e := transport.Find(err)
		if sign != nil || e == nil || e.Kind != transport.Invalid || e.Op != transport.OpOpen {
			t.Errorf("%q: %v", key, err)
			continue
		}
		if len(key) > 6 && strings.Contains(err.Error(), key[:6]) {
			t.Errorf("the error shows the key: %v", err)
		}
	}
}

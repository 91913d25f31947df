//go:build !tinygo

package transport_test

import (
	"context"
	"encoding/gob"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/hubline-iot/hubline/transport"
)

var (
	sinkKind  transport.Kind
	sinkError *transport.Error
	sinkBool  bool
	sinkInt   int
	sinkErr   error
)

func TestLookingUpAnErrorAllocatesNothing(t *testing.T) {
	inner := &transport.Error{Kind: transport.Throttled}
	deep := error(&transport.Error{Kind: transport.RetryExpired, Err: fmt.Errorf("in: %w", inner)})
	for range 6 {
		deep = fmt.Errorf("level: %w", deep)
	}
	joined := errors.Join(errors.New("?"), fmt.Errorf("%w, %w", errors.New("?"), deep))
	for name, f := range map[string]func(){
		"Find":      func() { sinkError = transport.Find(deep) },
		"joined":    func() { sinkKind = transport.KindOf(joined) },
		"KindOf":    func() { sinkKind = transport.KindOf(deep) },
		"errors.Is": func() { sinkBool = errors.Is(deep, transport.Throttled) },
		"errors.As": func() { sinkBool = errors.As(deep, &sinkError) },
		"String":    func() { sinkInt = len(transport.Throttled.String()) },
	} {
		if n := testing.AllocsPerRun(200, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func TestCheckingAMessageAllocatesNothing(t *testing.T) {
	m := &transport.Message{
		ID: "m-1", ContentType: "application/json", Created: someTime, Body: []byte("{}"),
		Properties: []transport.Property{{"level",
			"high"}, {"site", "7"}},
	}
	if n := testing.AllocsPerRun(200, func() { sinkInt, sinkErr = m.Size(), m.Validate() }); n != 0 || sinkErr != nil {
		t.Errorf("%v allocations, %v", n, sinkErr)
	}
}

// Printing with any verb or encoder shows neither key nor token.
func TestPrintingShowsNoSecret(t *testing.T) {
	sign, err := transport.SharedKey(goldenKey)
	if err != nil {
		t.Fatal(err)
	}
	token := transport.Token{Text: transport.Hide(golden[0].token), Expires: goldenExpiry}
	signing := transport.Credentials{Host: "hub1.example.test", DeviceID: "dev-1", Sign: sign}
	given := transport.Credentials{
		Host: "hub1.example.test", DeviceID: "dev-1",
		Token: func(context.Context) (transport.Token, error) { return token, nil },
	}
	config := transport.Config{Creds: &signing}
	var text strings.Builder
	for _, v := range []any{token, &token, []transport.Token{token}, map[string]transport.Token{"t": token},
		struct{ T transport.Token }{token}, signing, &signing, given, &given, config, &config} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
			fmt.Fprintf(&text, verb+"\n", v)
		}
	}
	type inside struct {
		token transport.Token
		text  transport.Secret
		point *transport.Token
		list  []transport.Token
		any   any
	}
	deep := inside{token, token.Text, &token, []transport.Token{token}, token}
	for _, v := range []any{deep, &deep, []inside{deep}, map[string]inside{"x": deep}, any(deep), token.Text, &token.Text,
		[]any{token}, reflect.ValueOf(token), reflect.ValueOf(deep)} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x", "%X", "%o", "%b", "%c", "%U", "%e", "%t",
			"% x", "%#q"} {
			fmt.Fprintf(&text, verb+"\n", v)
		}
	}
	for _, v := range []any{token, &token, token.Text, struct{ T transport.Token }{token}} {
		encoded, err := json.Marshal(v)
		text.Write(encoded)
		fmt.Fprint(&text, err, xml.NewEncoder(&text).Encode(v), gob.NewEncoder(&text).Encode(v))
	}
	slog.New(slog.NewTextHandler(&text, nil)).Info("dial", "token", token, "creds", signing, "deep", deep)
	slog.New(slog.NewJSONHandler(&text, nil)).Info("dial", "token", token, "text", token.Text, "deep", deep)
	log.New(&text, "", 0).Println(token, deep, token.Text)
	for _, secret := range []string{goldenKey, goldenKey[:8], "D3YPCbjg", "sig=", "SharedAccessSignature", "[0 1 2 3",
		"0x0, 0x1, 0x2", hex.EncodeToString([]byte("sig=")), strings.ToUpper(hex.EncodeToString([]byte("sig=")))} {
		if strings.Contains(text.String(), secret) {
			t.Errorf("%q was printed:\n%s", secret, text.String())
		}
	}
	if !strings.Contains(text.String(), "dev-1") || !strings.Contains(text.String(), "expires 1893456000") {
		t.Errorf("what is not secret is missing:\n%s", text.String())
	}
}

// Hosts that are IPv6 addresses are those that the library reads and writes, but those with a zone
// or with IPv4 at the end.
func FuzzIPv6Hosts(f *testing.F) {
	for _, s := range []string{"::", "::1", "1::", "1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7::", "::2:3:4:5:6:7:8", ":", ":1",
		"1:", ":::", "1::2::3", "1:2:3:4:5:6:7:8:9", "1:2:3:4:5:6:7:8::", "12345::", "g::", "2001:DB8::A", "fe80::1%eth0",
		"::ffff:10.0.0.1", "1:2", "a:8883", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if !strings.Contains(s, ":") || strings.ContainsAny(s, ".%") {
			return
		}
		ip, err := netip.ParseAddr(s)
		valid := (&transport.Credentials{Host: s, DeviceID: "d"}).Validate() == nil
		if valid != (err == nil && ip.Is6()) {
			t.Errorf("%q: %v, the library: %v, %v", s, valid, ip, err)
		}
	})
}

package transport_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/transport"
)

func TestCredentialsValidateNamesTheFirstFault(t *testing.T) {
	sign := func(context.Context, []byte) ([]byte, error) { return nil, nil }
	token := func(context.Context) (transport.Token, error) { return transport.Token{}, nil }
	const everySign = "-.+%_#*?!(),:=@$'"
	good := transport.Credentials{Host: "hub1.example.test", DeviceID: "dev-1"}
	for _, c := range []struct {
		name   string
		change func(*transport.Credentials)
		want   string // empty: valid
	}{
		{"certificate", func(*transport.Credentials) {}, ""},
		{"key", func(c *transport.Credentials) { c.Sign = sign }, ""},
		{"token source", func(c *transport.Credentials) { c.Token = token }, ""},
		{"module and gateway", func(c *transport.Credentials) { c.ModuleID, c.GatewayHost = "$edgeAgent", "gw_1.local" }, ""},
		{"every sign that an id may have",
			func(c *transport.Credentials) { c.DeviceID, c.ModuleID = "aZ09"+everySign, everySign }, ""},
		{"longest names", func(c *transport.Credentials) {
			c.Host, c.DeviceID, c.ModuleID = strings.Repeat("h", 255), strings.Repeat("d", 128), strings.Repeat("m", 128)
		}, ""},
		{"no host", func(c *transport.Credentials) { c.Host = "" }, "Host is empty"},
		{"scheme", func(c *transport.Credentials) { c.Host = "https://hub1" }, `Host "https://hub1" is not a host name`},
		{"port", func(c *transport.Credentials) { c.Host = "hub1:8883" }, `Host "hub1:8883" is not a host name`},
		{"dots only", func(c *transport.Credentials) { c.Host = "..." }, `Host "..." is not a host name`},
		{"empty label", func(c *transport.Credentials) { c.Host = "hub1..test" }, "is not a host name"},
		{"dot at the start", func(c *transport.Credentials) { c.GatewayHost = ".gw" }, "is not a host name"},
		{"dot at the end", func(c *transport.Credentials) { c.Host = "hub1.example.test." }, ""},
		{"space", func(c *transport.Credentials) { c.Host = "hub 1" }, "is not a host name"},
		{"IPv4", func(c *transport.Credentials) { c.Host, c.GatewayHost = "10.0.0.1", "10.0.0.2" }, ""},
		{"IPv6", func(c *transport.Credentials) { c.Host, c.GatewayHost = "::1", "2001:db8::7" }, ""},
		{"IPv6 in brackets", func(c *transport.Credentials) { c.Host = "[::1]" }, "without scheme, port and brackets"},
		{"IPv6 with zone", func(c *transport.Credentials) { c.Host = "fe80::1%eth0" }, "is not a host name"},
		{"long host", func(c *transport.Credentials) { c.Host = strings.Repeat("h", 256) }, "is not a host name"},
		{"gateway with port", func(c *transport.Credentials) {
			c.GatewayHost = "gw:8883"
		}, `GatewayHost "gw:8883" is not a host name`},
		{"no device", func(c *transport.Credentials) { c.DeviceID = "" }, "DeviceID is empty"},
		{"slash in the device", func(c *transport.Credentials) { c.DeviceID = "a/b" }, `DeviceID "a/b" is not a valid id`},
		{"semicolon in the device", func(c *transport.Credentials) { c.DeviceID = "a;b" }, "DeviceID"},
		{"letter outside ASCII", func(c *transport.Credentials) { c.DeviceID = "gerät" }, "DeviceID"},
		{"line end in the device", func(c *transport.Credentials) { c.DeviceID = "a\n" }, `DeviceID "a\n"`},
		{"long device", func(c *transport.Credentials) { c.DeviceID = strings.Repeat("d", 129) }, "DeviceID"},
		{"bad module", func(c *transport.Credentials) { c.ModuleID = "a b" }, `ModuleID "a b" is not a valid id`},
		{"long module", func(c *transport.Credentials) { c.ModuleID = strings.Repeat("m", 129) }, "ModuleID"},
		{"two proofs", func(c *transport.Credentials) { c.Sign, c.Token = sign, token }, "both Sign and Token are set"},
		{"negative life", func(c *transport.Credentials) { c.TokenLife = -1 }, "TokenLife is negative"},
	} {
		creds := good
		c.change(&creds)
		err := creds.Validate()
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		e := transport.Find(err)
		if e == nil || e.Kind != transport.Invalid || e.Op != transport.OpOpen || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want Invalid on open with %q", c.name, err, c.want)
		}
	}
}

// The set of id characters, byte by byte.
func TestIDCharacters(t *testing.T) {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-.+%_#*?!(),:=@$'"
	for b := range 256 {
		s := string([]byte{byte(b)})
		c := transport.Credentials{Host: "h", DeviceID: s}
		if got, want := c.Validate() == nil, strings.Contains(allowed, s); got != want {
			t.Errorf("id %q valid: %v, want %v", s, got, want)
		}
	}
}

func TestDialHostAndResource(t *testing.T) {
	c := transport.Credentials{Host: "hub", DeviceID: "d"}
	if c.DialHost() != "hub" || c.Resource() != "hub/devices/d" {
		t.Errorf("%s, %s", c.DialHost(), c.Resource())
	}
	c.GatewayHost, c.ModuleID = "gw", "m"
	if c.DialHost() != "gw" || c.Resource() != "hub/devices/d/modules/m" {
		t.Errorf("%s, %s", c.DialHost(), c.Resource())
	}
}

// Monotonic time stops while a machine is suspended, and times with a monotonic reading are
// compared by it.
func TestTimeIsWhatTheClockShows(t *testing.T) {
	for _, c := range []*transport.Credentials{{}, {Now: time.Now}} {
		if s := c.Time().String(); strings.Contains(s, "m=") {
			t.Errorf("%s has a monotonic reading", s)
		}
	}
}

func TestTimeIsNowOrTheWallClock(t *testing.T) {
	c := transport.Credentials{Now: func() time.Time { return someTime }}
	if !c.Time().Equal(someTime) {
		t.Errorf("Time = %v", c.Time())
	}
	c.Now = nil
	if before := time.Now(); c.Time().Before(before) {
		t.Errorf("Time = %v, before %v", c.Time(), before)
	}
}

func TestNewTokenSignsForAnHourOrTokenLife(t *testing.T) {
	sign, err := transport.SharedKey(goldenKey)
	if err != nil {
		t.Errorf("SharedKey: %v", err)
		return
	}
	for _, c := range []struct {
		name  string
		creds transport.Credentials
		ago   time.Duration // from now to the golden expiry
		want  string
	}{
		{"device", transport.Credentials{DeviceID: "dev-1"}, time.Hour, golden[0].token},
		{"module", transport.Credentials{DeviceID: "dev-1", ModuleID: "mod-1"}, time.Hour, golden[1].token},
		{"own life", transport.Credentials{DeviceID: "dev-1", TokenLife: 5 * time.Minute}, 5 * time.Minute, golden[0].token},
		{"gateway", transport.Credentials{DeviceID: "dev-1", GatewayHost: "gw"}, time.Hour, golden[0].token},
		{"signs", transport.Credentials{DeviceID: "a:b@c$d"}, time.Hour, golden[3].token},
		{"policy key", transport.Credentials{DeviceID: "dev-1", KeyName: "device"}, time.Hour,
			golden[0].token + "&skn=device"},
	} {
		creds := c.creds
		creds.Host, creds.Sign = "hub1.example.test", sign
		creds.Now = func() time.Time { return goldenExpiry.Add(-c.ago) }
		token, err := creds.NewToken(context.Background())
		if err != nil || token.Text.Reveal() != c.want || !token.Expires.Equal(goldenExpiry) {
			t.Errorf("%s: %s, expires %v, %v, want %s", c.name, token.Text.Reveal(), token.Expires, err, c.want)
		}
	}
}

func TestNewTokenWithoutSignAndTokenSendsNone(t *testing.T) {
	c := transport.Credentials{Host: "h", DeviceID: "d", Now: func() time.Time { return time.Unix(0, 0) }}
	if token, err := c.NewToken(context.Background()); err != nil || token.Text != nil {
		t.Errorf("%v, %v", token, err)
	}
}

func TestNewTokenNeedsASetClockToSign(t *testing.T) {
	sign, _ := transport.SharedKey(goldenKey)
	year2000 := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		now time.Time
		set bool
	}{
		{time.Unix(0, 0), false}, {time.Time{}, false}, {year2000.Add(-1), false}, {year2000, true},
		{year2000.In(time.FixedZone("west", -8*3600)), true},
	} {
		creds := transport.Credentials{Host: "h", DeviceID: "d", Sign: sign, Now: func() time.Time { return c.now }}
		token, err := creds.NewToken(context.Background())
		if c.set {
			if err != nil || token.Text.Reveal() == "" {
				t.Errorf("%v: %v, %v", c.now, token, err)
			}
			continue
		}
		checkDialError(t, c.now.String(), err, transport.ClockUnset, "set the clock")
		if token.Text != nil {
			t.Errorf("%v: a token beside the error", c.now)
		}
	}
	// A fixed token needs no clock.
	creds := transport.Credentials{
		Token: func(context.Context) (transport.Token, error) { return transport.Token{Text: transport.Hide("t")}, nil },
		Now:   func() time.Time { return time.Unix(0, 0) },
	}
	if token, err := creds.NewToken(context.Background()); err != nil || token.Text.Reveal() != "t" {
		t.Errorf("%v, %v", token, err)
	}
}

type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }

func TestNewTokenErrors(t *testing.T) {
	plain, leak := errors.New("out of reach"), errors.New("GET https://v.example/?sig=abc1")
	throttled := &transport.Error{Kind: transport.Throttled, Op: transport.OpRenew, Proto: "http", RetryAfter: time.Minute,
		Err: plain}
	for _, c := range []struct {
		name         string
		err          error
		source, sign transport.Kind // the resulting kinds for Token and for Sign
		text         string
	}{
		{"without kind", plain, transport.Network, transport.Unauthorized, "out of reach"},
		{"without kind, wrapped", wrapped{plain}, transport.Network, transport.Unauthorized, "wrapped: out of reach"},
		{"a kind", transport.Forbidden, transport.Forbidden, transport.Forbidden, "forbidden"},
		{"a kind, wrapped", wrapped{transport.Unavailable}, transport.Unavailable, transport.Unavailable, "wrapped"},
		{"an error of kind Unknown", &transport.Error{Err: plain}, transport.Unknown, transport.Unknown,
			"dial: unknown error: out of reach"},
		{"an error of the scope of an operation", throttled, transport.Throttled, transport.Throttled,
			"http renew: throttled: out of reach"},
		{"that, wrapped", wrapped{throttled}, transport.Throttled, transport.Throttled,
			"dial: throttled: wrapped: http renew: throttled: out of reach"},
		{"a secret", leak, transport.Network, transport.Unauthorized, "GET https://v.example/?sig=(hidden)"},
		{"a secret with a kind", &transport.Error{Kind: transport.Forbidden, Err: leak}, transport.Forbidden,
			transport.Forbidden, "dial: forbidden: GET https://v.example/?sig=(hidden)"},
		{"that, wrapped", wrapped{&transport.Error{Kind: transport.Forbidden, Err: leak}}, transport.Forbidden,
			transport.Forbidden, "dial: forbidden: wrapped: forbidden: GET https://v.example/?sig=(hidden)"},
		{"a nil pointer", (*nilError)(nil), transport.Network, transport.Unauthorized, "an error whose Error method panics"},
	} {
		t.Run(c.name, func(t *testing.T) {
			source := transport.Credentials{Token: func(context.Context) (transport.Token, error) {
				return transport.Token{Text: transport.Hide("half")}, c.err
			}}
			signer := transport.Credentials{Sign: func(context.Context, []byte) ([]byte, error) { return []byte("half"), c.err }}
			for _, way := range []struct {
				creds *transport.Credentials
				want  transport.Kind
			}{{&source, c.source}, {&signer, c.sign}} {
				token, err := way.creds.NewToken(context.Background())
				checkDialError(t, way.want.String(), err, way.want, c.text)
				if token.Text != nil {
					t.Error("a token beside the error")
				}
				cause, got := transport.Find(c.err), transport.Find(err)
				switch {
				case cause == nil && !errors.Is(err, c.err) && c.name != "a nil pointer":
					t.Errorf("%v: the cause cannot be found", err)
				case cause != nil && got != nil && got.RetryAfter != cause.RetryAfter:
					t.Errorf("RetryAfter = %v, want %v", got.RetryAfter, cause.RetryAfter)
				}
			}
		})
	}
	panics := func(context.Context) (transport.Token, error) { panic((*os.PathError)(nil)) }
	_, err := (&transport.Credentials{Token: panics}).NewToken(context.Background())
	checkDialError(t, "panics with a nil pointer", err, transport.Network, "an error whose Error method panics")
	if throttled.Scope != transport.ScopeOperation {
		t.Error("the user's error was changed")
	}
	empty := transport.Credentials{Token: func(context.Context) (transport.Token, error) { return transport.Token{}, nil }}
	_, err = empty.NewToken(context.Background())
	checkDialError(t, "empty token", err, transport.Unauthorized, "empty token")
}

func TestNewTokenReturnsTheContextsErrorWhenThatEnded(t *testing.T) {
	for _, cause := range []error{errors.New("cut off"), context.Canceled, &transport.Error{Kind: transport.Network}} {
		ctx, cancel := context.WithCancel(context.Background())
		source := transport.Credentials{Token: func(context.Context) (transport.Token, error) {
			cancel()
			return transport.Token{}, cause
		}}
		signer := transport.Credentials{Sign: func(context.Context, []byte) ([]byte, error) { return nil, cause }}
		for _, creds := range []*transport.Credentials{&source, &signer} {
			if token, err := creds.NewToken(ctx); !errors.Is(err, context.Canceled) || token.Text != nil {
				t.Errorf("%v, %v, want context.Canceled", token, err)
			}
		}
	}
	// The token source's own time limit is not that of the caller.
	own := transport.Credentials{Token: func(context.Context) (transport.Token, error) {
		return transport.Token{}, context.DeadlineExceeded
	}}
	_, err := own.NewToken(context.Background())
	checkDialError(t, "own limit", err, transport.Network, "deadline exceeded")
}

func checkDialError(t *testing.T, name string, err error, kind transport.Kind, text string) {
	t.Helper()
	e, ok := err.(*transport.Error)
	if !ok || e.Kind != kind || e.Scope != transport.ScopeConnection || e.Op == transport.OpNone ||
		!strings.Contains(e.Error(), text) {
		t.Errorf("%s: %#v, want %v of the connection with %q", name, err, kind, text)
	}
}

func TestFixedToken(t *testing.T) {
	creds := &transport.Credentials{Host: "broker", DeviceID: "d", UserName: "u", Token: transport.FixedToken("secret")}
	token, err := creds.NewToken(context.Background())
	if err != nil || token.Text.Reveal() != "secret" || !token.Fixed || !token.Expires.IsZero() {
		t.Errorf("%v, %v", token, err)
	}
}

func TestTokenText(t *testing.T) {
	for _, c := range []struct {
		token transport.Token
		want  string
	}{
		{transport.Token{}, "no token"},
		{transport.Token{Expires: someTime}, "no token"},
		{transport.Token{Text: transport.Hide(golden[0].token)}, "token (hidden)"},
		{transport.Token{Text: transport.Hide(golden[0].token), Expires: goldenExpiry}, "token (hidden, expires 1893456000)"},
	} {
		if c.token.String() != c.want || c.token.GoString() != c.want {
			t.Errorf("%q and %q, want %q", c.token.String(), c.token.GoString(), c.want)
		}
	}
}

// An encoder or structured logger shows no more of a token than String does.
func TestTokenMarshalsWithoutItsText(t *testing.T) {
	text, err := transport.Token{Text: transport.Hide("SharedAccessSignature sr=a&sig=secret&se=1"),
		Expires: time.Unix(1, 0)}.MarshalText()
	if err != nil || string(text) != "token (hidden, expires 1)" {
		t.Fatalf("%s, %v", text, err)
	}
}

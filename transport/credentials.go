package transport

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/hubline-iot/hubline/internal/callback"
	"github.com/hubline-iot/hubline/internal/scrub"
	"github.com/hubline-iot/hubline/internal/texts"
)

// Credentials name a device (or one of its modules) and its hub, and make the tokens that
// authenticate it. They hold no key as plain data: signing is a function, so the key may live in a
// secure element, and printing the struct shows no secret, unless UserName is one.
//
// At most one of Sign and Token is set. With neither, no token is sent: the certificate in the
// transport's options authenticates the device. Credentials must not be changed once a client has
// them. One value may serve several clients, so its functions may be called concurrently. The
// context of Sign and Token ends with the attempt or request that needs the token; an error of
// theirs keeps its Kind.
type Credentials struct {
	// Host is the hub's own host name, or an IP address: without port and, for IPv6, without brackets.
	Host string
	// GatewayHost is dialed instead of Host when a gateway is used; tokens and user names still name
	// Host.
	GatewayHost string
	DeviceID    string
	// ModuleID is empty for the device itself.
	ModuleID string

	// UserName is the user name for a broker that is no hub: in CONNECT over MQTT, in SASL PLAIN over
	// AMQP. A hub's user name is made of the other fields, so this one stays empty. It is printed in
	// plain, so take care with a broker that gets a secret token here.
	UserName string

	// Sign computes the HMAC-SHA256 of text under the identity's symmetric key. A fresh token is
	// signed for each connection over MQTT and AMQP, for each renewal in place (AMQP, and MQTT 5 with
	// enhanced authentication), and over HTTPS by the first request, when 85 % of the token's life has
	// passed, and after a refusal.
	// SharedKey makes a Sign from a key in base64.
	Sign func(ctx context.Context, text []byte) (mac []byte, err error)
	// KeyName is the hub policy whose key Sign uses. Empty: the identity's own key.
	KeyName string
	// TokenLife is how long a signed token is valid. 0: one hour.
	TokenLife time.Duration

	// Token returns tokens made elsewhere. It is called whenever Sign would be. For a broker that is
	// no hub the token is the password: FixedToken makes a Token of it.
	Token func(ctx context.Context) (Token, error)

	// Now is the wall clock. Nil: time.Now. A board without a clock battery supplies its own.
	Now func() time.Time
	// Earliest is the minimum time of a set clock. For a device whose clock starts at the build time
	// of its image, use that time plus a day. See Implausible. Zero: when this version of the module
	// was published.
	Earliest time.Time
}

// Token is a shared access signature.
type Token struct {
	// Text is the token as sent: "SharedAccessSignature sr=...". Make it with Hide.
	Text Secret
	// Expires is when the hub stops accepting the token. Zero: not known.
	Expires time.Time
	// Fixed: Token would return the same token again, so it cannot be renewed.
	Fixed bool
}

// String returns the expiry and hides the text.
func (t Token) String() string {
	if t.Text.Reveal() == "" {
		return "no token"
	}
	if t.Expires.IsZero() {
		return "token (hidden)"
	}
	return "token (hidden, expires " + string(strconv.AppendInt(nil, t.Expires.Unix(), 10)) + ")"
}

// GoString is String.
func (t Token) GoString() string { return t.String() }

// MarshalText is String, so that encoders and structured loggers do not show the text either.
func (t Token) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// FixedToken returns a Credentials.Token that always returns text, such as the password for a
// broker. It does not expire.
func FixedToken(text string) func(ctx context.Context) (Token, error) {
	t := Token{Text: Hide(text), Fixed: true}
	return func(context.Context) (Token, error) { return t, nil }
}

// DialHost is the name to connect to and to verify: the gateway's if there is one.
func (c *Credentials) DialHost() string {
	if c.GatewayHost != "" {
		return c.GatewayHost
	}
	return c.Host
}

// Time returns the time of the credentials' clock, in UTC. It has no monotonic reading: monotonic
// time stops while a machine is suspended, but tokens and messages expire by the wall clock.
func (c *Credentials) Time() time.Time {
	if c.Now != nil {
		return c.Now().UTC()
	}
	return time.Now().UTC()
}

// NewToken returns a token for a new connection: from Token, or signed for TokenLife. The zero
// Token means that no token is sent.
//
// If ctx ended, the error is ctx's. Otherwise it is an *Error of Scope Connection. Its Kind is
//
//   - ClockUnset when the clock shows a time before the year 2000;
//   - the Kind of the error of Token or Sign, if it has one;
//   - Network for other errors of Token: a token service out of reach is like a hub out of reach;
//   - Unauthorized for other errors of Sign.
//
// The same holds for a Token or Sign that panics or ends its goroutine.
func (c *Credentials) NewToken(ctx context.Context) (Token, error) {
	switch {
	case c.Token != nil:
		t, err := c.callToken(ctx)
		if err != nil {
			return Token{}, err
		}
		if t.Text.Reveal() == "" {
			return Token{}, dialError(Unauthorized, errors.New("the token source returned an empty token"))
		}
		return t, nil
	case c.Sign != nil:
		now := c.Time()
		if now.Before(clockSet) {
			return Token{}, dialError(ClockUnset, errors.New("set the clock before connecting: a token has an expiry time"))
		}
		life := c.TokenLife
		if life <= 0 {
			life = time.Hour
		}
		t, err := SignToken(ctx, c.callSign, c.Resource(), c.KeyName, now.Add(life))
		if err != nil {
			return Token{}, signError(err)
		}
		return t, nil
	}
	return Token{}, nil
}

// callToken calls Token, which may panic or end its goroutine, as may the methods of its error.
func (c *Credentials) callToken(ctx context.Context) (t Token, err error) {
	failed := callback.Run("Credentials.Token", func() {
		t, err = c.Token(ctx)
		err = tokenError(ctx, err, Network)
	})
	if failed != nil {
		return Token{}, tokenError(ctx, failed, Network)
	}
	return t, err
}

// callSign calls Sign, which may panic or end its goroutine, as may the methods of its error.
func (c *Credentials) callSign(ctx context.Context, text []byte) (mac []byte, err error) {
	failed := callback.Run("Credentials.Sign", func() {
		mac, err = c.Sign(ctx, text)
		err = tokenError(ctx, err, Unauthorized)
	})
	if failed != nil {
		return nil, tokenError(ctx, failed, Unauthorized)
	}
	return mac, err
}

// tokenError converts the error of a callback as NewToken documents, without its secrets. An err
// without a Kind gets the Kind otherwise.
func tokenError(ctx context.Context, err error, otherwise Kind) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	e := Find(err)
	if e == nil {
		if k := KindOf(err); k != Unknown {
			otherwise = k
		}
		return dialError(otherwise, scrub.Cause(err))
	}
	dial := *e
	dial.Scope, dial.Err = ScopeConnection, scrub.Cause(e.Err)
	if dial.Op == OpNone {
		dial.Op = OpDial
	}
	if outer, ok := err.(*Error); !ok || outer != e { // keep the wrapping errors
		dial.Op, dial.Proto, dial.Err = OpDial, "", scrub.Cause(err)
	}
	return &dial
}

// Resource returns the resource of the identity's tokens: "HOST/devices/ID", with "/modules/ID" for
// a module; SignToken percent-encodes it.
func (c *Credentials) Resource() string {
	r := c.Host + "/devices/" + c.DeviceID
	if c.ModuleID != "" {
		r += "/modules/" + c.ModuleID
	}
	return r
}

func dialError(k Kind, cause error) *Error {
	return &Error{Kind: k, Scope: ScopeConnection, Op: OpDial, Err: cause}
}

// Validate returns an *Error of Kind Invalid for the first field that is missing or malformed.
func (c *Credentials) Validate() error {
	switch {
	case c.Host == "":
		return invalidCreds("Host is empty; give the hub's host name")
	case !validHost(c.Host):
		return invalidCreds("Host " + quote(c.Host) + " is not a host name; give letters, digits, '-', '_', and '.' " +
			"between labels, without scheme, port and brackets")
	case c.GatewayHost != "" && !validHost(c.GatewayHost):
		return invalidCreds("GatewayHost " + quote(c.GatewayHost) + " is not a host name; give letters, digits, '-', '_', " +
			"and '.' between labels")
	case c.DeviceID == "":
		return invalidCreds("DeviceID is empty; give the device's id")
	case !validID(c.DeviceID):
		return invalidCreds("DeviceID " + quote(c.DeviceID) + idRule)
	case c.ModuleID != "" && !validID(c.ModuleID):
		return invalidCreds("ModuleID " + quote(c.ModuleID) + idRule)
	case c.Sign != nil && c.Token != nil:
		return invalidCreds("both Sign and Token are set; set one")
	case c.TokenLife < 0:
		return invalidCreds("TokenLife is negative; give a positive duration, or 0 for one hour")
	}
	return nil
}

const idRule = " is not a valid id; use 1 to 128 ASCII letters, digits and - . + % _ # * ? ! ( ) , : = @ $ '"

func invalidCreds(text string) *Error {
	return &Error{Kind: Invalid, Op: OpOpen, Err: errors.New("credentials: " + text)}
}

func validHost(s string) bool {
	if len(s) > 255 {
		return false
	}
	if validIPv6(s) {
		return true
	}
	for i := 0; i < len(s); i++ {
		if s[i] == '.' && (i == 0 || s[i-1] == '.') {
			return false
		}
		if !alphanumeric(s[i]) && s[i] != '-' && s[i] != '_' && s[i] != '.' {
			return false
		}
	}
	return true
}

// validIPv6 reports whether s is an IPv6 address in groups of hexadecimal digits, without zone.
func validIPv6(s string) bool {
	groups, digits, gap := 0, 0, false // of digits in this group; whether "::" was seen
	for i := range len(s) {
		switch c := s[i]; {
		case c == ':' && i > 0 && s[i-1] == ':':
			if gap {
				return false
			}
			gap = true
		case c == ':':
			digits = 0
		case '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f':
			if digits == 0 {
				groups++
			}
			if digits++; digits > 4 {
				return false
			}
		default:
			return false
		}
	}
	n := len(s)
	if n < 2 || s[0] == ':' && s[1] != ':' || s[n-1] == ':' && s[n-2] != ':' {
		return false
	}
	return gap && groups < 8 || !gap && groups == 8
}

// validID checks the length and characters that a hub allows for ids.
func validID(s string) bool {
	if len(s) > 128 {
		return false
	}
	for i := 0; i < len(s); i++ {
		if alphanumeric(s[i]) {
			continue
		}
		switch s[i] {
		case '-', '.', '+', '%', '_', '#', '*', '?', '!', '(', ')', ',', ':', '=', '@', '$', '\'':
		default:
			return false
		}
	}
	return true
}

func alphanumeric(b byte) bool {
	return 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || '0' <= b && b <= '9'
}

func quote(s string) string { return texts.Quote(s) }

// Package brokerurl parses the URL of an MQTT or AMQP 1.0 broker:
//
//	mqtts://user:password@broker.example:8883/?device=pump-1&telemetry=site/{device}/up
//
// The schemes are those of mosquitto, paho, HiveMQ's and EMQX's clients and, for AMQP, of Qpid and
// RabbitMQ. The result is plain data. The transports make options of it, and check topics and
// addresses when they dial.
//
// User name, password, path and the values of parameters are percent-encoded as in RFC 3986. "+"
// is itself, because it is a wildcard in topics; "#" is "%23", because it begins a fragment. "{"
// and "}" need no encoding.
//
// Errors are of Kind Invalid and name the part and the fix. They show nothing of the URL, because
// a wrong delimiter can make a part of a password look like a host or a parameter.
package brokerurl

import (
	"errors"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/hubline-iot/hubline/internal/texts"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// MaxLength is the maximum length of a URL.
const MaxLength = 16 << 10

// DefaultPath is the path of MQTT over WebSocket when the URL has none.
const DefaultPath = "/mqtt"

// WebSocket returns a tunnel to a path. Package websocket sets it when the program starts, so that
// programs link net/http only with that package.
var WebSocket func(path string) netopt.Tunnel

// Protocol is the protocol of a URL's scheme.
type Protocol uint8

// The protocols.
const (
	MQTT Protocol = 1 << iota
	AMQP
)

// String returns the name.
func (p Protocol) String() string {
	if p == AMQP {
		return "AMQP"
	}
	return "MQTT"
}

// URL is the content of a broker's URL. Fields of parameters that are not given are zero.
type URL struct {
	TLS       bool
	WebSocket bool
	// UserName is empty for anonymous clients, and then there is no Password.
	UserName string
	Password transport.Secret
	// Host is a name or an IP address without brackets.
	Host string
	// Addr is "host:port" to connect to.
	Addr string
	// Path is the path of WebSocket, still percent-encoded.
	Path string

	// Device and Module are the identity. The default of Device is ClientID, or UserName if there is a
	// Password, the first that is a valid id. It may be empty.
	Device, Module string
	ClientID       string
	// Telemetry and Commands are topics or addresses.
	Telemetry    string
	Commands     []string
	Retain       bool
	AtMostOnce   bool
	CleanSession bool
	KeepAlive    time.Duration
	Will, Birth  Message
	// MQTT5 is version=5, and MQTT311 is version=3.1.1.
	MQTT5, MQTT311 bool
	// SessionExpiry is NoExpiry for a session that does not expire.
	SessionExpiry time.Duration
}

// NoExpiry is the SessionExpiry of a session that does not expire.
const NoExpiry = time.Duration(1<<32-1) * time.Second

// Message is a will or a birth message. Without a Topic there is none.
type Message struct {
	Topic   string
	Payload string
	Retain  bool
}

// schemes are the schemes that clients use. Paho, autopaho and EMQX have the aliases of mqtt and
// mqtts.
var schemes = [...]struct {
	name      string
	protocol  Protocol
	tls       bool
	webSocket bool
	port      string
}{
	{"mqtt", MQTT, false, false, "1883"},
	{"mqtts", MQTT, true, false, "8883"},
	{"ws", MQTT, false, true, "80"},
	{"wss", MQTT, true, true, "443"},
	{"amqp", AMQP, false, false, "5672"},
	{"amqps", AMQP, true, false, "5671"},
	{"tcp", MQTT, false, false, "1883"},
	{"ssl", MQTT, true, false, "8883"},
	{"tls", MQTT, true, false, "8883"},
	{"tcps", MQTT, true, false, "8883"},
	{"mqtt+ssl", MQTT, true, false, "8883"},
}

// foreignSchemes are schemes of other kinds of URLs that users paste by mistake.
var foreignSchemes = [...]struct{ name, advice string }{
	{"http", "write ws:// for MQTT over WebSocket"},
	{"https", "write wss:// for MQTT over WebSocket"},
	{"nats", "NATS speaks MQTT on a port of its own; write mqtt:// and that port, 1883 by default"},
	{"unix", "write mqtt://localhost and set netopt.Options.Dial"},
	{"sb", "this is an address of Service Bus; write amqps://"},
}

const example = "mqtts://user:password@broker.example:8883/?device=NAME&telemetry=TOPIC"

// Parse parses the URL s of a broker that speaks protocol p. It strips space and quotation marks
// around s.
func Parse(p Protocol, s string) (*URL, error) {
	s, whole := texts.Unquote(s)
	switch {
	case !whole:
		return nil, bad("it begins with a quotation mark and does not end with one; copy it whole")
	case s == "":
		return nil, bad("it is empty; write one such as " + example)
	case len(s) > MaxLength:
		return nil, bad("it has " + strconv.Itoa(len(s)) + " bytes; give " + strconv.Itoa(MaxLength) + " at most")
	}
	u := new(URL)
	scheme, rest, found := strings.Cut(s, "://")
	if !found {
		return nil, noScheme(s)
	}
	port, err := u.readScheme(p, scheme)
	if err != nil {
		return nil, err
	}
	if strings.Contains(rest, "#") {
		return nil, bad("it has a '#', which begins a fragment; write %23 for the wildcard of a topic and for a '#' in a " +
			"password")
	}
	rest, query, _ := strings.Cut(rest, "?")
	authority, path := rest, ""
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		authority, path = rest[:i], rest[i:]
	}
	if err := u.readAuthority(authority, port); err != nil {
		if !strings.Contains(authority, "@") && strings.Contains(path+query, "@") {
			return nil, bad("user name or password has a '/' or '?'; write %2F and %3F")
		}
		return nil, err
	}
	if err := u.readPath(p, path); err != nil {
		return nil, err
	}
	if err := u.readParameters(p, query); err != nil {
		return nil, err
	}
	if err := u.check(); err != nil {
		return nil, err
	}
	return u, nil
}

func noScheme(s string) error {
	if name, _, _ := strings.Cut(s, "="); texts.EqualFold(strings.TrimSpace(name), "HostName") {
		return bad("this is the connection string of a hub's device; parse it with device.ParseConnectionString")
	}
	return bad("it has no scheme; write one such as " + example)
}

// readScheme stores what a scheme says, and returns its port.
func (u *URL) readScheme(p Protocol, scheme string) (port string, err error) {
	var names []string
	for _, k := range schemes {
		if texts.EqualFold(scheme, k.name) {
			if k.protocol != p {
				return "", bad("its scheme " + k.name + " is for " + k.protocol.String() + "; use ParseBroker of a transport " +
					"for " + k.protocol.String())
			}
			u.TLS, u.WebSocket = k.tls, k.webSocket
			return k.port, nil
		}
		if k.protocol == p {
			names = append(names, k.name)
		}
	}
	for _, f := range foreignSchemes {
		if texts.EqualFold(scheme, f.name) {
			return "", bad("its scheme is " + f.name + "; " + f.advice)
		}
	}
	for _, name := range names {
		if texts.OneEditApart(scheme, name) {
			return "", bad("its scheme is not known; did you mean " + name + "?")
		}
	}
	return "", bad("its scheme is not known; known are " + strings.Join(names, ", "))
}

// readAuthority reads "user:password@host:port".
func (u *URL) readAuthority(s, port string) error {
	info, address, found := strings.Cut(s, "@")
	switch {
	case !found:
		info, address = "", s
	case strings.Contains(address, "@"):
		return bad("user name and password have more than one '@' behind them; write %40 for those within")
	case info == "":
		return bad("it has an '@' without user name; leave the '@' out")
	}
	user, password, found := strings.Cut(info, ":")
	switch {
	case user == "" && found:
		return bad("it has a password without user name; write user:password@")
	case found && password == "":
		return bad("it has an empty password; leave the ':' behind the user name out, or give the password")
	}
	var err error
	if u.UserName, err = decode("the user name", user); err != nil {
		return err
	}
	if password, err = decode("the password", password); err != nil {
		return err
	}
	u.Password = transport.Hide(password)

	host, given, hasPort, err := splitHost(address)
	if err != nil {
		return err
	}
	if hasPort {
		port = given
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || port[0] == '0' {
			return bad("the port is not a number from 1 to 65535; give one, or leave it out with its ':'")
		}
	}
	u.Host, u.Addr = host, net.JoinHostPort(host, port)
	return nil
}

// splitHost splits "host:port", where the host may be an IPv6 address in brackets.
func splitHost(s string) (host, port string, hasPort bool, err error) {
	inside, bracket := strings.CutPrefix(s, "[")
	if bracket {
		var rest string
		if host, rest, bracket = strings.Cut(inside, "]"); !bracket {
			return "", "", false, bad("the IPv6 address has no ']' behind it")
		}
		ip, ipErr := netip.ParseAddr(host)
		port, hasPort = strings.CutPrefix(rest, ":")
		switch {
		case strings.Contains(host, "%"):
			return "", "", false, bad("the IPv6 address has a zone; leave it out, and set netopt.Options.Addr to the address " +
				"with its zone")
		case ipErr != nil || !ip.Is6():
			return "", "", false, bad("between the brackets is no IPv6 address; brackets are for these only")
		case !hasPort && rest != "":
			return "", "", false, bad("behind the ']' of the IPv6 address is neither ':' and a port nor the end of the host")
		}
		return ip.Unmap().String(), port, hasPort, nil
	}
	host, port, hasPort = strings.Cut(s, ":")
	switch {
	case strings.Contains(port, ":"):
		return "", "", false, bad("the host has more than one ':'; write an IPv6 address in brackets, and %3A for a ':' in " +
			"a user name")
	case host == "":
		return "", "", false, bad("it has no host; write one such as " + example)
	case (&transport.Credentials{Host: host, DeviceID: "d"}).Validate() != nil:
		return "", "", false,
			bad("the host is not a name or address; use ASCII letters, digits, '-', '_' and '.' only (for " +
				"other letters the form xn--)")
	}
	return host, port, hasPort, nil
}

// readPath reads the path. Only WebSocket has one.
func (u *URL) readPath(p Protocol, path string) error {
	switch {
	case u.WebSocket && (path == "" || path == "/"):
		u.Path = DefaultPath
	case u.WebSocket:
		if strings.Contains(path, "@") {
			return bad("the path has an '@'; write %40, and %2F for a '/' in user name or password")
		}
		if _, err := decode("the path", path); err != nil {
			return err
		}
		u.Path = path
	case path != "" && path != "/" && p == MQTT:
		return bad("it has a path, which only WebSocket (ws, wss) has; give topics as parameters, such as " +
			"telemetry=TOPIC and commands=TOPIC")
	case path != "" && path != "/":
		return bad("it has a path; give addresses as parameters, telemetry=ADDRESS and commands=ADDRESS")
	}
	return nil
}

// decode checks and decodes a percent-encoded part. The result is a UTF-8 text without NUL, which
// MQTT and SASL PLAIN require.
func decode(part, raw string) (string, error) {
	for i := range len(raw) {
		switch c := raw[i]; {
		case c <= ' ' || c == 0x7f:
			return "", bad(part + " has a space or control character; write a space as %20, and put the URL in quotation " +
				"marks for a shell")
		case c > 0x7f:
			return "", bad(part + " has a letter outside ASCII; write it percent-encoded, as %C3%BC for \u00fc")
		}
	}
	text, ok := texts.AppendUnescaped(nil, raw)
	switch {
	case !ok:
		return "", bad(part + " has a '%' without two hexadecimal digits behind it; write a '%' as %25")
	case !utf8.Valid(text):
		return "", bad(part + " is not UTF-8 once it is decoded; encode the bytes of its UTF-8 form")
	case strings.IndexByte(string(text), 0) >= 0:
		return "", bad(part + " has a NUL character (%00); leave it out")
	}
	return string(text), nil
}

// Credentials returns the credentials of u.
func (u *URL) Credentials() *transport.Credentials {
	c := &transport.Credentials{Host: u.Host, DeviceID: u.Device, ModuleID: u.Module, UserName: u.UserName}
	if u.Password != nil {
		c.Token = transport.FixedToken(u.Password.Reveal())
	}
	return c
}

// Network returns the network options of u, without the tunnel for WebSocket.
func (u *URL) Network() netopt.Options {
	return netopt.Options{Addr: u.Addr, Plaintext: !u.TLS, Anonymous: u.UserName == ""}
}

// Invalid returns an error about a URL, of the form of Parse's.
func Invalid(text string) error { return bad(text) }

func bad(text string) error {
	return &transport.Error{Kind: transport.Invalid, Op: transport.OpOpen, Err: errors.New("broker URL: " + text)}
}

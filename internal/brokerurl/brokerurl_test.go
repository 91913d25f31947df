package brokerurl_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/brokerurl"
	"github.com/hubline-iot/hubline/transport"
)

const secret = "Zq9Xv7" // in no text of this package

func TestURLs(t *testing.T) {
	type url = brokerurl.URL
	const mqtt, amqp = brokerurl.MQTT, brokerurl.AMQP
	for _, c := range []struct {
		name     string
		protocol brokerurl.Protocol
		s        string
		password string
		want     url
	}{
		{"least", mqtt, "mqtt://b?device=d", "", url{Host: "b", Addr: "b:1883", Device: "d"}},
		{"TLS", mqtt, "mqtts://b.example:8884/?device=d", "", url{TLS: true, Host: "b.example", Addr: "b.example:8884",
			Device: "d"}},
		{"alias of paho, tcp", mqtt, "tcp://b?device=d", "", url{Host: "b", Addr: "b:1883", Device: "d"}},
		{"alias of paho, ssl", mqtt, "ssl://b?device=d", "", url{TLS: true, Host: "b", Addr: "b:8883", Device: "d"}},
		{"alias of paho, tls", mqtt, "tls://b?device=d", "", url{TLS: true, Host: "b", Addr: "b:8883", Device: "d"}},
		{"alias of paho, tcps", mqtt, "tcps://b?device=d", "", url{TLS: true, Host: "b", Addr: "b:8883", Device: "d"}},
		{"alias of paho, mqtt+ssl", mqtt, "mqtt+ssl://b?device=d", "", url{TLS: true, Host: "b", Addr: "b:8883",
			Device: "d"}},
		{"scheme in capitals", mqtt, "MQTTS://b?device=d", "", url{TLS: true, Host: "b", Addr: "b:8883", Device: "d"}},
		{"quotation marks", mqtt, " 'mqtt://b?device=d'\n", "", url{Host: "b", Addr: "b:1883", Device: "d"}},

		{"WebSocket", mqtt, "ws://b?device=d", "", url{WebSocket: true, Host: "b", Addr: "b:80", Path: "/mqtt",
			Device: "d"}},
		{"WebSocket over TLS", mqtt, "wss://b:8084/?device=d", "", url{WebSocket: true, TLS: true, Host: "b",
			Addr: "b:8084", Path: "/mqtt", Device: "d"}},
		{"path of WebSocket", mqtt, "wss://b/a%20b/ws?device=d", "", url{WebSocket: true, TLS: true, Host: "b",
			Addr: "b:443", Path: "/a%20b/ws", Device: "d"}},

		{"IPv4", mqtt, "mqtt://127.0.0.1?device=d", "", url{Host: "127.0.0.1", Addr: "127.0.0.1:1883", Device: "d"}},
		{"IPv6", mqtt, "mqtt://[::1]?device=d", "", url{Host: "::1", Addr: "[::1]:1883", Device: "d"}},
		{"IPv6 with port", mqtt, "mqtts://u:p@[2001:db8::7]:8884?device=d", "p",
			url{TLS: true, UserName: "u", Host: "2001:db8::7", Addr: "[2001:db8::7]:8884", Device: "d"}},
		{"IPv4 in IPv6", mqtt, "mqtt://[::ffff:10.0.0.1]?device=d", "", url{Host: "10.0.0.1", Addr: "10.0.0.1:1883",
			Device: "d"}},
		{"IPv6 in its long form", mqtt, "mqtt://[2001:0DB8:0:0:0:0:10.0.0.7]?device=d", "", url{Host: "2001:db8::a00:7",
			Addr: "[2001:db8::a00:7]:1883", Device: "d"}},

		{"user", mqtt, "mqtt://token@b?device=d", "", url{UserName: "token", Host: "b", Addr: "b:1883", Device: "d"}},
		{"user and password", mqtt, "mqtt://u:p@b:1?device=d", "p", url{UserName: "u", Host: "b", Addr: "b:1", Device: "d"}},
		{"every delimiter encoded", mqtt, "mqtt://u%3A%40%2F:%3Ap%40%2F%3F%23%5B%25%20%C3%BC+@b?device=d", ":p@/?#[% ü+",
			url{UserName: "u:@/", Host: "b", Addr: "b:1883", Device: "d"}},
		{"colons in the password", mqtt, "mqtt://u:a:b:@b?device=d", "a:b:", url{UserName: "u", Host: "b", Addr: "b:1883",
			Device: "d"}},

		{"device from the client id", mqtt, "mqtt://b?client-id=c-1", "", url{Host: "b", Addr: "b:1883", Device: "c-1",
			ClientID: "c-1"}},
		{"device from the user name", mqtt, "mqtt://u-1:p@b?", "p", url{UserName: "u-1", Host: "b", Addr: "b:1883",
			Device: "u-1"}},
		{"device from the user name, with a client id", mqtt, "mqtt://u-1:p@b?client-id={device}-2", "p", url{UserName: "u-1",
			Host: "b", Addr: "b:1883", Device: "u-1", ClientID: "{device}-2"}},
		{"no device", mqtt, "mqtt://b", "", url{Host: "b", Addr: "b:1883"}},
		{"no device from a token", mqtt, "mqtt://A1B2@b", "", url{UserName: "A1B2", Host: "b", Addr: "b:1883"}},
		{"no device of that form", mqtt, "mqtt://a%2Fb:p@b", "p", url{UserName: "a/b", Host: "b", Addr: "b:1883"}},
		{"client id that is no device id", mqtt, "mqtt://b?client-id=a/b&device=d", "", url{Host: "b", Addr: "b:1883",
			Device: "d", ClientID: "a/b"}},
		{"names in capitals", mqtt, "mqtt://b?Device=d&Client-ID=c", "", url{Host: "b", Addr: "b:1883", Device: "d",
			ClientID: "c"}},
		{"every parameter", mqtt, "mqtt://b?device=d&module=m&client-id={device}-{module}&telemetry=site/{device}/up" +
			"&commands=site/{device}/+/%23&commands=$share/g/all&qos=0&retain=true&clean-session=TRUE&keep-alive=30" +
			"&will-topic=w&will-payload=gone%20%2B&will-retain=true&birth-topic=b&birth-payload=&birth-retain=false" +
			"&version=5&session-expiry=3600", "",
			url{Host: "b", Addr: "b:1883", Device: "d", Module: "m", ClientID: "{device}-{module}",
				Telemetry: "site/{device}/up", Commands: []string{"site/{device}/+/#", "$share/g/all"}, AtMostOnce: true,
				Retain: true, CleanSession: true, KeepAlive: 30 * time.Second,
				Will:  brokerurl.Message{Topic: "w", Payload: "gone +", Retain: true},
				Birth: brokerurl.Message{Topic: "b"}, MQTT5: true, SessionExpiry: time.Hour}},
		{"version 3.1.1", mqtt, "mqtt://b?device=d&version=3.1.1&qos=1", "", url{Host: "b", Addr: "b:1883", Device: "d",
			MQTT311: true}},
		{"a session for ever", mqtt, "mqtt://b?device=d&version=5.0&session-expiry=never", "", url{Host: "b",
			Addr: "b:1883", Device: "d", MQTT5: true, SessionExpiry: brokerurl.NoExpiry}},

		{"AMQP", amqp, "amqp://b?device=d", "", url{Host: "b", Addr: "b:5672", Device: "d"}},
		{"AMQP over TLS", amqp, "amqps://u:p@b/?device=d&module=m&telemetry=/queues/up&commands=/queues/{device}", "p",
			url{TLS: true, UserName: "u", Host: "b", Addr: "b:5671", Device: "d", Module: "m", Telemetry: "/queues/up",
				Commands: []string{"/queues/{device}"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			u, err := brokerurl.Parse(c.protocol, c.s)
			require.NoError(t, err)
			require.Equal(t, c.password, u.Password.Reveal())
			u.Password = nil
			require.Equal(t, c.want, *u)
		})
	}
}

// wrong returns invalid URLs and their expected errors. All but those without password have the
// password secret, or one with secret in it.
func wrong() []struct{ name, s, want string } {
	const base = "mqtts://user:" + secret + "@b?device=d"
	with := func(parameters string) string { return base + "&" + parameters }
	return []struct{ name, s, want string }{
		{"empty", "", "it is empty; write one such as mqtts://"},
		{"open quotation mark", `"` + base, "begins with a quotation mark"},
		{"too long", base + strings.Repeat("x", brokerurl.MaxLength), "bytes; give 16384 at most"},
		{"no scheme", "b:1883", "it has no scheme; write one such as mqtts://"},
		{"no scheme, with password", "user:" + secret + "@b:1883", "it has no scheme"},
		{"one slash", "mqtt:/b", "it has no scheme"},
		{"a hub's string", "HostName=h;DeviceId=d;SharedAccessKey=" + secret, "device.ParseConnectionString"},
		{"empty scheme", "://b", "its scheme is not known; known are mqtt, mqtts, ws, wss, tcp"},
		{"unknown scheme", "gopher://user:" + secret + "@b", "its scheme is not known; known are mqtt, mqtts"},
		{"password as scheme", secret + "://b", "its scheme is not known; known are"},
		{"misspelt scheme", "mqqts://b", "did you mean mqtts?"},
		{"scheme of the web", "https://b", "its scheme is https; write wss://"},
		{"scheme of AMQP", "amqps://b", "its scheme amqps is for AMQP; use ParseBroker of a transport for AMQP"},

		{"password with #", "mqtt://user:" + secret + "#@b?device=d", "has a '#', which begins a fragment; write %23"},
		{"wildcard #", with("commands=a/#"), "write %23 for the wildcard of a topic"},
		{"password with @", "mqtt://user:" + secret + "@x@b", "more than one '@' behind them; write %40"},
		{"password with /", "mqtt://user:" + secret + "/x@b", "user name or password has a '/' or '?'; write %2F and %3F"},
		{"password with ?", "mqtt://user:" + secret + "?x@b", "user name or password has a '/' or '?'; write %2F and %3F"},
		{"password that looks like a port", "mqtt://user:12?" + secret + "@b", "parameter 1 is not known; known are device"},
		{"password that looks like a port and a path", "mqtt://user:12/" + secret + "@b", "it has a path"},
		{"password that looks like a port and a path of WebSocket", "ws://user:12/" + secret + "@b",
			"the path has an '@'; write %40"},
		{"password with space", "mqtt://user:" + secret + " x@b", "the password has a space or control character"},
		{"password with a letter outside ASCII", "mqtt://user:" + secret + "ü@b", "the password has a letter outside ASCII"},
		{"password with %", "mqtt://user:" + secret + "%zz@b", "the password has a '%' without two hexadecimal digits"},
		{"password with % at the end", "mqtt://user:" + secret + "%@b", "write a '%' as %25"},
		{"password with NUL", "mqtt://user:" + secret + "%00@b", "the password has a NUL character"},
		{"password not in UTF-8", "mqtt://user:" + secret + "%ff@b", "the password is not UTF-8"},
		{"user name not in UTF-8", "mqtt://user%fe:" + secret + "@b", "the user name is not UTF-8"},
		{"password alone", "mqtt://:" + secret + "@b", "a password without user name"},
		{"empty password", "mqtt://user:@b", "an empty password; leave the ':' behind the user name out"},
		{"@ alone", "mqtt://@b", "an '@' without user name"},

		{"no host", "mqtt://", "it has no host"},
		{"no host behind the password", "mqtt://user:" + secret + "@", "it has no host"},
		{"no host, with a port", "mqtt://:1883", "it has no host"},
		{"host with space", "mqtt://user:" + secret + "@a b", "the host is not a name or address"},
		{"host outside ASCII", "mqtt://bücher.example", "the form xn--"},
		{"encoded host", "mqtt://a%2eb", "the host is not a name or address"},
		{"port as text", "mqtt://user:" + secret, "the port is not a number from 1 to 65535"},
		{"port 0", "mqtt://b:0", "the port is not a number from 1 to 65535"},
		{"port 65536", "mqtt://b:65536", "the port is not a number from 1 to 65535"},
		{"port with zero", "mqtt://b:01883", "the port is not a number from 1 to 65535"},
		{"port with sign", "mqtt://b:+1883", "the port is not a number from 1 to 65535"},
		{"no port", "mqtt://b:", "give one, or leave it out with its ':'"},
		{"IPv6 without brackets", "mqtt://::1:1883", "write an IPv6 address in brackets"},
		{"IPv6 with open bracket", "mqtt://[::1", "the IPv6 address has no ']'"},
		{"name in brackets", "mqtt://[b]", "between the brackets is no IPv6 address"},
		{"IPv4 in brackets", "mqtt://[127.0.0.1]", "between the brackets is no IPv6 address"},
		{"IPv6 with zone", "mqtt://[fe80::1%25eth0]",
			"the IPv6 address has a zone; leave it out, and set netopt.Options.Addr"},
		{"text behind IPv6", "mqtt://[::1]1883", "behind the ']'"},

		{"a topic as path", "mqtts://user:" + secret + "@b/a/b", "it has a path, which only WebSocket (ws, wss) has; give " +
			"topics as parameters, such as telemetry=TOPIC"},
		{"path with a broken escape", "ws://b/%4", "the path has a '%'"},
		{"path with a space", "ws://b/a b", "the path has a space"},

		{"no parameter behind &", base + "&", "parameter 2 is empty; leave one '&'"},
		{"two &", "mqtt://b?device=d&&qos=1", "parameter 2 is empty"},
		{"no name", with("=x"), "parameter 2 has no name before its '='"},
		{"no =", with("retain"), "retain has no '=' behind it; write retain=VALUE"},
		{"no value", with("telemetry="), "telemetry has no value; give one, or leave it out"},
		{"twice", with("qos=1&qos=1"), "qos is given twice; leave one"},
		{"unknown", with(secret + "=1"), "parameter 2 is not known; known are device, module, client-id, telemetry"},
		{"misspelt", with("telemetri=t"), "parameter 2 is not known; did you mean telemetry?"},
		{"a letter left out", with("comands=t"), "did you mean commands?"},
		{"as rumqttc has it", with("client_id=c"), "did you mean client-id?"},
		{"as MQTT.js has it", with("clientId=c"), "did you mean client-id?"},
		{"as MQTT.js has it, clean", with("clean=true"), "parameter 2 is not known; write clean-session"},
		{"keepalive", with("keepalive=5"), "did you mean keep-alive?"},
		{"topic", with("topic=t"), "write telemetry for messages to send, commands for messages to receive"},
		{"password as a parameter", "mqtt://b?password=" + secret, "write user:password@ in front of the host"},
		{"files", with("cafile=/ca.pem"), "set it in the Network options that ParseBroker returns"},

		{"device", "mqtt://b?device=a/b", "device is not a valid id; use 1 to 128 ASCII letters"},
		{"module", with("module=a%20b"), "module is not a valid id"},
		{"retain", with("retain=yes"), "retain is neither true nor false"},
		{"qos 2", with("qos=2"), "qos is 2, which is not sent; give 1"},
		{"qos 3", with("qos=3"), "qos is neither 0 nor 1"},
		{"keep-alive 0", with("keep-alive=0"), "keep-alive is not a number of seconds from 1 to 65535"},
		{"keep-alive with unit", with("keep-alive=30s"), "give one without unit"},
		{"keep-alive too long", with("keep-alive=65536"), "keep-alive is not a number of seconds"},
		{"version 3.1", with("version=3.1"), "version is neither 3.1.1 nor 5"},
		{"version as in CONNECT", with("version=4"), "version is 4, the number of MQTT 3.1.1 in CONNECT; write 3.1.1"},
		{"session-expiry with 3.1.1", with("session-expiry=5"), "session-expiry needs MQTT 5; add version=5"},
		{"session-expiry with unit", with("version=5&session-expiry=1h"), "session-expiry is neither a number of seconds"},
		{"session-expiry 0", with("version=5&session-expiry=0"), "session-expiry is 0; write clean-session=true"},
		{"session-expiry too long", with("version=5&session-expiry=4294967295"), "nor never"},
		{"will without topic", with("will-payload=x"), "will-topic is missing"},
		{"retained will without topic", with("will-retain=true"), "will-topic is missing"},
		{"birth without topic", with("birth-payload=x"), "birth-topic is missing"},
		{"value with a space", with("telemetry=a b"), "telemetry has a space or control character; write a space as %20"},
		{"value with NUL", with("telemetry=a%00"), "telemetry has a NUL character"},
	}
}

func TestWrongURLsSayWhatIsWrong(t *testing.T) {
	for _, c := range wrong() {
		t.Run(c.name, func(t *testing.T) {
			u, err := brokerurl.Parse(brokerurl.MQTT, c.s)
			require.Nil(t, u)
			checkError(t, err)
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, fmt.Sprintf("%v %+v %#v", err, err, err), secret)
		})
	}
}

func TestWrongURLsOfAMQP(t *testing.T) {
	for s, want := range map[string]string{
		"mqtt://b?device=d": "its scheme mqtt is for MQTT; use ParseBroker of a transport for " +
			"MQTT",
		"amqp://b/vhost?device=d":                       "it has a path; give addresses as parameters, telemetry=ADDRESS",
		"amqp://b?device=d&qos=1":                       "parameter 2, qos, is not for AMQP; leave it out",
		"amqp://b?device=d&commands=a&commands=b":       "commands is given twice",
		"amqp://b?device=d&colour=red":                  "known are device, module, telemetry, commands",
		"amqp://b?client-id=d":                          "parameter 1, client-id, is not for AMQP",
		"ampq://b":                                      "did you mean amqp?",
		"amqps://user:" + secret + "@b?vhost=" + secret: "RabbitMQ takes its virtual host",
	} {
		u, err := brokerurl.Parse(brokerurl.AMQP, s)
		require.Nil(t, u, s)
		checkError(t, err)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), secret)
	}
}

// checkError checks the form that all errors have.
func checkError(t testing.TB, err error) {
	t.Helper()
	e, ok := err.(*transport.Error)
	require.True(t, ok, "%#v", err)
	require.Equal(t, transport.Invalid, e.Kind)
	require.Equal(t, transport.OpOpen, e.Op)
	require.True(t, strings.HasPrefix(err.Error(), "open: invalid: broker URL: "), err.Error())
}

func TestNothingPrintsThePassword(t *testing.T) {
	u, err := brokerurl.Parse(brokerurl.MQTT, "mqtts://user:"+secret+"@b?device=d")
	require.NoError(t, err)
	require.Equal(t, secret, u.Password.Reveal())
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("a", "url", u, "value", *u)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("a", "url", u, "value", *u)
	encoded, err := json.Marshal(u)
	require.NoError(t, err)
	for _, text := range []string{fmt.Sprint(u, *u), fmt.Sprintf("%v %+v %#v", *u, *u, *u),
		log.String(), string(encoded)} {
		require.NotContains(t, text, secret)
	}
}

func TestEachParameterIsDescribed(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range brokerurl.Parameters {
		require.False(t, seen[p.Name], p.Name)
		seen[p.Name] = true
		require.NotEmpty(t, p.Value, p.Name)
		require.NotEmpty(t, p.Default, p.Name)
		require.NotEmpty(t, p.Help, p.Name)
		require.NotZero(t, p.Protocols, p.Name)
	}
}

// Whatever the URL is, an error never shows the password, and a URL that is accepted is valid in
// all parts.
func FuzzParse(f *testing.F) {
	for _, c := range wrong() {
		f.Add(c.s, "", false)
	}
	f.Add("mqtts://user:", "@[2001:db8::7]:8884/?device=d&telemetry=a/{device}&commands=%23&version=5", false)
	f.Add("wss://user:", "@b/mqtt?client-id=c&will-topic=w&will-payload=%20&keep-alive=9", false)
	f.Add("amqps://user:", "@b?device=d&telemetry=/queues/up&commands=q", true)
	f.Fuzz(func(t *testing.T, before, after string, amqp bool) {
		p := brokerurl.MQTT
		if amqp {
			p = brokerurl.AMQP
		}
		u, err := brokerurl.Parse(p, before+secret+after)
		if err != nil {
			require.Nil(t, u)
			checkError(t, err)
			require.NotContains(t, err.Error(), secret)
			return
		}
		creds := transport.Credentials{Host: u.Host, DeviceID: u.Device, ModuleID: u.Module}
		if u.Device == "" {
			require.False(t, creds.Validate() == nil)
			creds.DeviceID = "d"
		}
		require.NoError(t, creds.Validate())
		require.True(t, u.UserName != "" || u.Password.Reveal() == "")
		require.Equal(t, u.WebSocket, u.Path != "")
		require.True(t, u.KeepAlive >= 0 && u.KeepAlive <= 65535*time.Second)
		require.True(t, u.SessionExpiry >= 0 && u.SessionExpiry <= brokerurl.NoExpiry)
		require.NotContains(t, u.UserName+u.Password.Reveal()+u.ClientID+u.Telemetry, "\x00")
	})
}

//go:build !tinygo

package device_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
)

const (
	connKey   = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=" // the bytes 00 to 1f
	connToken = "SharedAccessSignature sr=hub1.example.test%2Fdevices%2Fdev-1" +
		"&sig=D3YPCbjg9OEBgbkWVCXmOeKhVVkbOo7jR%2BVPYEFxF5w%3D&se=1893456000"
	connHub = "HostName=hub1.example.test;DeviceId=dev-1;"
)

var connExpiry = time.Unix(1893456000, 0)

func TestParseConnectionStringReadsEveryKey(t *testing.T) {
	type creds = transport.Credentials
	device1 := creds{Host: "hub1.example.test", DeviceID: "dev-1"}
	module1 := creds{Host: "hub1.example.test", DeviceID: "dev-1", ModuleID: "mod-1"}
	token := func(resource, sig, more string) string {
		return "SharedAccessSignature sr=" + resource + "&sig=" + sig + "&se=1893456000" + more
	}
	byKey := token("hub1.example.test%2Fdevices%2Fdev-1", "D3YPCbjg9OEBgbkWVCXmOeKhVVkbOo7jR%2BVPYEFxF5w%3D", "")
	for _, c := range []struct {
		name, s string
		want    creds
		token   string // empty: an X.509 certificate
	}{
		{"device key", connHub + "SharedAccessKey=" + connKey, device1, byKey},
		{"module key", connHub + "ModuleId=mod-1;SharedAccessKey=" + connKey, module1,
			token("hub1.example.test%2Fdevices%2Fdev-1%2Fmodules%2Fmod-1", "BygQTaq%2B%2BexEDIDsROvbR7QfclF0h64UGKEmLJ7BcRY%3D",
				"")},
		{"policy key", connHub + "SharedAccessKeyName=device;SharedAccessKey=" + connKey,
			creds{Host: "hub1.example.test", DeviceID: "dev-1", KeyName: "device"}, byKey + "&skn=device"},
		{"gateway", connHub + "SharedAccessKey=" + connKey + ";GatewayHostName=edge_1.local",
			creds{Host: "hub1.example.test", DeviceID: "dev-1", GatewayHost: "edge_1.local"}, byKey},
		{"certificate", connHub + "x509=true", device1, ""},
		{"certificate of a module", connHub + "ModuleId=mod-1;X509=True", module1, ""},
		{"key and no certificate", connHub + "x509=false;SharedAccessKey=" + connKey, device1, byKey},
		{"token", connHub + "SharedAccessSignature=" + connToken, device1, connToken},
		{"any order", "SharedAccessKey=" + connKey + ";DeviceId=dev-1;HostName=hub1.example.test", device1, byKey},
		{"keys in any case", "hostname=hub1.example.test;DEVICEID=dev-1;sharedaccesskey=" + connKey, device1, byKey},
		{"semicolon at the end", connHub + "SharedAccessKey=" + connKey + ";", device1, byKey},
		{"space and line ends around", " \t\n" + connHub + "SharedAccessKey=" + connKey + "\r\n", device1, byKey},
		{"space around keys and values", "HostName = hub1.example.test; DeviceId= dev-1 ;\n SharedAccessKey =" + connKey +
			" ; ", device1, byKey},
		{"byte order mark", "\ufeff" + connHub + "SharedAccessKey=" + connKey + "\r\n", device1, byKey},
		{"double quotation marks", `"` + connHub + "SharedAccessKey=" + connKey + `" ` + "\n", device1, byKey},
		{"single quotation marks", "'" + connHub + "SharedAccessKey=" + connKey + ";'", device1, byKey},
		{"a word processor's quotation marks", "\u201c" + connHub + "SharedAccessKey=" + connKey + "\u201d", device1, byKey},
		{"an apostrophe that belongs to the id", "HostName=h;x509=true;DeviceId=joe's'", creds{Host: "h", DeviceID: "joe's'"},
			""},
		{"id with '='", "HostName=h;DeviceId=a=b==;x509=true", creds{Host: "h", DeviceID: "a=b=="}, ""},
		{"id with every sign", "HostName=h;DeviceId=-.+%_#*?!(),:=@$';ModuleId=$edgeAgent;x509=true",
			creds{Host: "h", DeviceID: "-.+%_#*?!(),:=@$'", ModuleID: "$edgeAgent"}, ""},
		{"shortest key", connHub + "SharedAccessKey=AAECAwQFBgcICQoLDA0ODw==", device1,
			token("hub1.example.test%2Fdevices%2Fdev-1", "_", "")},
		{"longest key", connHub + "SharedAccessKey=" + strings.Repeat("AAEC", 21) + "AA==", device1,
			token("hub1.example.test%2Fdevices%2Fdev-1", "_", "")},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := device.ParseConnectionString(c.s)
			if err != nil {
				t.Fatal(err)
			}
			if err := got.Validate(); err != nil {
				t.Errorf("the credentials do not validate: %v", err)
			}
			if got.Host != c.want.Host || got.GatewayHost != c.want.GatewayHost || got.DeviceID != c.want.DeviceID ||
				got.ModuleID != c.want.ModuleID ||
				got.KeyName != c.want.KeyName || got.TokenLife != 0 {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
			got.Now = func() time.Time { return connExpiry.Add(-time.Hour) }
			token, err := got.NewToken(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			text := token.Text.Reveal()
			if before, after, _ := strings.Cut(c.token, "_"); strings.Contains(c.token, "sig=_") &&
				strings.HasPrefix(text, before) && strings.HasSuffix(text, after) {
				text = c.token
			}
			if text != c.token || c.token != "" && !token.Expires.Equal(connExpiry) {
				t.Errorf("token %s, expires %v, want %s", token.Text.Reveal(), token.Expires, c.token)
			}
		})
	}
}

func TestParseConnectionStringAcceptsTheTokensThatSDKsMake(t *testing.T) {
	const tail = "&sig=c2ln&se=1893456000"
	for _, c := range []struct{ name, device, sr string }{
		{"not encoded", "dev-1", "hub1.example.test/devices/dev-1"},
		{"lower-case digits", "dev-1", "hub1.example.test%2fdevices%2fdev-1"},
		{"host in other case", "dev-1", "HUB1.Example.test%2Fdevices%2Fdev-1"},
		{"id encoded once", "a:b@c$d", "hub1.example.test%2Fdevices%2Fa%3Ab%40c%24d"},
		{"id encoded twice", "a:b@c$d", "hub1.example.test%2Fdevices%2Fa%253Ab%2540c%2524d"},
		{"id with a percent sign", "50%zz", "hub1.example.test%2Fdevices%2F50%25zz"},
		{"id that looks encoded", "a%41", "hub1.example.test%2Fdevices%2Fa%2541"},
		{"whole hub, by a policy", "dev-1", "hub1.example.test"},
		{"all devices, by a policy", "dev-1", "hub1.example.test%2Fdevices"},
		{"the module's device", "dev-1;ModuleId=mod-1", "hub1.example.test%2Fdevices%2Fdev-1"},
		{"the module", "dev-1;ModuleId=mod-1", "hub1.example.test%2Fdevices%2Fdev-1%2Fmodules%2Fmod-1"},
	} {
		text := "SharedAccessSignature sr=" + c.sr + tail
		creds, err := device.ParseConnectionString("HostName=hub1.example.test;DeviceId=" + c.device +
			";SharedAccessSignature=" + text)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		creds.Now = func() time.Time { return time.Unix(0, 0) } // by an unset clock the token has not expired
		if token, err := creds.NewToken(context.Background()); err != nil || token.Text.Reveal() != text ||
			!token.Expires.Equal(connExpiry) {
			t.Errorf("%s: %s, expires %v, %v", c.name, token.Text.Reveal(), token.Expires, err)
		}
	}
	// Fields in any order and case, with unknown ones between them.
	text := "SharedAccessSignature skn=&SE=1893456000&new=1&Sig=c2ln&SR=hub1.example.test"
	if _, err := device.ParseConnectionString(connHub + "SharedAccessSignature=" + text); err != nil {
		t.Error(err)
	}
}

// wrongConnectionStrings returns invalid strings and their expected errors.
func wrongConnectionStrings() []struct{ name, s, want string } {
	const proof = ";SharedAccessKey=" + connKey
	const service = "this is a service's string"
	sas := func(token string) string { return connHub + "SharedAccessSignature=" + token }
	return []struct{ name, s, want string }{
		{"empty", "", "it is empty; take the device's own: on the hub's page under Devices"},
		{"space", " \n\t", "it is empty"},
		{"empty quotation marks", `""`, "it is empty"},
		{"open quotation mark", `"` + connHub + "x509=true", "begins with a quotation mark"},
		{"quotation mark alone", `'`, "begins with a quotation mark"},
		{"semicolon alone", ";", "pair 1 is empty"},
		{"semicolon first", ";" + connHub + "x509=true", "pair 1 is empty"},
		{"two semicolons", "HostName=h;;DeviceId=d;x509=true", "pair 2 is empty; leave one ';'"},
		{"two at the end", connHub + "x509=true;;", "pair 4 is empty"},
		{"pair without =", "HostName=h;" + connKey[:43] + ";DeviceId=d", "pair 2 has no '='; write KEY=VALUE"},
		{"known key without =", "HostName=h;DeviceId;x509=true", "DeviceId has no '=' behind it; write DeviceId=VALUE"},
		{"text", "hello", "pair 1 has no '='"},

		{"unknown key", connHub + "Colour=red" + proof,
			"pair 3 has an unknown key, Colour; known are HostName, DeviceId, ModuleId"},
		{"no key", connHub + "=red" + proof, "pair 3 has no key before its '='"},
		{"a secret as key", connHub + connKey, "pair 3 has an unknown key; known are"},
		{"letter left out", "HostNme=h;DeviceId=d" + proof, "pair 1 has an unknown key; did you mean HostName?"},
		{"letter too many", connHub + "SharedAccesssKey=" + connKey, "did you mean SharedAccessKey?"},
		{"wrong letter", connHub + "SharedAccessKez=" + connKey, "did you mean SharedAccessKey?"},
		{"letters swapped", connHub + "SharedAccessKye=" + connKey, "did you mean SharedAccessKey?"},
		{"underscore", "HostName=h;Device_Id=d" + proof, "did you mean DeviceId?"},
		{"other spelling", "Host=h;DeviceId=d" + proof, "pair 1 has the key Host; write HostName"},
		{"other spelling of the key", connHub + "primarykey=" + connKey,
			"pair 3 has the key PrimaryKey; write SharedAccessKey"},
		{"other spelling of the token", connHub + "SasToken=" + connToken, "write SharedAccessSignature"},
		{"event hub", "Endpoint=sb://x.example.test/;SharedAccessKeyName=iothubowner;SharedAccessKey=" + connKey,
			"Event Hubs or Service Bus"},
		{"storage", "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=" + connKey, "storage account's string"},
		{"certificate file", connHub + "X509Cert=/etc/cert.pem", "write x509=true"},
		{"token without key", "HostName=h;DeviceId=d;" + connToken, "pair 3 is a bare token; write SharedAccessSignature="},
		{"token alone", connToken, "pair 1 is a bare token"},

		{"service string", "HostName=hub1.example.test;SharedAccessKeyName=iothubowner" + proof, "DeviceId is missing: " +
			service},
		{"no host", "DeviceId=d" + proof, "HostName is missing; add HostName="},
		{"no device", "HostName=h" + proof, "DeviceId is missing; add DeviceId="},
		{"module without device", "HostName=h;ModuleId=m;SharedAccessKeyName=n" + proof,
			"DeviceId is missing; add DeviceId="},
		{"cut off by a shell", "HostName=h", "put the string in quotation marks"},
		{"host twice", "HostName=h;DeviceId=d;hostname=h" + proof, "HostName is given twice; leave one"},
		{"key twice", connHub + "SharedAccessKey=" + connKey + proof, "SharedAccessKey is given twice"},

		{"empty host", "HostName=;DeviceId=d" + proof, "HostName has no value"},
		{"empty device", "HostName=h;DeviceId= " + proof, "DeviceId has no value"},
		{"empty module", connHub + "ModuleId=" + proof, "ModuleId has no value"},
		{"empty key", connHub + "SharedAccessKey=", "SharedAccessKey has no value"},
		{"empty key name", connHub + "SharedAccessKeyName=" + proof, "SharedAccessKeyName has no value"},
		{"empty token", connHub + "SharedAccessSignature=;x509=true", "SharedAccessSignature has no value"},
		{"empty x509", connHub + "x509=" + proof, "x509 has no value"},
		{"empty gateway", connHub + "GatewayHostName=" + proof, "GatewayHostName has no value"},

		{"scheme", "HostName=https://hub1.example.test;DeviceId=d" + proof, "HostName has a scheme; give the name alone"},
		{"port", "HostName=hub1.example.test:8883;DeviceId=d" + proof,
			"HostName has a port; give the name alone, and set the port in the transport's options"},
		{"path", "HostName=hub1.example.test/devices;DeviceId=d" + proof, "HostName is not a host name"},
		{"colon without port", "HostName=hub1:;DeviceId=d" + proof, "HostName is not a host name"},
		{"host with space", "HostName=hub 1;DeviceId=d" + proof, "HostName is not a host name"},
		{"gateway with port", connHub + "GatewayHostName=edge:8883" + proof, "GatewayHostName has a port"},
		{"gateway with scheme", connHub + "GatewayHostName=mqtts://edge:8883" + proof, "GatewayHostName has a scheme"},
		{"gateway by IPv6", connHub + "GatewayHostName=[::1]" + proof, "GatewayHostName is not a host name"},
		{"slash in the device", "HostName=h;DeviceId=d/m" + proof, "DeviceId is not a valid id; use 1 to 128 ASCII letters"},
		{"long device", "HostName=h;DeviceId=" + strings.Repeat("d", 129) + proof, "DeviceId is not a valid id"},
		{"space in the module", connHub + "ModuleId=a b" + proof, "ModuleId is not a valid id"},

		{"no proof", connHub, "no proof of identity; add one of SharedAccessKey, SharedAccessSignature and x509=true"},
		{"x509=false alone", connHub + "x509=false", "no proof of identity"},
		{"policy name alone", connHub + "SharedAccessKeyName=device", "no proof of identity"},
		{"key and token", connHub + "SharedAccessSignature=" + connToken + proof,
			"more than one proof of identity; leave one of"},
		{"key and certificate", connHub + "x509=true" + proof, "more than one proof of identity"},
		{"token and certificate", connHub + "x509=true;SharedAccessSignature=" + connToken,
			"more than one proof of identity"},
		{"policy name and token", connHub + "SharedAccessKeyName=device;SharedAccessSignature=" + connToken,
			"SharedAccessKeyName says whose key"},
		{"policy name and certificate", connHub + "SharedAccessKeyName=device;x509=true",
			"SharedAccessKeyName says whose key"},
		{"x509 as yes", connHub + "x509=yes", "x509 is neither true nor false"},
		{"x509 as 1", connHub + "x509=1", "x509 is neither true nor false"},

		{"key cut short", connHub + "SharedAccessKey=" + connKey[:43], "SharedAccessKey is not base64; copy it whole"},
		{"key with signs", connHub + "SharedAccessKey=" + connKey[:20] + "-_" + connKey[22:],
			"SharedAccessKey is not base64"},
		{"key with space", connHub + "SharedAccessKey=" + connKey[:20] + " " + connKey[20:], "SharedAccessKey is not base64"},
		{"15 bytes", connHub + "SharedAccessKey=AAECAwQFBgcICQoLDA0O",
			"SharedAccessKey has 15 bytes, and keys have 16 to 64"},
		{"65 bytes", connHub + "SharedAccessKey=" + strings.Repeat("AAEC", 21) + "AAE=", "SharedAccessKey has 65 bytes"},
		{"key of padding", connHub + "SharedAccessKey====", "SharedAccessKey is not base64"},

		{"token without scheme", sas(connToken[len("SharedAccessSignature "):]),
			`does not begin with "SharedAccessSignature "`},
		{"scheme in other case", sas(strings.ToLower(connToken)), `does not begin with "SharedAccessSignature "`},
		{"scheme alone", sas("SharedAccessSignature "), `does not begin with`},
		{"token without sr", sas("SharedAccessSignature sig=c2ln&se=1893456000"), "lacks sr (resource)"},
		{"token without sig", sas("SharedAccessSignature sr=hub1.example.test&se=1893456000"), "lacks sig (signature)"},
		{"token without se", sas("SharedAccessSignature sr=hub1.example.test&sig=c2ln"), "lacks se (expiry)"},
		{"token with empty sig", sas("SharedAccessSignature sr=hub1.example.test&sig=&se=1893456000"),
			"lacks sig (signature)"},
		{"token with a line end", sas("SharedAccessSignature sr=hub1.example.test&sig=c2\nln&se=1893456000"),
			"copy the token in one piece"},
		{"token with a letter outside ASCII", sas("SharedAccessSignature sr=hub1.example.test&sig=é&se=1893456000"),
			"copy the token in one piece"},
		{"expiry as text", sas("SharedAccessSignature sr=hub1.example.test&sig=c2ln&se=tomorrow"), "not a time in seconds"},
		{"expiry with sign", sas("SharedAccessSignature sr=hub1.example.test&sig=c2ln&se=+1893456000"),
			"not a time in seconds"},
		{"negative expiry", sas("SharedAccessSignature sr=hub1.example.test&sig=c2ln&se=-1"), "not a time in seconds"},
		{"expiry in milliseconds", sas("SharedAccessSignature sr=hub1.example.test&sig=c2ln&se=1893456000000"),
			"not a time in seconds"},
		{"expiry past 64 bits", sas("SharedAccessSignature sr=hub1.example.test&sig=c2ln&se=18934560000000000000"),
			"not a time in seconds"},
		{"other device", sas(strings.Replace(connToken, "dev-1", "dev-2", 1)), "for another hub, device or module"},
		{"device that begins alike", sas(strings.Replace(connToken, "dev-1", "dev-", 1)),
			"for another hub, device or module"},
		{"device in other case", sas(strings.Replace(connToken, "dev-1", "DEV-1", 1)), "for another hub, device or module"},
		{"other hub", sas(strings.Replace(connToken, "hub1", "hub2", 1)), "for another hub, device or module"},
		{"a module of the device", sas(strings.Replace(connToken, "dev-1", "dev-1%2Fmodules%2Fm", 1)),
			"for another hub, device or module"},
		{"a device of provisioning", sas(strings.Replace(connToken, "hub1.example.test%2Fdevices",
			"0ne00000000%2Fregistrations", 1)), "for another hub"},
		{"broken escape", sas(strings.Replace(connToken, "%2Fdev-1", "%2Fdev-1%", 1)), "for another hub, device or module"},
	}
}

func TestParseConnectionStringSaysWhatIsWrong(t *testing.T) {
	for _, c := range wrongConnectionStrings() {
		t.Run(c.name, func(t *testing.T) {
			creds, err := device.ParseConnectionString(c.s)
			if creds != nil {
				t.Errorf("got %+v, want none", creds)
			}
			checkConnError(t, err)
			if err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
			for _, secret := range []string{connKey[:12], connKey[20:32], "AAECAAEC", "D3YPCbjg", "c2ln"} {
				if err != nil && strings.Contains(err.Error(), secret) {
					t.Errorf("the error shows a secret: %v", err)
				}
			}
		})
	}
}

// checkConnError checks the form that all errors of ParseConnectionString have.
func checkConnError(t *testing.T, err error) {
	t.Helper()
	e, ok := err.(*transport.Error)
	if !ok || e.Kind != transport.Invalid || e.Op != transport.OpOpen || e.Scope != transport.ScopeOperation ||
		e.RetryAfter != 0 {
		t.Errorf("%#v, want Invalid on open", err)
		return
	}
	if !strings.HasPrefix(err.Error(), "open: invalid: connection string: ") && !strings.HasPrefix(err.Error(),
		"open: invalid: the shared access key") {
		t.Errorf("text %q", err)
	}
}

func TestFixedTokenFailsOnceItHasExpired(t *testing.T) {
	creds, err := device.ParseConnectionString(connHub + "SharedAccessSignature=" + connToken)
	if err != nil {
		t.Fatal(err)
	}
	now := connExpiry
	creds.Now = func() time.Time { return now } // set after parsing
	if token, err := creds.NewToken(context.Background()); err != nil || token.Text.Reveal() != connToken ||
		!token.Expires.Equal(connExpiry) {
		t.Errorf("at the expiry: %v, %v", token, err)
	}
	now = connExpiry.Add(time.Nanosecond)
	for range 2 {
		token, err := creds.NewToken(context.Background())
		e := transport.Find(err)
		if e == nil || e.Kind != transport.Unauthorized || e.Scope != transport.ScopeConnection || e.Op != transport.OpDial ||
			token.Text != nil {
			t.Errorf("after the expiry: %v, %#v", token, err)
			continue
		}
		if want := "dial: unauthorized: the connection string's SharedAccessSignature expired at 2030-01-01T00:00:00Z; get " +
			"a new one"; e.Error() != want {
			t.Errorf("got  %v\nwant %s", e, want)
		}
	}
	now = connExpiry.Add(-time.Minute) // the clock was corrected
	if _, err := creds.NewToken(context.Background()); err != nil {
		t.Errorf("before the expiry: %v", err)
	}
}

func TestParsedCredentialsPrintNoSecret(t *testing.T) {
	for _, proof := range []string{"SharedAccessKey=" + connKey, "SharedAccessSignature=" + connToken} {
		creds, err := device.ParseConnectionString(connHub + proof)
		if err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf("%v %+v %#v", creds, *creds, creds)
		for _, secret := range []string{"AAECAw", "D3YPC", "sig="} {
			if strings.Contains(text, secret) {
				t.Errorf("%q was printed: %s", secret, text)
			}
		}
	}
}

// FuzzParseConnectionString replaces each '~' of the input by a secret. No input may panic, give an
// error other than Invalid, or reveal the secret.
func FuzzParseConnectionString(f *testing.F) {
	const secret = "Q9x+7/Kp3ZrVb8YwLm2TgJhN5sXqEoDcAfUiSyPzG0k="
	for _, s := range []string{
		"", "~", "~=", "=~", ";", "'", `"~"`, "HostName=h;DeviceId=d;SharedAccessKey=~",
		"HostName=h;DeviceId=d;SharedAccessKey=~~",
		"HostName=~;DeviceId=~;ModuleId=~;GatewayHostName=~;SharedAccessKeyName=~;x509=~", "HostName=h;DeviceId=d;x509=true",
		"HostName=h;DeviceId=d;~", "HostName=h;DeviceId=~;SharedAccessKey=d", "HostName=h;DeviceId=d;SharedAccessKey;~",
		"HostName=h;DeviceId=d;SharedAccessSignature=SharedAccessSignature sr=h%2Fdevices%2Fd&sig=~&se=1893456000",
		"HostName=h;DeviceId=d;SharedAccessSignature=SharedAccessSignature sr=~&sig=~&se=~",
		"HostName=h;DeviceId=d;SharedAccessSignature=~", "HostName=h;DeviceId=d;SharedAccessSignature sr=~",
		"HostName=~:8883;DeviceId=d",
		"HostName=h;SharedAccessKeyName=~;SharedAccessKey=~", "Endpoint=~", "SharedAccessKez=~",
		"HostName=h;DeviceId=d;SharedAccessKey=~;SharedAccessKey=~",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		creds, err := device.ParseConnectionString(strings.ReplaceAll(s, "~", secret))
		if (creds == nil) == (err == nil) {
			t.Fatalf("credentials %v and error %v", creds, err)
		}
		if err == nil {
			if err := creds.Validate(); err != nil {
				t.Fatalf("the credentials do not validate: %v", err)
			}
			creds.Now = func() time.Time { return connExpiry }
			_, err = creds.NewToken(context.Background())
			if err != nil && !errors.Is(err, transport.Unauthorized) {
				t.Fatalf("token: %v", err)
			}
		} else {
			checkConnError(t, err)
		}
		if err == nil {
			return
		}
		for i := range len(secret) - 6 {
			if strings.Contains(err.Error(), secret[i:i+6]) {
				t.Fatalf("the error shows a part of the secret: %v", err)
			}
		}
	})
}

func ExampleParseConnectionString() {
	creds, err := device.ParseConnectionString(
		"HostName=hub1.example.test;DeviceId=dev-1;SharedAccessKey=AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(creds.Host, creds.DeviceID)

	_,
		err = device.ParseConnectionString(
		"HostName=hub1.example.test;DeviceId=dev-1;SharedAccesKey=AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")
	fmt.Println(err)
	// Output:
	// hub1.example.test dev-1
	// open: invalid: connection string: pair 3 has an unknown key; did you mean SharedAccessKey?
}

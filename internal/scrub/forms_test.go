package scrub_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/scrub"
)

// forms are texts with § in place of a secret.
var forms = []string{
	// Names and values.
	"password=§", "password = §", "Password: §", "PWD=§;", "passwd:§", "passphrase=§", "db_password=§", "DBPASSWORD=§",
	"userPassword=§", "pass=§", "mysql_pwd=§",
	"client_secret=§", "clientSecret: §", "SECRET=§", "api_key=§", "apikey=§", "apiKey: §", "x-api-key: §",
	"Ocp-Apim-Subscription-Key: §", "x-functions-key: §",
	"access_token=§&token_type=bearer", "refresh_token=§", "id_token=§", "X-Auth-Token: §", "token: §", "private_key=§",
	"auth=§", "sessionid=§", "JSESSIONID=§; Path=/", "connect.sid=§",
	"password=>§", "password := §", "password==§", "password2=§", "(password=§)", "[password=§]", "<Password>§</Password>",
	`<add key="Password" value="§"/>`, `<add key="?sig" value="§"/>`, "<add key=\"?sig\"\n value=\"§\"/>",
	`<add key="?sig" type="s" value="§"/>`, `key="&sig=" value = "§"`, `key="&quot;?sig&quot;" value="§"`,
	// JSON and similar formats, also nested in JSON.
	`{"password":"§"}`, `{"password": "§", "x":1}`, `{'password': '§'}`, `{\"password\":\"§\"}`,
	`{\\\"password\\\":\\\"§\\\"}`, `{"Password":"§"}`, `{"accessToken" : "§"}`,
	`{&quot;password&quot;:&quot;§&quot;}`, `{password:§}`, `{User:bob Password:§}`, `{User:"bob", Password:"§"}`,
	`password: ["§"]`, `{"keys":{"primaryKey":"§"}}`, `{"symmetricKey":"§"}`,
	"Server=s;Pwd={§;x};", "Server=s;Pwd={x}};§};Uid=u", "Password:{§}", `{"password":{"value":"§"}}`,
	`{"password":{"a":"}","b":"§"}}`, "AccountKey={§;x}", "tool --password {§ x} h",
	`{"sasToken":"?sv=2020&sig=§"}`, `{"url":"https://s/c?a=b\u0026sig=§\u0026se=1"}`, `{"a":"sig\u003d§"}`,
	`{\u0022password\u0022:\u0022§\u0022}`,
	// JSON over several lines, also nested in JSON.
	"{\n  \"password\" : \"§\"\n}", "{\n  \"password\" :\n    \"§\"\n}", "{\r\n\t\"token\"\r\n\t:\r\n\t\"§\"\r\n}",
	"{\n \"key\" :\n \"§\"}", "{'password' :\n '§'}", "{\"password\" : [\n  \"§\"\n]}",
	"{\"password\" : {\n  \"a\" : [\"}\", 1],\n  \"value\" : \"§\"\n}}",
	"{\"password\": {\n\"value\": {\n},\n\"b\": \"§\"",
	"{\"Authorization\": [\n \"§\"\n]}", "{\"authorization\": {\n \"value\": \"§\"\n}}",
	`{\n  \"password\" :\n    \"§\"\n}`, `{\r\n  \"password\"\r\n : \"§\"}`, `"{\\n \\\"password\\\" :\\n \\\"§\\\"}"`,
	// JSON in URLs.
	"%22password%22%20%3A%20%22§%22", "%7B%22token%22%3A%22§%22%2C%22x%22%3A1%7D", "%7B%22key%22:%22§%22%7D",
	"%7B%0A%20%20%22password%22+%3A%0D%0A%09%22§%22%0A%7D", "%257B%2522token%2522%253A%2520%2522§%2522%257D",
	"%22password%22%3A%7B%22a%22%3A1%2C%22value%22%3A%22§%22%7D%7D", "%7B%22token%22%3A%5B%22a%22%2C%22§%22%5D%7D",
	"%7b%22keys%22%3a%7b%22primaryKey%22%3a%22§%22%7d%7d",
	// Headers.
	"Authorization: Basic §", "authorization: bearer §", "Authorization: Digest username=a, response=§",
	"Authorization: §",
	"Proxy-Authorization: Basic §", `"Authorization":"Bearer §"`,
	"map[Authorization:[Bearer §] Accept:[*/*]]", "Cookie: a=b; session=§", "Set-Cookie: id=§; HttpOnly", "Bearer §",
	"Basic §", "Authorization: SharedKey account:§", `Cookie: a="b"; session="§"; c=d`,
	`"Cookie: a=\"b\"; session=\"§\""`, `Authorization: Digest username="a", qop=auth, response="§"`,
	"authorization:\r\n Digest username=\"a\",\r\n\tresponse=\"§\"", "Set-Cookie: id='a b'; session='§'",
	"Authorization: SharedAccessSignature sr=h&sig=§&se=1", "Authorization=Bearer+§", "token=Bearer §",
	"Authorization:\r\n Bearer §", "Authorization:\n\tBasic\n\t§\n  §",
	"Authorization: Digest username=a,\r\n\tresponse=§",
	"authorization:\n  SharedAccessSignature\r\n  sr=h&sig=§", "Cookie: a=b;\r\n session=§",
	"X-Api-Key:\r\n §",
	`Authorization:\r\n Bearer §`, `Authorization:\n\tBearer\n\t§`, `Authorization: Basic\\r\\n §`,
	`Cookie: a=b;\r\n\tsession=§`, "Cookie%3A%20a%3Db%0D%0A%20session%3D§", "\"Authorization\": \"Basic\r\n §\"",
	`Authorization: Bearer "§"`, `Authorization: Basic "§"`, `Authorization: token "§"`, `Authorization: Bearer \"§\"`,
	`Authorization: &quot;§`, `Authorization: Bearer "§`, "Authorization: Bearer \"§\n", "Authorization: Basic\r\n \"§\"",
	`Authorization: Digest username = "a", response = "§"`, `Cookie: a= "b"; session= "§"`, `Cookie: a= "b"; c =	"§"`,
	`Cookie: a=b; session="§`, "Cookie: a=b; session=\"§\nc", `Cookie: a=b; c= "§...`,
	`Cookie: a=b; session=\"§`, "Cookie: a=b; session='§\r\nc", `Cookie: a=b; c="/§`,
	"X-Amz-Security-Token: §", "Authorization:\t§", "authorization\t:\tBearer\t§", "x-api-key:\t§", `Authorization:\t§`,
	// URLs.
	"https://h/?code=§", "https://h/?a=b&code=§&c=d", "https://h/?key=§", "https://user:§@h/p", "amqps://§@h:5671",
	"http://h/#access_token=§", "redis://:§@h:6379/0", "user:§@proxy:3128", "n%3A§%40proxy%3A3128",
	"https://u:p@ss/§@h/x", "https://u:p/§@h/x", "https://u:§/ss@h", "https%3A%2F%2Fu%3Ap%40ss%2F§%40h%2Fx",
	"https://h/?sig=§",
	"sig=§%2F§&se=1", "SIG=§", "sv=1&sig=§", "https://h/?sv=1&amp;sig=§&amp;se=2",
	"next=https%3A%2F%2Fh%3Fa%26sig%3D§%26se%3D1", "n=a%2526sig%253D§", "https%3A%2F%2Fuser%3A§%40h%2Fp",
	"%22password%22%3A%22§%22", "X-Amz-Signature=§", "Get \"https://h/?token=§\": EOF",
	// Connection strings.
	"HostName=h;DeviceId=d;SharedAccessKey=§", "HostName=h;SharedAccessKeyName=n;SharedAccessKey=§;DeviceId=d",
	"AccountName=a;AccountKey=§;EndpointSuffix=s", "Server=s;Uid=u;Pwd=§;",
	"HostName = h; SharedAccessKey = §; DeviceId = d", "SharedAccessKey\t=\t§", `SharedAccessKey\t=\t§`,
	"SharedAccessSignature=sr=h&sig=§", "AWS_SECRET_ACCESS_KEY=§", "aws_session_token = §", "postgres://u:§@h/db",
	// Command lines and files.
	"curl --password § h", "curl -u bob:§ h", "tool --api-key § run", "PGPASSWORD=§ psql", "export TOKEN='§'",
	"-----BEGIN RSA PRIVATE KEY-----\n§\n-----END RSA PRIVATE KEY-----",
	`-----BEGIN PRIVATE KEY-----\n§\n-----END PRIVATE KEY-----`,
	"-----BEGIN OPENSSH PRIVATE KEY-----\n§",
	"private_key=-----BEGIN PRIVATE KEY-----\n§\n-----END PRIVATE KEY-----",
	"{\"private_key\": \"-----BEGIN PRIVATE KEY-----\n§\n-----END PRIVATE KEY-----\"}",
	"Bearer -----BEGIN PRIVATE KEY-----\n§",
	// A name behind a value that hides the rest of its line.
	"{\"Authorization\":\"Bearer x\",\"password\":\n\"§\"}", "token%3A%5Ba%5D%0Apassword: §",
}

// secrets replace § in turn.
var secrets = []string{"hunter2x", "4Z7Kv0Qw1x5Tn9", "aB3%2Bcd9%3D", "correcthorse9", "x.y_z-9"}

func TestNoFormOfASecretIsShown(t *testing.T) {
	require.Greater(t, len(forms), 40)
	for _, form := range forms {
		for _, secret := range secrets {
			for _, around := range []string{"§", "dial failed: § while connecting", "a\n§\nb", "(§)", `"§"`, "[§]",
				"a=b, §, c=d", "token\":\n§\n0", "token\">\n§"} {
				in := strings.ReplaceAll(around, "§", strings.ReplaceAll(form, "§", secret))
				out := scrub.Text(in)
				require.NotContains(t, out, secret, "of %q", in)
				require.Equal(t, out, scrub.Text(out), "once more, of %q", in)
				require.NotContains(t, scrub.Peer(in), secret)
			}
		}
	}
}

// These are recognized without a name.
func TestSecretsAreKnownByTheirForm(t *testing.T) {
	for _, secret := range []string{
		"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl", "AKIAIOSFODNN7EXAMPLE", "ASIAIOSFODNN7EXAMPLE",
		"AIzaSyD-9tSrke72PouQMnMX-a7eZSW0jkFMBWY",
		"ghp_16C7e42F292c6912E7710c838347Ae178B4a", "glpat-ABCdef123456ghi78901", "xoxb-1234567890-abcdef",
		"sk_live_4eC39HqLyjWDarjtT1zdp7dc",
		"c2VjcmV0LWtleS1vZi10aGUtdGVzdHM1MjM0NTY3ODk=", "Xk8bQ2n5v7y9C1e3g5J7l9N1p3R5t7V9x1Z3b5D7f9A=",
		"Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==",
		"4aB8cD2eF6gH0iJ4kL8mN2oP6qR0sT4uV8wX2yZ6aB",
	} {
		for _, around := range []string{"§", "got § instead", `{"x":"§"}`, "a/§/b", "x=§&y", "the value (§), then"} {
			in := strings.ReplaceAll(around, "§", secret)
			require.NotContains(t, scrub.Text(in), secret, "of %q", in)
		}
	}
}

// These are keys only because of the "=".
func TestAKeyWithPaddingIsHiddenToItsEnd(t *testing.T) {
	for _, key := range []string{
		"QmXk8bQ2n5v7y9C1e3g5Jw==", "ifLG2srjRLsxEkX9b4Tfmtc=", "eUK98iEG8IR3YvDzy012TccHIFEVmg8=",
		"GJG/5uyjAgBonuibwHakzLdn/XlhbEIihumYRPE/18E=",
	} {
		for _, around := range []string{"§", "got § instead", `{"x":"§"}`, "x=§&y", "the value (§), then"} {
			require.Equal(t, strings.ReplaceAll(around, "§", "(hidden)"), scrub.Text(strings.ReplaceAll(around, "§", key)))
		}
	}
}

func TestOrdinaryTextsAreNotTouched(t *testing.T) {
	for _, text := range []string{
		"mqtt dial: service unavailable: CONNACK 3 (server unavailable)",
		"amqp connection: network failure: link ended or refused by the hub: amqp:link:detach-forced (The link is force " +
			"detached. Code: publisher(link3006875). Details: AmqpMessagePublisher.IdleTimerExpired: Idle timeout: 00:10:00.)",
		"http send: throttled: HTTP 429 (too many requests), code 429001 ThrottlingException: too many requests, try again " +
			"later (tracking id 7a3f2c1e-90ab-4cde-8f01-23456789abcd-G:10-TimeStamp:11/22/2026 15:18:07)",
		"HTTP 404: error code=404001, errorCode: 404001, status_code=404",
		`{"errorCode":401003,"trackingId":"abc-1","message":"IotHubUnauthorized"}`,
		"the hub refused the token with status 401 (token expired)", "token: expired", "unexpected token: comma",
		"invalid signature: mismatch", "secret: not found",
		"Basic authentication required", "Basic realm=\"hub\"",
		"WWW-Authenticate: Bearer realm=\"x\", error=\"invalid_token\"", "bearer token is missing",
		"authorization: denied for device",
		"x509: certificate is valid for hub.example.test, not other.example.test",
		"tls: failed to verify certificate: x509: certificate signed by unknown authority",
		"dial tcp 10.0.0.1:8883: connect: connection refused", "lookup hub.example.test on 127.0.0.53:53: no such host",
		"read tcp [::1]:3321->[::1]:8883: i/o timeout",
		"https://hub.example.test/devices/dev-1/messages/events?api-version=2021-04-12", "wss://hub.example/$iothub a@b",
		"devices/dev-1/modules/Mod2/files/2026/readings-00012.json",
		"SharedAccessKeyName=device", "PartitionKey=abc;RowKey=7", "publicKey=ssh-ed25519", "monkey=2 design=1 turkey: 3",
		"primary key: violated", "keyboard=qwerty", `{"token":{"id":7}}`, "token: {7}",
		"SHA-256 e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "id 123e4567-e89b-12d3-a456-426614174000",
		"etag AAAAAAAAAAE=",
		"TestTheConnectionIsLostWhileTheHubAnswersNothing2Times",
		"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----", "a := b; c == d", "50% of code: done",
		"Temperatur 20 °C, 設備 dev-1", "panic: runtime error: index out of range [5] with length 3",
		"goroutine 7 [running]: main.main()", "-u needs a value", "--verbose --color red",
	} {
		require.Equal(t, text, scrub.Text(text))
		if strings.IndexByte(text, '\n') < 0 {
			require.Equal(t, text, scrub.Peer(text))
		}
	}
}

func TestATextOfAPeerIsBoundedAndOnOneLine(t *testing.T) {
	for in, want := range map[string]string{
		"a\r\nb\tc\x00d\x7f\x1b[31m":       `a\r\nb\tc\x00d\x7f\x1b[31m`,
		"bad \xff utf8":                    `bad \xff utf8`,
		"turn \u202e around \u2028 \u200b": `turn \xe2\x80\xae around \xe2\x80\xa8 \xe2\x80\x8b`,
		"  spaces  ":                       "spaces",
		"grüße":                            "grüße",
		"sig=a\nb":                         `sig=(hidden)\nb`,
	} {
		require.Equal(t, want, scrub.Peer(in))
	}
	require.Equal(t, strings.Repeat("x", scrub.MaxPeer)+"...", scrub.Peer(strings.Repeat("x", scrub.MaxPeer+1)))
	require.Equal(t, strings.Repeat("x", scrub.MaxPeer-1)+"...", scrub.Peer(strings.Repeat("x", scrub.MaxPeer-1)+"ü"))
	require.LessOrEqual(t, len(scrub.Peer(strings.Repeat("\x00", 1<<20))), scrub.MaxPeer+3)
	// A secret cut in two would not be recognized.
	const key = "Xk8bQ2n5v7y9C1e3g5J7l9N1p3R5t7V9x1Z3b5D7f9A="
	for n := range 2 * len(key) {
		for _, most := range []int{scrub.MaxPeer, 4 * scrub.MaxPeer} {
			require.NotContains(t, scrub.Peer(strings.Repeat("x ", (most-n)/2)+key), key[:12])
		}
	}
}

func TestACauseKeepsItsError(t *testing.T) {
	require.NoError(t, scrub.Cause(nil))
	plain := errTest("plain")
	require.Equal(t, plain, scrub.Cause(plain))
	bad := errTest("sig=abc\n")
	require.EqualError(t, scrub.Cause(bad), `sig=(hidden)\n`)
	require.ErrorIs(t, scrub.Cause(bad), bad)
	var none *os.PathError // its Error method needs one
	require.EqualError(t, scrub.Cause(none), "an error whose Error method panics")
}

// Nobody who walks the chain recovers.
// modemError is an error whose Timeout method needs a pointer.
type modemError struct{ late bool }

func (*modemError) Error() string { return "modem" }

func (e *modemError) Timeout() bool { return e.late }

func TestACauseHasNoMethodThatPanics(t *testing.T) {
	var none *os.PathError
	for text, err := range map[string]error{
		"an error whose Error method panics":           none,
		"<nil> (an error whose methods panic)":         (*net.OpError)(nil), // its Unwrap method panics
		"load: <nil> (an error whose methods panic)":   fmt.Errorf("load: %w", none),
		"all: <nil>, x (an error whose methods panic)": fmt.Errorf("all: %w, %w", none, errTest("x")),
		"asked (an error whose methods panic)":         errAsked("asked"),
		"dial: modem (an error whose methods panic)":   fmt.Errorf("dial: %w", (*modemError)(nil)),
	} {
		err = scrub.Cause(err)
		require.EqualError(t, err, text)
		require.NotErrorIs(t, err, os.ErrNotExist)
		require.False(t, errors.As(err, new(*os.PathError)))
	}
}

type errAsked string

func (e errAsked) Error() string { return string(e) }
func (e errAsked) Is(error) bool { panic("asked") }

type errTest string

func (e errTest) Error() string { return string(e) }

// No form of a secret is shown, in any context.
func FuzzForms(f *testing.F) {
	f.Add("a://b@c?sig=", "d", uint8(0))
	f.Add("bearer '", "'", uint8(50))
	f.Add(`{"token":"`, `"`, uint8(40))
	f.Fuzz(func(t *testing.T, before, after string, n uint8) {
		const secret = "4Z7Kv0Qw1x5Tn9"
		in := before + "\n" + strings.ReplaceAll(forms[int(n)%len(forms)], "§", secret) + "\n" + after
		if out := scrub.Text(in); strings.Contains(out, secret) {
			t.Errorf("%q became %q", in, out)
		}
	})
}

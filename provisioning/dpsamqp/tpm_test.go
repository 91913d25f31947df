package dpsamqp_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpsamqp"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
	"github.com/hubline-iot/hubline/transport/netopt"
)

func frame(p wire.Performative) string {
	b, err := wire.AppendFrame(nil, 0, p, nil)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func challenge(text string) string { return frame(&wire.Challenge{Challenge: []byte(text)}) }

const saslHead = "AMQP\x03\x01\x00\x00"

var tpmOffered = saslHead + frame(&wire.Mechanisms{Mechanisms: []wire.Symbol{"PLAIN", "TPM"}})

// openTPM opens a session with a peer that says all of this at once, and returns what the client
// has sent.
func openTPM(t *testing.T, says string, closes bool, prove func(key []byte) (transport.Token, error)) (sent string,
	err error) {
	testkit.In2030(t, func(t *testing.T) {
		near, far := memconn.Pair("near", "far")
		_, _ = io.WriteString(far, says)
		if closes {
			_ = far.CloseWrite()
		}
		began := time.Now()
		_, err = dpsamqp.New(&netopt.Options{Plaintext: true, Dial: dialTo(near)}).OpenTPM(t.Context(),
			&provisioning.Login{Endpoint: "dps.example.test", IDScope: "scope", RegistrationID: "id",
				Timeout: 7 * time.Second, Now: time.Now},
			&provisioning.TPMLogin{EndorsementKey: []byte("EK\x00x"), StorageRootKey: []byte("SRK"),
				Prove: func(_ context.Context, key []byte) (transport.Token, error) { return prove(key) }})
		require.LessOrEqual(t, time.Since(began), 8*time.Second)
		_ = near.Close()
		all, _ := io.ReadAll(far)
		sent = string(all)
		_ = far.Close()
	})
	return sent, err
}

func TestTheDialogueOfATPM(t *testing.T) {
	for name, segments := range map[string][]string{
		"two segments": {"\x80first", "\xc1second"},
		"one":          {"\xc0firstsecond"},
		"three":        {"\x80fi", "\x81rst", "\xc2second"},
	} {
		t.Run(name, func(t *testing.T) {
			says := tpmOffered + challenge("\x00")
			want := saslHead + frame(&wire.Init{Mechanism: "TPM", InitialResponse: []byte("\x00scope\x00id\x00EK\x00x"),
				Hostname: "dps.example.test"}) + frame(&wire.Response{Response: []byte("\x00SRK")})
			for i, s := range segments {
				says += challenge(s)
				response := "\x00"
				if i == len(segments)-1 {
					response = "\x00token"
				}
				want += frame(&wire.Response{Response: []byte(response)})
			}
			sent, err := openTPM(t, says+frame(&wire.Outcome{}), false, func(key []byte) (transport.Token, error) {
				require.Equal(t, "firstsecond", string(key))
				return transport.Token{Text: transport.Hide("token")}, nil
			})
			require.ErrorIs(t, err, transport.Timeout, "the peer says no more")
			require.True(t, strings.HasPrefix(sent, want+"AMQP\x00\x01\x00\x00"), "%q", sent)
		})
	}
}

func TestOddDialoguesOfATPM(t *testing.T) {
	met := func([]byte) (transport.Token, error) { return transport.Token{}, nil }
	var endless strings.Builder
	for i := range 200 {
		endless.WriteString(challenge(string([]byte{0x80 | byte(i%64)}) + "x"))
	}
	for name, row := range map[string]struct {
		says string
		kind transport.Kind
		text string
	}{
		"another protocol": {"HTTP/1.1 400 Bad Request\r\n", transport.Protocol, "does not speak AMQP"},
		"no SASL":          {"AMQP\x00\x01\x00\x00", transport.Unsupported, "no SASL mechanism"},
		"no mechanism TPM": {saslHead + frame(&wire.Mechanisms{Mechanisms: []wire.Symbol{"PLAIN"}}), transport.Unsupported,
			"no SASL mechanism"},
		"no mechanisms":   {saslHead + challenge("\x00"), transport.Protocol, "0x42, which must not come here"},
		"a frame of AMQP": {saslHead + frame(&wire.Open{ContainerID: "x"}), transport.Protocol, "has the type 0, not 1"},
		"a huge frame":    {tpmOffered + "\xff\xff\xff\xff", transport.Protocol, "has the size"},
		"a short frame":   {tpmOffered + "\x00\x00\x00\x01", transport.Protocol, "has the size"},
		"no performative": {tpmOffered + "\x00\x00\x00\x0a\x02\x01\x00\x00\xff\xff", transport.Protocol,
			"undecodable"},
		"mechanisms again":   {tpmOffered + tpmOffered[8:], transport.Protocol, "0x40, which must not come here"},
		"an empty challenge": {tpmOffered + challenge(""), transport.Protocol, "is empty"},
		"a wrong begin":      {tpmOffered + challenge("\x80x"), transport.Protocol, "not a zero"},
		"no segment": {tpmOffered + challenge("\x00") + challenge("\x00"), transport.Protocol,
			"not the next segment"},
		"a segment too early": {tpmOffered + challenge("\x00") + challenge("\xc1x"), transport.Protocol,
			"not the next segment"},
		"endless segments": {tpmOffered + challenge("\x00") + endless.String(), transport.Protocol, "SASL:"},
		"large segments": {tpmOffered + challenge("\x00") + challenge("\x80"+strings.Repeat("x", 6<<10)) +
			challenge("\x81"+strings.Repeat("x", 6<<10)) + challenge("\x82"+strings.Repeat("x", 6<<10)), transport.Protocol,
			"too large"},
		"refused": {tpmOffered + frame(&wire.Outcome{Code: 1}), transport.Unauthorized, "SASL outcome 1"},
		"refused, later": {tpmOffered + challenge("\x00") + challenge("\xc0x") + frame(&wire.Outcome{Code: 4}),
			transport.Unavailable,
			"SASL outcome 4"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := openTPM(t, row.says, false, met)
			require.ErrorIs(t, err, row.kind, "%v", err)
			require.ErrorContains(t, err, row.text)
			require.Equal(t, transport.OpRegister, transport.Find(err).Op)
		})
	}
	for n := range len(tpmOffered) {
		_, err := openTPM(t, tpmOffered[:n], true, met)
		require.ErrorIs(t, err, transport.Network, "%d bytes: %v", n, err)
		_, err = openTPM(t, tpmOffered[:n], false, met)
		require.ErrorIs(t, err, transport.Timeout, "%d bytes: %v", n, err)
	}
	_, err := openTPM(t, tpmOffered+frame(&wire.Outcome{Code: 1}), false, met)
	said, ok := errors.AsType[*amqp.SASLError](err)
	require.True(t, ok)
	require.Equal(t, 1, said.Code)
}

// The error of the TPM is not one of the connection.
func TestTheErrorOfTheTPMIsKept(t *testing.T) {
	mine := errors.New("the TPM is broken")
	_, err := openTPM(t, tpmOffered+challenge("\x00")+challenge("\xc0x"), false,
		func([]byte) (transport.Token, error) { return transport.Token{}, mine })
	require.Equal(t, mine, err)
}

// Whatever a service says in the dialogue, it ends.
func FuzzDialogueOfATPM(f *testing.F) {
	f.Add([]byte(tpmOffered + challenge("\x00") + challenge("\x80a") + challenge("\xc1b") + frame(&wire.Outcome{})))
	f.Add([]byte(tpmOffered + frame(&wire.Outcome{Code: 1})))
	f.Fuzz(func(t *testing.T, says []byte) {
		_, err := openTPM(t, string(says), true, func([]byte) (transport.Token, error) { return transport.Token{}, nil })
		if err != nil {
			require.NotNil(t, transport.Find(err))
		}
	})
}

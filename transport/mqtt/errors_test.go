package mqtt

import (
	"crypto/tls"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
	"github.com/hubline-iot/hubline/transport/netopt"
)

func TestLossesAreRetryable(t *testing.T) {
	for err, kind := range map[error]transport.Kind{
		errHubClosed{}:     transport.Network,
		violation("x"):     transport.Network,
		syscall.ECONNRESET: transport.Network,
		errNoPong:          transport.Timeout,
		error(&writeError{&net.OpError{Op: "write", Err: os.ErrDeadlineExceeded}}): transport.Timeout,
		&writeError{syscall.EPIPE}: transport.Network,
		tls.AlertError(42):         transport.Network,
	} {
		e := lossError(err)
		require.Equal(t, kind, e.Kind, "%v", err)
		require.True(t, errfilter.Retryable(e))
		require.Equal(t, transport.Connection, e.Scope)
	}
}

func TestWrongOptionsAndCredentialsAreInvalid(t *testing.T) {
	for text, o := range map[string]Options{
		"KeepAlive is 1.5s":              {KeepAlive: 1500 * time.Millisecond},
		"KeepAlive is 900ms":             {KeepAlive: 900 * time.Millisecond},
		"KeepAlive is 18h12m16s":         {KeepAlive: 65536 * time.Second},
		"KeepAlive is negative":          {KeepAlive: -time.Second},
		"PingTimeout is negative":        {PingTimeout: -1},
		"WriteTimeout is negative":       {Network: netopt.Options{WriteTimeout: -1}},
		"both Plaintext and Certificate": {Network: netopt.Options{Plaintext: true, Certificate: always(nil)}},
		`ModelID "Thermostat" is no`:     {ModelID: "Thermostat"},
		"ModelID has 4097 bytes":         {ModelID: "dtmi:" + strings.Repeat("x", 4092)},
		"ProductInfo has 4097 bytes":     {Network: netopt.Options{ProductInfo: strings.Repeat("x", 4097)}},
		`Addr "hub" is not`:              {Network: netopt.Options{Addr: "hub"}},
		`Addr ":8883" is not`:            {Network: netopt.Options{Addr: ":8883"}},
		`Addr "hub:0" is not`:            {Network: netopt.Options{Addr: "hub:0"}},
		`Addr "hub:mqtt" is not`:         {Network: netopt.Options{Addr: "hub:mqtt"}},
	} {
		_, err := New(&o).Dial(t.Context(), &transport.Config{Creds: testCreds(t), Sink: new(sink)})
		require.ErrorIs(t, err, transport.Invalid)
		require.ErrorContains(t, err, text)
		require.Equal(t, transport.Connection, transport.Find(err).Scope)
	}
	_, err := New(nil).Dial(t.Context(), &transport.Config{Creds: &transport.Credentials{Host: "https://x"},
		Sink: new(sink)})
	require.ErrorIs(t, err, transport.Invalid)
	require.Equal(t, transport.OpDial, transport.Find(err).Op)
}

func TestOptionsAreCopiedAndHaveDefaults(t *testing.T) {
	r, err := (*Options)(nil).resolve()
	require.NoError(t, err)
	require.Equal(t, 60*time.Second, r.KeepAlive)
	require.Equal(t, 20*time.Second, r.PingTimeout)
	require.Equal(t, 10*time.Second, r.Network.WriteTimeout)
	require.NotNil(t, r.Network.Dial)
}

func TestTheUserNameIsWhatTheHubWants(t *testing.T) {
	creds := &transport.Credentials{Host: "hub.example.test", GatewayHost: "gateway.local", DeviceID: "dev-1"}
	require.Regexp(t,
		`^hub\.example\.test/dev-1/\?api-version=2021-04-12&DeviceClientType=Hubline%20%28go[^&= ]*%29%20Thermo%2F1\.0$`,
		helloOf(t, &Options{Network: netopt.Options{ProductInfo: "Thermo/1.0"}}, creds).UserName)
	creds.ModuleID = "mod"
	require.Regexp(t, `^hub\.example\.test/dev-1/mod/\?api-version=2021-04-12&DeviceClientType=Hubline%20%28go[^&= ]*%29$`,
		helloOf(t, nil, creds).UserName)
	require.Equal(t, "dev-1/mod", helloOf(t, nil, creds).ClientID)
}

func TestInfoHasTheExpiryOfTheToken(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	cfg := &transport.Config{Creds: &transport.Credentials{Now: func() time.Time { return now }}}
	require.Equal(t, now.Add(time.Hour), newSession(cfg, transport.Token{Expires: now.Add(time.Hour)}, nil,
		0).Info().Expires)
	require.True(t, newSession(cfg, transport.Token{}, nil, 0).Info().Expires.IsZero())
}

// helloOf returns what a CONNECT with these options says.
func helloOf(t testing.TB, o *Options, creds *transport.Credentials) dialect.Hello {
	r, err := o.resolve()
	require.NoError(t, err)
	_, hello, err := r.session(&transport.Config{Creds: creds})
	require.NoError(t, err)
	return hello
}

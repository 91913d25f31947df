package mqtt

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/transport"
)

func TestTheConnackTableIsComplete(t *testing.T) {
	want := map[int]transport.Kind{
		1: transport.Unsupported, 2: transport.Unauthorized, 3: transport.Unavailable, 4: transport.Unauthorized, 5: transport.Unauthorized,
	}
	for code := 1; code < 256; code++ {
		kind, ok := want[code]
		if !ok {
			kind = transport.Protocol
		}
		e := dialError(&ConnackError{byte(code)})
		require.Equal(t, kind, e.Kind, "code %d", code)
		require.Equal(t, code == 3, errfilter.Retryable(e), "code %d", code)
		require.NotEmpty(t, connackTable[code].text)
	}
	require.Equal(t, "mqtt dial: service unavailable: CONNACK 3 (server unavailable)", dialError(&ConnackError{3}).Error())
	require.Equal(t, "mqtt dial: protocol violation: CONNACK 200 (reserved code)", dialError(&ConnackError{200}).Error())
}

func TestTheSubackTableIsComplete(t *testing.T) {
	for code := range 256 {
		require.Equal(t, code <= 2, granted(byte(code)))
		kind := transport.Protocol
		if code == 0x80 {
			kind = transport.Unavailable
		}
		if code > 2 {
			require.Equal(t, kind, subackTable[code].kind, "code %d", code)
		}
		require.NotEmpty(t, subackTable[code].text)
	}
	require.Equal(t, "SUBACK 128 (refused) for a/#", (&SubackError{"a/#", 0x80}).Error())
}

func TestTheAlertTableIsComplete(t *testing.T) {
	for code := range 256 {
		// crypto/tls knows the assigned ones by name.
		known := tls.AlertError(code).Error() != fmt.Sprintf("tls: alert(%d)", code)
		if known {
			require.NotEqual(t, "unassigned alert", alertTable[code].text, "code %d: %v", code, tls.AlertError(code))
		}
		err := &net.OpError{Op: "remote error", Err: tls.AlertError(code)}
		require.Equal(t, alertTable[code].kind, dialError(err).Kind)
	}
	require.Equal(t, transport.Unauthorized, alertTable[116].kind)
	require.False(t, errfilter.Retryable(dialError(&net.OpError{Op: "remote error", Err: tls.AlertError(42)})))
}

func TestDialErrorsAreToldApart(t *testing.T) {
	opError := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	sys := func(e syscall.Errno) error { return opError(os.NewSyscallError("connect", e)) }
	for _, c := range []struct {
		err  error
		kind transport.Kind
	}{
		{opError(&net.DNSError{Err: "no such host", Name: "x", IsNotFound: true}), transport.Network},
		{opError(&net.DNSError{Err: "server misbehaving", Name: "x", IsTemporary: true}), transport.Network},
		{opError(&net.DNSError{Err: "i/o timeout", Name: "x", IsTimeout: true}), transport.Timeout},
		{sys(syscall.ECONNREFUSED), transport.Network},
		{sys(syscall.ECONNRESET), transport.Network},
		{sys(syscall.EHOSTUNREACH), transport.Network},
		{sys(syscall.ENETUNREACH), transport.Network},
		{sys(syscall.EPIPE), transport.Network},
		{sys(syscall.EACCES), transport.Network},
		{sys(syscall.EMFILE), transport.Network},
		{sys(syscall.ETIMEDOUT), transport.Timeout},
		{opError(os.ErrDeadlineExceeded), transport.Timeout},
		{context.DeadlineExceeded, transport.Timeout},
		{context.Canceled, transport.Network},
		{io.EOF, transport.Network},
		{io.ErrUnexpectedEOF, transport.Network},
		{errHubClosed{}, transport.Network},
		{net.ErrClosed, transport.Network},
		{errors.New("anything else"), transport.Network},
		{x509.UnknownAuthorityError{}, transport.Untrusted},
		{x509.HostnameError{Host: "x", Certificate: new(x509.Certificate)}, transport.Untrusted},
		{x509.CertificateInvalidError{Cert: new(x509.Certificate), Reason: x509.Expired}, transport.Untrusted},
		{x509.UnhandledCriticalExtension{}, transport.Untrusted},
		{x509.InsecureAlgorithmError(1), transport.Untrusted},
		{x509.ConstraintViolationError{}, transport.Untrusted},
		{x509.SystemRootsError{}, transport.Untrusted},
		{&tls.CertificateVerificationError{Err: errors.New("by the user's VerifyConnection")}, transport.Untrusted},
		{tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, transport.Protocol},
		{&tls.ECHRejectionError{}, transport.Unsupported},
		{violation("x"), transport.Protocol},
		{opError(&net.AddrError{Err: "missing port", Addr: "x"}), transport.Invalid},
		{opError(net.InvalidAddrError("x")), transport.Invalid},
		{opError(net.UnknownNetworkError("x")), transport.Invalid},
		{&net.ParseError{Type: "IP address", Text: "x"}, transport.Invalid},
		{&transport.Error{Kind: transport.Forbidden, Op: transport.OpSend}, transport.Forbidden},
		{fmt.Errorf("token: %w", &transport.Error{Kind: transport.ClockUnset}), transport.ClockUnset},
	} {
		e := dialError(c.err)
		require.Equal(t, c.kind, e.Kind, "%T %v", c.err, c.err)
		require.Equal(t, transport.Connection, e.Scope)
		require.Equal(t, transport.OpDial, e.Op)
		require.Equal(t, "mqtt", e.Proto)
		if transport.Find(c.err) == nil {
			require.ErrorIs(t, e, c.err, "the cause stays reachable")
		}
	}
}

func TestEachRowOfTheDialTableIsReached(t *testing.T) {
	seen := map[string]bool{}
	for _, row := range dialTable {
		require.NotEmpty(t, row.name)
		require.False(t, seen[row.name])
		seen[row.name] = true
	}
	require.Equal(t, transport.Network, dialTable[len(dialTable)-1].kind)
}

func TestLossesAreWorthARetry(t *testing.T) {
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
		"WriteTimeout is negative":       {WriteTimeout: -1},
		"both Plaintext and Certificate": {Plaintext: true, Certificate: always(nil)},
		`ModelID "Thermostat" is no`:     {ModelID: "Thermostat"},
		"ModelID has 4097 bytes":         {ModelID: "dtmi:" + strings.Repeat("x", 4092)},
		"ProductInfo has 4097 bytes":     {ProductInfo: strings.Repeat("x", 4097)},
		`Addr "hub" is not`:              {Addr: "hub"},
		`Addr ":8883" is not`:            {Addr: ":8883"},
		`Addr "hub:0" is not`:            {Addr: "hub:0"},
		`Addr "hub:mqtt" is not`:         {Addr: "hub:mqtt"},
	} {
		_, err := New(&o).Dial(t.Context(), &transport.Config{Creds: testCreds(t), Sink: new(sink)})
		require.ErrorIs(t, err, transport.Invalid)
		require.ErrorContains(t, err, text)
		require.Equal(t, transport.Connection, transport.Find(err).Scope)
	}
	_, err := New(nil).Dial(t.Context(), &transport.Config{Creds: &transport.Credentials{Host: "https://x"}, Sink: new(sink)})
	require.ErrorIs(t, err, transport.Invalid)
	require.Equal(t, transport.OpDial, transport.Find(err).Op)
}

func TestOptionsAreCopiedAndHaveDefaults(t *testing.T) {
	r, err := (*Options)(nil).resolve()
	require.NoError(t, err)
	require.Equal(t, 60*time.Second, r.KeepAlive)
	require.Equal(t, 20*time.Second, r.PingTimeout)
	require.Equal(t, 10*time.Second, r.WriteTimeout)
	require.NotNil(t, r.Dial)

	creds := &transport.Credentials{Host: "hub.example.test", GatewayHost: "gateway.local", DeviceID: "d"}
	require.Equal(t, "gateway.local:8883", r.addr(creds))
	require.Equal(t, "gateway.local:1883", (&Options{Plaintext: true}).addr(creds))
	require.Equal(t, "[::1]:99", (&Options{Addr: "[::1]:99"}).addr(creds))

	require.Equal(t, "gateway.local:1", (&Options{Tunnel: failingTunnel{}}).addr(creds))

	base := &tls.Config{}
	o := Options{TLS: base}
	c := o.tlsConfig(creds, nil)
	require.Equal(t, "gateway.local", c.ServerName)
	require.Equal(t, uint16(tls.VersionTLS12), c.MinVersion)
	require.Empty(t, base.ServerName, "the user's config is not touched")
	base.ServerName, base.MinVersion = "other", tls.VersionTLS13
	require.Equal(t, "other", o.tlsConfig(creds, nil).ServerName)
	require.Equal(t, uint16(tls.VersionTLS13), o.tlsConfig(creds, nil).MinVersion)
}

func TestTheUserNameIsWhatTheHubWants(t *testing.T) {
	creds := &transport.Credentials{Host: "hub.example.test", GatewayHost: "gateway.local", DeviceID: "dev-1"}
	require.Regexp(t, `^hub\.example\.test/dev-1/\?api-version=2021-04-12&DeviceClientType=Hubline%20%28go[^&= ]*%29%20Thermo%2F1\.0$`,
		(&Options{ProductInfo: "Thermo/1.0"}).userName(creds))
	creds.ModuleID = "mod"
	require.Regexp(t, `^hub\.example\.test/dev-1/mod/\?api-version=2021-04-12&DeviceClientType=Hubline%20%28go[^&= ]*%29$`, new(Options).userName(creds))
	require.Equal(t, "dev-1/mod", clientID(creds))
}

func TestInfoTellsWhenTheTokenExpires(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	cfg := &transport.Config{Creds: &transport.Credentials{Now: func() time.Time { return now }}}
	require.Equal(t, now.Add(time.Hour), newSession(cfg, transport.Token{Expires: now.Add(time.Hour)}).Info().Expires)
	require.True(t, newSession(cfg, transport.Token{}).Info().Expires.IsZero())
}

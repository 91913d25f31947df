package mqtt_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// The error of a dial to a port that speaks something else names the stage, and what the port may
// be.
func TestErrorsOfADialToAWrongPort(t *testing.T) {
	cert, roots := certify(t)
	secure := &netopt.Options{TLS: &tls.Config{RootCAs: roots, ServerName: "hub.example.test"}}
	plain := &netopt.Options{Plaintext: true}
	answer := func(text string) func(net.Conn) {
		return func(c net.Conn) {
			_, _ = c.Read(make([]byte, 999))
			_, _ = c.Write([]byte(text))
		}
	}
	for name, c := range map[string]struct {
		serve func(net.Conn)
		opt   *netopt.Options
		kind  transport.Kind
		texts []string
	}{
		"TLS to a port that closes": {func(net.Conn) {}, secure, transport.Network,
			[]string{"TLS handshake: ", "this port may speak plain MQTT or another protocol"}},
		"TLS to a port that resets": {testkit.HangUp(true), secure, transport.Network,
			[]string{"TLS handshake: ", "this port may speak plain MQTT or another protocol"}},
		"plain to a port that closes": {func(c net.Conn) { _, _ = c.Read(make([]byte, 999)) }, plain, transport.Network,
			[]string{"the hub closed the connection in place of the answer to CONNECT", "this port may speak another " +
				"protocol; if this port expects TLS, use mqtts://"}},
		"plain to a port that resets": {testkit.HangUp(true), plain, transport.Network,
			[]string{"in place of the answer to CONNECT", "this port may speak another protocol"}},
		"plain to a TLS port": {answer("\x15\x03\x01\x00\x02\x02\x0a"), plain, transport.Protocol,
			[]string{"a TLS alert: this port wants TLS"}},
		"plain to HTTP": {answer("HTTP/1.1 400 Bad Request\r\n\r\n"), plain, transport.Protocol,
			[]string{"the peer answers CONNECT with HTTP; check host and port"}},
		"TLS to HTTP": {answer("HTTP/1.1 400 Bad Request\r\n\r\n"), secure, transport.Protocol,
			[]string{"does not speak TLS: check host and port"}},
		"no client certificate": {func(c net.Conn) {
			s := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAnyClientCert})
			_ = s.Handshake()
			_, _ = io.Copy(io.Discard, c)
		}, secure, transport.Unauthorized, []string{"client certificate"}},
		"plain to AMQP": {answer("AMQP\x00\x01\x00\x00"), plain, transport.Protocol, []string{"with AMQP"}},
	} {
		t.Run(name, func(t *testing.T) {
			opt := *c.opt
			opt.Addr = testkit.Serve(t, c.serve)
			creds := &transport.Credentials{Host: "hub.example.test", DeviceID: "dev-1", Token: fixed}
			_, err := mqtt.New(&mqtt.Options{Network: opt}).Dial(context.Background(),
				&transport.Config{Creds: creds, Window: 1, Sink: endAfterFirst{}})
			require.ErrorIs(t, err, c.kind, "%v", err)
			for _, text := range c.texts {
				require.ErrorContains(t, err, text)
			}
		})
	}
}

// A broker that has answered in the clear expects no TLS: it may have refused the birth message.
func TestABrokerThatClosesAfterItsAnswerExpectsNoTLS(t *testing.T) {
	addr := testkit.Serve(t, func(c net.Conn) {
		_, _ = c.Read(make([]byte, 999))
		_, _ = c.Write([]byte{0x20, 2, 0, 0})
		_, _ = c.Read(make([]byte, 999))
	})
	_, err := mqtt.New(&mqtt.Options{Network: netopt.Options{Plaintext: true, Addr: addr},
		Dialect: &mqtt.Topics{Telemetry: "up", Birth: &transport.Message{Topic: "birth"}}}).Dial(context.Background(),
		&transport.Config{Creds: &transport.Credentials{Host: "hub.example.test", DeviceID: "dev-1"}, Window: 1,
			Sink: endAfterFirst{}})
	require.ErrorIs(t, err, transport.Network)
	require.NotContains(t, err.Error(), "mqtts://")
}

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/cmd/hubline/internal/target"
	"github.com/hubline-iot/hubline/testbroker"
)

// awsHost is a name that AWS IoT Core has.
const awsHost = "a1b2c3-ats.iot.eu-west-1.amazonaws.com"

// sharedPort is a listener that several protocols share: a client with the name gets the hub's
// broker, others an answer of HTTP, as at AWS IoT Core.
type sharedPort struct {
	net.Listener
	roots *x509.CertPool
	conns sync.WaitGroup
}

func share(t *testing.T, hub *testbroker.Hub, name string) *sharedPort {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"localhost", awsHost},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(30 * 24 * time.Hour), IsCA: true,
		BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	leaf, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	s := &sharedPort{roots: x509.NewCertPool()}
	s.roots.AddCert(leaf)
	config := &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		MinVersion:   tls.VersionTLS12, ClientAuth: tls.RequestClientCert,
	}
	if name != "" {
		config.NextProtos = []string{name}
	}
	s.Listener, err = tls.Listen("tcp", "127.0.0.1:0", config)
	require.NoError(t, err)
	s.conns.Go(func() { // ends with the listener
		for {
			conn, err := s.Accept()
			if err != nil {
				return
			}
			s.conns.Go(func() { serveShared(t, conn.(*tls.Conn), hub, name) })
		}
	})
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		s.conns.Wait()
	})
	return s
}

// serveShared serves one connection. It ends with either side.
func serveShared(t *testing.T, conn *tls.Conn, hub *testbroker.Hub, name string) {
	defer conn.Close()
	if conn.HandshakeContext(t.Context()) != nil {
		return
	}
	if conn.ConnectionState().NegotiatedProtocol != name {
		_, _ = conn.Read(make([]byte, 1024))
		_, _ = io.WriteString(conn, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
		return
	}
	server, err := hub.Dial(testbroker.PortMQTT)(t.Context(), "tcp", "")
	if err != nil {
		return
	}
	defer server.Close()
	go func() { // ends with the connection
		_, _ = io.Copy(conn, server)
		_ = conn.Close()
	}()
	_, _ = io.Copy(server, conn)
}

// A broker at port 443 is reached by its protocol's name in TLS.
func TestABrokerAtASharedPort(t *testing.T) {
	cert, key := newShell(t, nil).pair(testbroker.NewClientCert("pump-1", time.Now(), time.Now().Add(30*24*time.Hour)))
	for _, c := range []struct {
		name, port string
		args       []string
		send       int
		row        string // of doctor, without repeated spaces
	}{
		{"mqtt", ":443", []string{"-dialect", "aws-iot"}, exitOK, `ok tls PORT TLS 1.3 for "mqtt", by`},
		{"x-amzn-mqtt-ca", ":443", []string{"-dialect", "aws-iot", "-cert", cert, "-cert-key", key}, exitOK,
			`ok tls PORT TLS 1.3 for "x-amzn-mqtt-ca", by`},
		{"site", ":443", []string{"-dialect", "aws-iot", "-alpn", "site"}, exitOK, `ok tls PORT TLS 1.3 for "site", by`},
		{"site", "", []string{"-alpn", "site"}, exitOK, `ok tls PORT TLS 1.3 for "site", by`},
		{"site", "", []string{"-alpn", "other"}, exitNetwork, "BAD tls PORT no common protocol"},
		{"mqtt", ":443", nil, exitFailed, "AWS IoT Core wants a protocol name in TLS (ALPN) at port 443: give -dialect " +
			"aws-iot"},
	} {
		for _, transport := range []string{"mqtt"} {
			s := newShell(t, &testbroker.Options{Broker: &testbroker.BrokerOptions{}})
			s.tool = &tool{}
			delete(s.env, target.EnvConnect)
			s.env[target.EnvBroker] = s.hub.BrokerURL("pump-1", "mqtts", awsHost+c.port)
			port := share(t, s.hub, c.name)
			s.change = func(to *target.Target) {
				to.Network.Dial, to.Network.TLS = nil, &tls.Config{RootCAs: port.roots, MinVersion: tls.VersionTLS12}
			}
			args := append([]string{"-transport", transport, "-address", port.Addr().String()}, c.args...)
			status := s.run(append(args, "send", "-body", "x", "-policy", "none")...)
			require.Equal(t, c.send, status, s.log.String())
			require.Equal(t, c.send == exitOK, len(s.bodies()) == 1)
			require.Equal(t, c.args == nil, strings.Contains(s.log.String(), c.row), s.log.String())
			doctor := s.run(append(args, "doctor", "-hold", "0")...)
			require.Equal(t, c.send == exitOK, doctor == exitOK, s.out.String())
			_, number, _ := strings.Cut(port.Addr().String(), ":")
			require.Contains(t, strings.Join(strings.Fields(s.out.String()), " "), strings.Replace(c.row, "PORT", number, 1))
		}
	}
}

// A server that takes no notice of the name may be a proxy, or of another protocol.
func TestAServerWithoutProtocolNames(t *testing.T) {
	s := newPatient(t)
	s.hub = newShell(t, &testbroker.Options{Broker: &testbroker.BrokerOptions{}}).hub
	port := share(t, s.hub, "")
	delete(s.env, target.EnvConnect)
	s.env[target.EnvBroker] = s.hub.BrokerURL("pump-1", "mqtts", "localhost:443")
	s.change = func(to *target.Target) {
		to.Network.Dial, to.Network.TLS = nil, &tls.Config{RootCAs: port.roots, MinVersion: tls.VersionTLS12}
	}
	status := s.run("doctor", "-hold", "0", "-address", port.Addr().String(), "-alpn", "mqtt")
	require.Equal(t, exitOK, status, s.out.String())
	require.Contains(t, s.out.String(), "takes no notice of the protocol name \"mqtt\"")
}

// What cannot work at a shared port is refused before anything is tried.
func TestProtocolNamesThatCannotWork(t *testing.T) {
	for _, c := range []struct {
		url  string
		args []string
		want string
	}{
		{"mqtts://ns.westeurope-1.ts.eventgrid.azure.net:443/?device=a&telemetry=t", []string{"-dialect", "event-grid"},
			"WebSocket alone at port 443: give wss://HOST/..., or port 8883"},
		{"wss://broker.example/?device=a&telemetry=t", []string{"-alpn", "mqtt"}, "no protocol to negotiate"},
		{"mqtt://broker.example/?device=a&telemetry=t", []string{"-alpn", "mqtt"}, "no protocol to negotiate"},
		{"", []string{"-alpn", "mqtt"}, "-alpn: it is for brokers"},
	} {
		s := newShell(t, nil)
		if c.url != "" {
			delete(s.env, target.EnvConnect)
			s.env[target.EnvBroker] = c.url
		}
		require.Equal(t, exitUsage, s.run(append(c.args, "send", "-body", "x")...), s.log.String())
		require.Contains(t, s.log.String(), c.want)
	}
}

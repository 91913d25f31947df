package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
)

// newAuthority returns an authority and its key in PEM. It is valid for two hours.
func newAuthority(t *testing.T, key any, public any, ca bool) (cert, private []byte) {
	return newAuthorityFrom(t, time.Now().Add(-time.Hour), key, public, ca)
}

func newAuthorityFrom(t *testing.T, from time.Time, key, public any, ca bool) (cert, private []byte) {
	template := &x509.Certificate{SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: "desk"}, IsCA: ca,
		BasicConstraintsValid: true, NotBefore: from, NotAfter: from.Add(2 * time.Hour)}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, public, key)
	require.NoError(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// A client that trusts the authority of the file reaches every port, by each name and address.
func TestAGivenAuthorityAndMoreNames(t *testing.T) {
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	ecKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	for name, key := range map[string]struct{ private, public any }{
		"RSA": {rsaKey, &rsaKey.PublicKey}, "ECDSA": {ecKey, &ecKey.PublicKey},
	} {
		t.Run(name, func(t *testing.T) {
			cert, private := newAuthority(t, key.private, key.public, true)
			p := start(t, "-authority", write(t, "ca.pem", string(cert)+string(private)), "-host", "192.0.2.7", "-name",
				"192.0.2.8", "-name", "fd00::1", "-name", "hub.desk.test", "-dps")
			written, err := os.ReadFile(p.ready.CA)
			require.NoError(t, err)
			require.Equal(t, string(cert)+string(cert), string(written), "of the hub, and of the service")
			for _, addr := range []string{p.ready.Addresses["mqtt"], p.ready.Addresses["amqp"], p.ready.Addresses["https"],
				p.ready.DPS.Addresses["https"]} {
				for _, name := range []string{"192.0.2.8", "fd00::1", "hub.desk.test", "localhost", "127.0.0.1"} {
					o := p.tls()
					o.ServerName = name
					conn, err := tls.Dial("tcp", addr, o)
					require.NoError(t, err, "%s by %s", addr, name)
					conn.Close()
				}
			}
			o := p.tls()
			o.ServerName = "192.0.2.7"
			conn, err := tls.Dial("tcp", p.ready.Addresses["mqtt"], o)
			require.NoError(t, err)
			conn.Close()
			require.Contains(t, p.ready.Devices[0].ConnectionString, "HostName=192.0.2.7;")
			c := p.client("dev-1", "mqtt", nil)
			require.NoError(t, c.Open(soon(t)))
			require.NoError(t, c.Send(soon(t), &transport.Message{ID: "1"}))
		})
	}
}

func TestAnAuthorityThatCannotBe(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	cert, private := newAuthority(t, key, &key.PublicKey, true)
	leaf, _ := newAuthority(t, key, &key.PublicKey, false)
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	_, otherKey := newAuthority(t, other, &other.PublicKey, true)
	old, _ := newAuthorityFrom(t, time.Now().Add(-3*time.Hour), key, &key.PublicKey, true)
	early, _ := newAuthorityFrom(t, time.Now().Add(time.Hour), key, &key.PublicKey, true)
	for content, want := range map[string]string{
		string(old) + string(private):   "make a new one",
		string(early) + string(private): "is valid from",
		string(cert):                    "both in PEM", string(private): "both in PEM", "x": "both in PEM",
		string(cert) + string(otherKey): "private key does not match",
		string(leaf) + string(private):  "not that of an authority",
	} {
		var stdout, stderr bytes.Buffer
		require.Equal(t, 1, run(t.Context(), []string{"-free", "-authority", write(t, "a.pem", content)}, &stdout, &stderr))
		require.Contains(t, stderr.String(), "flag -authority")
		require.Contains(t, stderr.String(), want)
	}
}

// onlyHigh is a machine on which ports below 1024, and some others, cannot be used.
type onlyHigh struct {
	taken string
	asked []string
}

func (o *onlyHigh) HostName() string { return "hub" }

func (o *onlyHigh) Listen(_ testbroker.Port, addr string) (net.Addr, error) {
	o.asked = append(o.asked, addr)
	at, err := net.ResolveTCPAddr("tcp", addr)
	switch {
	case err != nil:
		return nil, err
	case at.Port > 0 && at.Port < 1024:
		return nil, os.NewSyscallError("bind", syscall.EACCES)
	case addr == o.taken:
		return nil, os.NewSyscallError("bind", syscall.EADDRINUSE)
	case at.Port == 0:
		at.Port = 40000
	}
	return at, nil
}

func TestAStartWithoutTheRightToLowPorts(t *testing.T) {
	open443 := func(o *onlyHigh, args ...string) (readyHub, error) {
		s, err := parse(args, &bytes.Buffer{})
		require.NoError(t, err)
		return open(o, &s.ports, func(port string) string { return port })
	}
	at, err := open443(&onlyHigh{})
	require.NoError(t, err)
	require.Equal(t, 8443, at.Ports["https"])
	require.Len(t, at.Notes, 1)
	for _, want := range []string{"https is at 127.0.0.1:8443", "Node.js", "443", "CAP_NET_BIND_SERVICE"} {
		require.Contains(t, at.Notes[0], want)
	}
	at, err = open443(&onlyHigh{taken: "127.0.0.1:8443"})
	require.NoError(t, err)
	require.Equal(t, 40000, at.Ports["https"])
	require.Contains(t, at.Notes[0], "127.0.0.1:40000")
	_, err = open443(&onlyHigh{}, "-https", "127.0.0.1:443")
	require.ErrorContains(t, err, "flag -https: no permission", "an address of the command line is not replaced")
	_, err = open443(&onlyHigh{taken: "127.0.0.1:8883"})
	require.ErrorContains(t, err, "taken by another program")
}

// Another address does not help a program that is out of descriptors.
func TestAStartWithoutDescriptors(t *testing.T) {
	err := listenError("mqtt", "127.0.0.1:8883", &net.OpError{Op: "listen", Net: "tcp",
		Err: os.NewSyscallError("socket", syscall.EMFILE)})
	require.EqualError(t, err, "flag -mqtt: listen tcp: socket: "+syscall.EMFILE.Error()+
		"; let the process open more files, such as by ulimit -n")
}

func TestHealth(t *testing.T) {
	p := start(t)
	require.Equal(t, map[string]any{"status": "healthy"}, p.good("GET", "/health", ""))
	ask := func(url string) (int, string) {
		var stdout, stderr bytes.Buffer
		status := run(t.Context(), []string{"-health", url}, &stdout, &stderr)
		require.Empty(t, stdout.String())
		return status, stderr.String()
	}
	status, text := ask(p.ready.Control)
	require.Zero(t, status, text)
	status, text = ask(p.ready.Control + "/")
	require.Zero(t, status, "as browsers show the address: %s", text)
	status, text = ask(p.ready.Control + "/nothing")
	require.Equal(t, 1, status)
	require.Contains(t, text, "flag -health")
	require.Zero(t, p.stop())
	status, text = ask(p.ready.Control)
	require.Equal(t, 1, status)
	require.Contains(t, text, "of a running testhub")
	status, _ = ask("://")
	require.Equal(t, 1, status)
}

// A hub without free descriptors says so, says what to do, and serves again when there are some.
func TestOutOfDescriptors(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("it has no limit of descriptors")
	}
	c := process(t)
	args := append([]string{"-c", `ulimit -n 64 && exec "$0" "$@"`}, c.Args...)
	p := spawn(t, exec.CommandContext(t.Context(), "sh", args...))
	var open []net.Conn
	for range 100 {
		conn, err := net.Dial("tcp", p.ready.Addresses["mqtt"])
		require.NoError(t, err) // the kernel accepts it
		open = append(open, conn)
	}
	l := p.printed(func(l line) bool { return l.Event == "refused" && l.Connection == 0 })
	require.Contains(t, l.Error, "too many open files")
	require.Contains(t, l.Error, "ulimit -n")
	for _, conn := range open {
		conn.Close()
	}
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	device := p.client("dev-1", "mqtt", nil)
	require.NoError(t, device.Open(ctx))
}

// A page is at the same address after a restart, unless another program is there.
func TestTheUsualPortOfTheControlAPI(t *testing.T) {
	s, err := parse(nil, &bytes.Buffer{})
	require.NoError(t, err)
	require.Equal(t, usualControl, s.control)
	other, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer other.Close()
	s.control = other.Addr().String()
	l, err := s.listenControl()
	require.NoError(t, err)
	require.NoError(t, l.Close())
	s, err = parse([]string{"-control", s.control}, &bytes.Buffer{})
	require.NoError(t, err)
	_, err = s.listenControl()
	require.ErrorContains(t, err, "flag -control: "+s.control+" is taken")
}

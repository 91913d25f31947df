package interop

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	hostName = "hub.example.test"
	deviceID = "dev-1"
)

// authority signs certificates for one test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) *authority {
	a := &authority{}
	c := a.sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "Authority of the test"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	})
	a.cert, a.key = c.Leaf, c.PrivateKey.(*ecdsa.PrivateKey)
	return a
}

// sign makes a key and a certificate for it, signed by a, or self-signed if a has no certificate
// yet.
func (a *authority) sign(t testing.TB, c *x509.Certificate) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	c.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62))
	require.NoError(t, err)
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	require.NoError(t, err)
	leaf, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func (a *authority) server(t testing.TB, names ...string) tls.Certificate {
	return a.sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: names[0]}, DNSNames: names,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
}

func (a *authority) client(t testing.TB, name string) tls.Certificate {
	return a.sign(t, &x509.Certificate{
		Subject:  pkix.Name{CommonName: name},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// pool contains only the authority.
func (a *authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

func certPEM(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

func keyPEM(t testing.TB, c tls.Certificate) []byte {
	der, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// settings configure a broker. The zero value has no authentication.
type settings struct {
	passwords   map[string]string // by user name
	clientCerts *authority        // required issuer of client certificates
	persistent  bool              // sessions survive the process; see save
	ipv6        bool              // a port with TLS at ::1, with a certificate for that address
	inFlight    int               // messages to a client without an acknowledgement; 0: no limit
}

// broker is a running mosquitto.
type broker struct {
	t          testing.TB
	ca         *authority
	cert       tls.Certificate
	secure     string // address of the port with TLS
	plain      string // address of the port without
	ipv6       string // address of the port at ::1
	plainPort  int
	configFile string
	cmd        *exec.Cmd
	log        *bytes.Buffer
}

// startBroker runs mosquitto until the test ends.
func startBroker(t testing.TB, s settings) *broker {
	path, err := exec.LookPath("mosquitto")
	if err != nil {
		if path = "/usr/sbin/mosquitto"; !executable(path) {
			missing(t, "mosquitto")
		}
	}
	b := &broker{t: t, ca: newAuthority(t), cmd: &exec.Cmd{Path: path}}
	b.cert = b.ca.server(t, hostName)
	dir := t.TempDir()
	file := func(name string, content []byte) string {
		p := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(p, content, 0o600))
		return p
	}
	ports := freePorts(t, 3)
	b.plainPort = ports[1]
	b.secure, b.plain = loopback(ports[0]), loopback(ports[1])
	config := "user root\n" + // otherwise it would switch to its own user, which cannot read the files here
		"log_dest stderr\nlog_type error\nlog_type warning\nlog_type notice\nset_tcp_nodelay true\n" +
		"max_queued_messages 0\n" + // a slow subscriber loses no message
		fmt.Sprintf("max_inflight_messages %d\n", s.inFlight) +
		"per_listener_settings true\n"
	if s.persistent {
		// The default interval saves on a clean exit and every half an hour. Here save says when.
		config += "persistence true\nautosave_interval 0\nqueue_qos0_messages true\npersistence_location " + dir + "/\n"
	}
	access := "allow_anonymous true\n"
	if s.passwords != nil {
		access = "allow_anonymous false\npassword_file " + file("passwords", passwordFile(t, s.passwords)) + "\n"
	}
	config += fmt.Sprintf("listener %d 127.0.0.1\ncertfile %s\nkeyfile %s\n%s", ports[0],
		file("cert.pem", certPEM(b.cert.Leaf)), file("key.pem", keyPEM(t, b.cert)), access)
	if s.clientCerts != nil {
		config += "require_certificate true\ncafile " + file("clients.pem", certPEM(s.clientCerts.cert)) + "\n"
	}
	if s.ipv6 {
		cert := b.ca.sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: "::1"}, IPAddresses: []net.IP{net.IPv6loopback},
			KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
		b.ipv6 = net.JoinHostPort("::1", strconv.Itoa(ports[2]))
		config += fmt.Sprintf("listener %d ::1\ncertfile %s\nkeyfile %s\n%s", ports[2], file("cert6.pem", certPEM(cert.Leaf)),
			file("key6.pem", keyPEM(t, cert)), access)
	}
	config += fmt.Sprintf("listener %d 127.0.0.1\nallow_anonymous true\n", ports[1])
	b.configFile = file("mosquitto.conf", []byte(config))

	b.start()
	t.Cleanup(func() {
		b.stop()
		if t.Failed() {
			t.Logf("mosquitto said:\n%s", b.log)
		}
	})
	return b
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode()&0o111 != 0
}

// given are the ports that freePorts has returned. A broker that was killed needs its port again.
var given sync.Map

// freePorts returns ports that nothing listens on and no other test has.
func freePorts(t testing.TB, n int) []int {
	var ports []int
	for len(ports) < n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close() // only after all have been found
		port := l.Addr().(*net.TCPAddr).Port
		if _, taken := given.LoadOrStore(port, true); !taken {
			ports = append(ports, port)
		}
	}
	return ports
}

func loopback(port int) string { return "127.0.0.1:" + strconv.Itoa(port) }

// start runs the broker, also after stop, and waits until it listens.
func (b *broker) start() {
	b.t.Helper()
	b.log = new(bytes.Buffer)
	b.cmd = exec.Command(b.cmd.Path, "-c", b.configFile)
	b.cmd.Stderr = b.log
	require.NoError(b.t, b.cmd.Start())
	for _, addr := range []string{b.plain, b.secure} {
		eventually(b.t, "mosquitto listens at "+addr, func() bool {
			c, err := net.Dial("tcp", addr)
			if err == nil {
				_ = c.Close()
			}
			return err == nil
		})
	}
}

func (b *broker) stop() { stop(b.cmd) }

// kill ends the broker with SIGKILL.
func (b *broker) kill() {
	_ = b.cmd.Process.Kill()
	_ = b.cmd.Wait()
}

// save makes a persistent broker save its sessions, and waits until it has.
func (b *broker) save() {
	saved := filepath.Join(filepath.Dir(b.configFile), "mosquitto.db")
	_ = os.Remove(saved)
	require.NoError(b.t, b.cmd.Process.Signal(syscall.SIGUSR1))
	eventually(b.t, "mosquitto saves its sessions", func() bool { return exists(saved) })
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// trust is the configuration of a client that trusts this broker.
func (b *broker) trust() *tls.Config { return &tls.Config{RootCAs: b.ca.pool()} }

// passwordFile returns a file in mosquitto's format: PBKDF2 with SHA-512.
func passwordFile(t testing.TB, passwords map[string]string) []byte {
	var file []byte
	for user, password := range passwords {
		salt := make([]byte, 12)
		_, _ = rand.Read(salt)
		hash, err := pbkdf2.Key(sha512.New, password, salt, 101, 64)
		require.NoError(t, err)
		file = fmt.Appendf(file, "%s:$7$101$%s$%s\n", user, base64.StdEncoding.EncodeToString(salt),
			base64.StdEncoding.EncodeToString(hash))
	}
	return file
}

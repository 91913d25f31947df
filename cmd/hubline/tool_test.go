package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/cmd/hubline/internal/target"
	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/testbroker"
)

// shell runs command lines against a hub in memory.
type shell struct {
	t        *testing.T
	hub      *testbroker.Hub
	env      map[string]string
	in       io.Reader
	dial     hubfixture.Dialer
	out, log buffer
	tool     *tool
	// change changes the target, besides its network. Nil: nothing.
	change func(*target.Target)
	// both: the log goes to out, as on a terminal.
	both bool
}

// buffer is a buffer that goroutines share.
type buffer struct {
	mu   sync.Mutex
	b    bytes.Buffer
	news chan struct{} // closed at the next Write; nil: nobody waits
	then func()        // called in each Write; nil: nothing
}

func (b *buffer) Write(p []byte) (int, error) {
	if b.then != nil {
		b.then()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.news != nil {
		close(b.news)
		b.news = nil
	}
	return b.b.Write(p)
}

// wait waits until the buffer contains a text.
func (b *buffer) wait(ctx context.Context, text string) error {
	for {
		b.mu.Lock()
		found := strings.Contains(b.b.String(), text)
		if b.news == nil {
			b.news = make(chan struct{})
		}
		news := b.news
		b.mu.Unlock()
		if found {
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// newShell has the connection string of pump-1 in its environment.
func newShell(t *testing.T, o *testbroker.Options) *shell {
	s := &shell{t: t, hub: hubfixture.Open(t, o, "pump-1"), env: map[string]string{}, in: strings.NewReader("")}
	s.dial = hubfixture.AtPorts(s.hub)
	s.env[target.EnvConnect] = s.hub.ConnectionString("pump-1")
	return s
}

// run runs a command line until it ends, and returns its exit status.
func (s *shell) run(args ...string) int {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 30*time.Second)
	defer cancel()
	return s.runIn(ctx, args...)
}

func (s *shell) runIn(ctx context.Context, args ...string) int {
	t := s.tool
	if t == nil {
		t = &tool{}
	}
	t.in, t.out, t.log = s.in, &s.out, &s.log
	if s.both {
		t.log = &s.out
	}
	if t.world == nil {
		t.world = &target.World{Getenv: func(name string) string { return s.env[name] }}
	}
	t.adapt = func(to *target.Target) {
		to.Network.Dial, to.Network.TLS, to.Network.Proxy = s.dial, s.hub.ClientTLS(), nil
		to.Network.TLS.ServerName = ""
		if s.change != nil {
			s.change(to)
		}
	}
	status := t.main(ctx, args)
	for _, name := range []string{target.EnvConnect, target.EnvBroker, target.EnvKey, target.EnvGroupKey} {
		if secret := s.env[name]; secret != "" {
			_, key, _ := strings.Cut(secret, "SharedAccessKey=")
			require.NotContains(s.t, s.out.String()+s.log.String(), secret)
			require.True(s.t, key == "" || !strings.Contains(s.out.String()+s.log.String(), key), "a key was printed")
		}
	}
	return status
}

// bodies returns the bodies of the hub's messages.
func (s *shell) bodies() (all []string) {
	for _, m := range s.hub.Messages() {
		all = append(all, string(m.Body))
	}
	return all
}

func (s *shell) file(name, text string) string {
	path := filepath.Join(s.t.TempDir(), name)
	require.NoError(s.t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// pair writes a certificate and its key to files.
func (s *shell) pair(c tls.Certificate) (cert, key string) {
	s.t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	require.NoError(s.t, err)
	return s.file("cert.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]}))),
		s.file("key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})))
}

func TestSecretsStayOffTheCommandLine(t *testing.T) {
	for _, args := range [][]string{
		{"send", "-body", "x", "-connect", "KEY"},
		{"send", "-body", "x", "-connect=KEY"},
		{"send", "KEY"},
		{"listen", "-connect", "mqtts://user:pa55word@broker.example"},
		{"listen", "wss://user:pa55word@broker.example/mqtt"},
		{"listen", "-connect", "pigeon://user:pa55word@broker.example"},
		{"listen", "-connect", "HostName=hub.example;DeviceId=pump-1;x509=true"},
		{"listen", "-connect-file=amqps://user:pa55word@broker.example"},
		{"KEY"},
	} {
		s := newShell(t, nil)
		secret := s.env[target.EnvConnect]
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "KEY", secret)
		}
		require.Equal(t, exitUsage, s.run(args...))
		require.Contains(t, s.log.String(), "-connect-file FILE")
		require.Contains(t, s.log.String(), "every user of this machine")
		require.NotContains(t, s.log.String(), "pa55word")
		require.Empty(t, s.bodies())
	}
	for _, flag := range []string{"-key-file", "-group-key-file"} { // the key in place of its file
		for _, key := range []string{otherKey, "AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"} {
			s := newShell(t, nil)
			require.Equal(t, exitUsage, s.run("provision", "-id-scope", "0ne", "-registration-id", "pump-1", flag, key))
			require.Contains(t, s.log.String(), "write it into a file")
			require.NotContains(t, s.log.String(), key)
		}
	}
	s := newShell(t, nil)
	secret := s.env[target.EnvConnect]
	delete(s.env, target.EnvConnect)
	require.Equal(t, exitOK, s.run("send", "-body", "x", "-insecure-command-line", "-connect", secret), s.log.String())
}

func TestEachSourceOfCredentials(t *testing.T) {
	for name, setUp := range map[string]func(s *shell, secret string) []string{
		"environment": func(s *shell, secret string) []string { s.env[target.EnvConnect] = secret; return nil },
		"file": func(s *shell, secret string) []string {
			return []string{"-connect-file", s.file("secret", secret+"\n")}
		},
		"prompt": func(s *shell, secret string) []string {
			s.tool = &tool{world: &target.World{Getenv: func(string) string { return "" },
				Ask: func(string) (string, error) { return " " + secret + "\n", nil }}}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShell(t, nil)
			secret := s.env[target.EnvConnect]
			delete(s.env, target.EnvConnect)
			args := setUp(s, secret)
			require.Equal(t, exitOK, s.run(append([]string{"send", "-body", "from " + name}, args...)...), s.log.String())
			require.Contains(t, s.bodies(), "from "+name)
		})
	}
}

// Of two variables one counts, and a line says which.
func TestTwoVariables(t *testing.T) {
	s := newShell(t, nil)
	s.env[target.EnvBroker] = "mqtts://nowhere.example?telemetry=a/{device}"
	s.tool = &tool{world: &target.World{Getenv: func(name string) string { return s.env[name] },
		Note: func(line string) { fmt.Fprintln(&s.log, line) }}}
	require.Equal(t, exitOK, s.run("send", "-body", "x"), s.log.String())
	require.Contains(t, s.log.String(), "HUBLINE_CONNECTION_STRING is used and HUBLINE_BROKER_URL is not")
	require.Equal(t, []string{"x"}, s.bodies())

	s.log = buffer{}
	delete(s.env, target.EnvBroker)
	require.Equal(t, exitOK, s.run("send", "-body", "x"), s.log.String())
	require.NotContains(t, s.log.String(), "HUBLINE_")
}

// A command without credentials says how to give them, and one with wrong ones what is wrong; no
// connection is made.
func TestUsageIsExplained(t *testing.T) {
	for _, c := range []struct {
		want string
		args []string
	}{
		{"-connect-file FILE", []string{"send", "-body", "x"}},
		{"no such file", []string{"send", "-body", "x", "-connect-file", "/nowhere/at/all"}},
		{"give one of them", []string{"send", "-body", "x", "-lines"}},
		{"-rate", []string{"send", "-body", "x", "-rate", "-1"}},
		{"-rate", []string{"send", "-body", "x", "-rate", "NaN"}},
		{"-count", []string{"send", "-body", "x", "-count", "-1"}},
		{"-id", []string{"send", "-body", "x", "-count", "2", "-id", "1"}},
		{"NAME=VALUE", []string{"send", "-body", "x", "-property", "novalue"}},
		{"no policy", []string{"send", "-body", "x", "-policy", "hope"}},
		{"attempts", []string{"send", "-body", "x", "-policy", "azure:hope=1"}},
		{"HOST:PORT", []string{"send", "-body", "x", "-address", "somewhere"}},
		{"no transport pigeon", []string{"send", "-body", "x", "-address", "pigeon=a:1"}},
		{"-cert-key", []string{"send", "-body", "x", "-cert", "a.pem"}},
		{"no such file", []string{"send", "-body", "x", "-cert", "/nowhere/a.pem", "-cert-key", "/nowhere/a.key"}},
		{"-id-scope: missing", []string{"provision", "-registration-id", "pump-1"}},
		{"-registration-id: missing", []string{"provision", "-id-scope", "0ne"}},
		{"who registers", []string{"provision"}},
		{"-flush-timeout", []string{"send", "-body", "x", "-flush-timeout", "-1s"}},
		{"-flush-timeout", []string{"replay", "-flush-timeout", "-1s", "-"}},
		{"-expires", []string{"send", "-body", "x", "-expires", "-1s"}},
		{"-exec: ", []string{"method", "serve", "-exec", "/nowhere/at/all"}},
		{"did you mean send?", []string{"snd"}},
		{"did you mean twin?", []string{"watch"}},
		{" watch? ", []string{"twin", "wtch"}},
		{"did you mean doctor?", []string{"help", "docter"}},
		{"-connect-timeout", []string{"listen", "-connect-timeout", "-1s"}},
		{"-connect-timeout", []string{"provision", "-id-scope", "0ne", "-registration-id", "a", "-connect-timeout", "-1s"}},
		{"is a directory", []string{"send", "-file", "."}},
		{"is a folder", []string{"upload", "."}},
		{"-svg", []string{"policy", "azure", "-svg", "/nowhere/at/all"}},
		{`no topic "fly"`, []string{"help", "fly"}},
		{`no command "twin fly"`, []string{"twin", "fly"}},
		{"-key-file", []string{"send", "-body", "x", "-id-scope", "0ne", "-registration-id", "pump-1"}},
		{"one too many", []string{"send", "more"}},
		{"unknown flag -zzz; hubline help send lists them all", []string{"send", "-zzz", "x"}},
		{"unknown flag -bdy; the nearest is -body, and hubline help send lists them all", []string{"send", "-bdy", "x"}},
		{"unknown flag -f", []string{"twin", "get", "-f", "x"}},
		{"did you mean send? hubline help lists them", []string{"sned", "-body", "x"}},
		{`no command "fly"`, []string{"fly", "-connect-file", "x"}},
		{"did you mean patch?", []string{"twin", "report", "-connect-file", "x"}},
		{"a command is missing; give one of get, patch, watch", []string{"twin", "-connect-file", "x"}},
		{"a command is missing; give one of get, patch, watch; hubline help twin ", []string{"twin"}},
		{"a command is missing; give one of serve", []string{"method", "-connect-file", "x"}},
		{`no command "method reboot"`, []string{"method", "reboot", "-answer", "{}"}},
		{"a command is missing; give one of serve", []string{"method"}},
		{"is a device in a shell", nil},
		{`-count: "x" is not a whole number`, []string{"send", "-body", "x", "-count", "x"}},
		{`-rate: "x" is not a number`, []string{"send", "-body", "x", "-rate", "x"}},
		{`-hold: "12" is not a time`, []string{"doctor", "-hold", "12"}},
		{`-lines: "x" is not true or false`, []string{"send", "-lines=x"}},
		{`-if-version: "x" is not a whole number`, []string{"twin", "patch", "-if-version", "x"}},
		{"flag needs an argument: -body; hubline help send", []string{"send", "-body"}},
		{"-key-file: it belongs to -id-scope", []string{"send", "-body", "x", "-key-file", "x"}},
		{"-dps: it belongs to -id-scope", []string{"doctor", "-dps", "x"}},
		{"dps=HOST:PORT belongs to -id-scope", []string{"send", "-body", "x", "-address", "dps=x:1"}},
		{"-connect-file: the device registers", []string{"provision", "-connect-file", "x"}},
		{"-transport: devices register over HTTPS", []string{"provision", "-transport", "amqp"}},
		{"the provisioning service alone", []string{"provision", "-address", "mqtt=x:1"}},
		{"no command", []string{"fly"}},
		{"verdict", []string{"listen", "-settle", "burn"}},
		{"give one of them", []string{"listen", "-json", "-raw"}},
		{"verdict", []string{"simulate", "-settle", "burn"}},
		{"-method-answer", []string{"simulate", "-method-answer", "{"}},
		{"-report: not a JSON object", []string{"simulate", "-report", "[1]"}},
		{"-telemetry-only", []string{"simulate", "-report", "{}", "-telemetry-only"}},
		{"NAME=VALUE", []string{"simulate", "-property", "novalue"}},
		{"a command is missing; give one of apply, check, status", []string{"update"}},
		{"-property: give 1 to 5 properties", []string{"update", "check"}},
		{`-property: "x" has no name and value`, []string{"update", "apply", "-property", "x"}},
		{"-exec: ", []string{"update", "apply", "-property", "a=b", "-exec", "/nowhere/at/all"}},
		{"hubline update apply makes one", []string{"update", "status", "-dir", "/nowhere/at/all"}},
		{"-update-property: 6 properties are too many", append([]string{"doctor"},
			strings.Fields(strings.Repeat("-update-property a=1 ", 6))...)},
	} {
		s := newShell(t, nil)
		delete(s.env, target.EnvConnect)
		require.Equal(t, exitUsage, s.run(c.args...), "%v", c.args)
		require.Contains(t, s.log.String(), c.want, "%v", c.args)
	}
	s := newShell(t, nil)
	s.env[target.EnvConnect] = "HostName=hub;DeviceId=pump-1;SharedAccessKey=short"
	require.Equal(t, exitUsage, s.run("send", "-body", "x"))
	require.Contains(t, s.log.String(), target.EnvConnect+": connection string: SharedAccessKey is not base64")
	s = newShell(t, nil)
	s.env[target.EnvConnect] = "HostName=hub.example;DeviceId=pump-1;x509=true"
	for _, command := range [][]string{{"send", "-body", "x"}, {"upload", "tool_test.go"}} {
		require.Equal(t, exitUsage, s.run(command...))
		require.Contains(t, s.log.String(), "give -cert and -cert-key")
	}
	s = newShell(t, nil)
	require.Equal(t, exitUsage, s.run("send", "-body", "x", "-transport", "pigeon"))
	require.Contains(t, s.log.String(), "mqtt, mqtt-ws")
}

// soon returns a context that ends before a hanging test does harm.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

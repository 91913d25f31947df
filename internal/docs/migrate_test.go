package docs

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// guides are the pages for programs that migrate: the language of the program before, and whether
// it talks to a plain broker.
var guides = map[string]struct {
	language string
	broker   bool
}{
	"node": {"js", false}, "python": {"python", false}, "java": {"java", false}, "csharp": {"csharp", false},
	"c": {"c", false}, "amenzhinsky": {"golang", false}, "paho": {"golang", true}, "autopaho": {"golang", true},
}

func guidePage(name string) string { return "docs/migrate/" + name + ".md" }

// Each guide has a program before, one after, and a table of three columns. Every guide is in the
// list, and on the index.
func TestMigrationGuidesHaveBothPrograms(t *testing.T) {
	names, err := filepath.Glob(filepath.Join(root, "docs", "migrate", "*.md"))
	require.NoError(t, err)
	index, err := os.ReadFile(filepath.Join(root, "docs", "migrate", "README.md"))
	require.NoError(t, err)
	names = slices.DeleteFunc(names, func(name string) bool { return filepath.Base(name) == "README.md" })
	require.Len(t, names, len(guides))
	for _, name := range names {
		require.Contains(t, string(index), "("+filepath.Base(name)+")")
		guide, ok := guides[strings.TrimSuffix(filepath.Base(name), ".md")]
		require.True(t, ok, name)
		page := "docs/migrate/" + filepath.Base(name)
		all := blocks(t, page)
		require.Len(t, all, 3, page)
		require.Equal(t, guide.language, all[0].language, page)
		require.True(t, all[1].isProgram(), page)
		require.Equal(t, "text", all[2].language, page)
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		rows := regexp.MustCompile(`(?m)^\| [^|]+ \| [^|]+ \| [^|]+ \|$`).FindAll(text, -1)
		require.Greater(t, len(rows), 10, page)
	}
}

// The programs after the migration run, unchanged, against a hub with the port and the certificate
// that they expect, and print what the page says.
func TestMigratedProgramsRun(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has all of 127.0.0.0/8 and SSL_CERT_FILE")
	}
	for name, guide := range guides {
		t.Run(name, func(t *testing.T) {
			env := azureHub
			if guide.broker {
				env = plainBroker
			}
			variables, done := env(t)
			cmd := program(t, guidePage(name))
			cmd.Env = append(os.Environ(), variables...)
			var stderr strings.Builder
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			require.NoError(t, err, stderr.String())
			require.NoError(t, <-done)
			require.Equal(t, sorted(blocks(t, guidePage(name))[2].text), sorted(string(out)), stderr.String())
		})
	}
}

// The program before the migration from the SDK for Python is one for its parser. The SDK itself is
// not here.
func TestTheProgramBeforeTheMigrationFromPythonParses(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil || runtime.GOOS == "windows" { // which has a python3 that only tells how to install it
		t.Skip("needs python3: run it where that is installed, go test ./internal/docs -run Python")
	}
	cmd := exec.CommandContext(t.Context(), python, "-c", "import ast, sys; ast.parse(sys.stdin.read())")
	cmd.Stdin = strings.NewReader(blocks(t, "docs/migrate/python.md")[0].text)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
}

// sorted returns the lines of a text in alphabetical order: the program handles several things at a
// time.
func sorted(text string) []string { return slices.Sorted(strings.Lines(text)) }

// azureHub starts a hub for one program, and its back end, whose result comes when it is done.
func azureHub(t *testing.T) (env []string, done <-chan error) {
	const host = "127.77.21.1"
	hub, dev := hubfixture.OpenDevice(t, &testbroker.Options{HostName: host}, "dev-1")
	_, err := hub.Listen(testbroker.PortMQTTS, net.JoinHostPort(host, "8883"))
	require.NoError(t, err)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(ca, hub.CAPEM(), 0o600))
	_, err = hub.PatchDesired("dev-1", `{"interval":30}`)
	require.NoError(t, err)
	done = backEnd(func() error {
		err := hub.WaitReported(t.Context(), "dev-1", func(doc hubdata.Twin) bool {
			return strings.Contains(string(doc.Reported), `"value":30`)
		})
		if err == nil {
			err = hub.WaitMessages(t.Context(), 1)
		}
		if err == nil {
			_, err = hub.CallMethod(t.Context(), "dev-1", hubdata.MethodCall{Name: "reboot", ConnectTimeout: 30 * time.Second})
		}
		return err
	})
	return []string{"IOTHUB_DEVICE_CONNECTION_STRING=" + dev.ConnectionString(), "SSL_CERT_FILE=" + ca}, done
}

// plainBroker is azureHub for a broker on MQTT without TLS.
func plainBroker(t *testing.T) (env []string, done <-chan error) {
	hub, dev := hubfixture.OpenDevice(t, &testbroker.Options{Broker: &testbroker.BrokerOptions{
		Telemetry: "site/{device}/up", Commands: "site/{device}/down"}}, "pump-1")
	addr, err := hub.Listen(testbroker.PortMQTT, "127.0.0.1:0")
	require.NoError(t, err)
	done = backEnd(func() error {
		if err := hub.WaitMessages(t.Context(), 1); err != nil {
			return err
		}
		return hub.SendC2D("pump-1", hubdata.C2D{Body: []byte("stop")})
	})
	return []string{"BROKER=mqtt://" + addr.String(), "PASSWORD=" + dev.PrimaryKey}, done
}

// backEnd runs f beside the program. It ends with the program's part, or with the test.
func backEnd(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

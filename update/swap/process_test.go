//go:build unix

package swap

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/update/agent"
)

// The test's binary is also the program that is updated, and the agent of a service. The script
// that starts it says what it is, and how it behaves.
func TestMain(m *testing.M) {
	switch role := os.Getenv("SWAP_ROLE"); role {
	case "":
		os.Exit(m.Run())
	case "service":
		os.Exit(serve(os.Getenv("SWAP_DIR"), os.Getenv("SWAP_KIND")))
	default:
		os.Exit(update(os.Getenv("SWAP_DIR"), os.Getenv("SWAP_KIND"), role == "self"))
	}
}

// serve is the service: it listens at a socket while it works.
func serve(dir, kind string) int {
	if kind == "crash" {
		return 1
	}
	if kind != "sick" {
		_ = os.Remove(dir + "/ready")
		if _, err := net.Listen("unix", dir+"/ready"); err != nil {
			return 1
		}
	}
	time.Sleep(time.Minute)
	return 0
}

// exitRestart is the exit status of a program that asks for a restart.
const exitRestart = 3

// update is the program with the agent. It exits with 0 when the service has the final report.
func update(dir, kind string, self bool) int {
	deadline, _ := time.ParseDuration(os.Getenv("SWAP_DEADLINE"))
	file := &File{Path: dir + "/gated", Stable: time.Millisecond, Deadline: deadline}
	if self {
		if err := Start(file.Path, 3); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		if kind == "crash" {
			return 1
		}
		file.Check = func(ctx context.Context, path string) error { return Command("sh", "-n", path)(ctx) }
		file.Healthy = func(context.Context) error {
			if kind == "sick" {
				return errors.New("it has no connection")
			}
			return nil
		}
	} else {
		file.Restart, file.Healthy = Dial("unix", dir+"/supervisor"), Dial("unix", dir+"/ready")
	}
	killAt, _ := strconv.ParseInt(os.Getenv("SWAP_KILL"), 10, 64)
	step = func(string) {
		if appendTo(dir+"/changes", ".") == killAt {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	o := backEnd(dir).options(file)
	o.OnStatus = func(s agent.Status) {
		if s.Phase == agent.PhaseIdle && s.Latest.Outcome != agent.OutcomeInProgress && s.Unsent == 0 {
			cancel()
		}
	}
	a, err := agent.New(o)
	if err == nil {
		err = a.Run(ctx)
	}
	switch {
	case errors.Is(err, agent.ErrRestart):
		return exitRestart
	case errors.Is(err, context.Canceled):
		return 0
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// appendTo appends to a file and returns its size.
func appendTo(path, text string) int64 {
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		panic(err)
	}
	defer out.Close()
	if _, err := out.WriteString(text); err != nil {
		panic(err)
	}
	info, err := out.Stat()
	if err != nil {
		panic(err)
	}
	return info.Size()
}

// backEnd is a folder with everything that the agent needs: the offer, its file, the agent's state,
// and the final reports.
type backEnd string

func (b backEnd) options(file *File) *agent.Options {
	return &agent.Options{Service: b, Fetch: b, Store: b, Spread: -1,
		Properties: agent.Properties{{Name: "model", Value: "gate"}},
		Handlers:   map[string]agent.Handler{"contoso/file:1": file},
		Verify:     func([]byte, string) error { return nil }}
}

func (b backEnd) Check(context.Context, *agent.Query) (*agent.Answer, error) {
	manifest, err := os.ReadFile(string(b) + "/manifest")
	return &agent.Answer{Offer: &agent.Offer{WorkflowID: "1", Manifest: manifest,
		URLs: map[string]string{"f1": "new"}}}, err
}

func (b backEnd) Report(_ context.Context, r *agent.Report) error {
	if r.Final() {
		appendTo(string(b)+"/reports", fmt.Sprintf("%v %v\n", r.Result.Outcome, r.Installed))
	}
	return nil
}

func (b backEnd) Fetch(_ context.Context, url string, offset int64) (io.ReadCloser, error) {
	appendTo(string(b)+"/fetched", fmt.Sprint(offset, " "))
	text, err := os.ReadFile(string(b) + "/" + url)
	return io.NopCloser(bytes.NewReader(text[offset:])), err
}

func (b backEnd) Load() ([]byte, error) {
	state, err := os.ReadFile(string(b) + "/state")
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return state, err
}

func (b backEnd) Save(state []byte) error {
	part := string(b) + "/state.new"
	return errors.Join(os.WriteFile(part, state, 0o600), os.Rename(part, string(b)+"/state"))
}

// machine runs the processes, in place of systemd.
type machine struct {
	t       *testing.T
	dir     string
	role    string // of the file: "self" or "service"
	killAt  int
	limit   time.Duration // for the new file to be healthy
	service *exec.Cmd
	starts  int // of the program with the agent
}

// script returns the content of the file.
func (m *machine) script(kind string) []byte {
	self, err := os.Executable()
	require.NoError(m.t, err)
	return fmt.Appendf(nil, "#!/bin/sh\nSWAP_KIND=%s SWAP_ROLE=%s exec %s\n", kind, m.role, self)
}

func newMachine(t *testing.T, role, next string, killAt int) *machine {
	dir := folder(t, "") // a short name, because sockets are in it
	m := &machine{t: t, dir: dir, role: role, killAt: killAt, limit: 500 * time.Millisecond}
	if next == "good" {
		m.limit = 15 * time.Second
	}
	t.Cleanup(m.stop)
	require.NoError(t, os.WriteFile(dir+"/gated", m.script("old"), 0o750))
	content := m.script(next)
	sum := sha256.Sum256(content)
	manifest := fmt.Sprintf(`{"manifestVersion":"5","updateId":{"provider":"Contoso","name":"Gate","version":"2.0"},`+
		`"compatibility":[{"model":"gate"}],"instructions":{"steps":[{"handler":"contoso/file:1","files":["f1"]}]},`+
		`"files":{"f1":{"fileName":"gated","sizeInBytes":%d,"hashes":{"sha256":"%s"}}}}`,
		len(content), base64.StdEncoding.EncodeToString(sum[:]))
	require.NoError(t, os.WriteFile(dir+"/manifest", []byte(manifest), 0o600))
	require.NoError(t, os.WriteFile(dir+"/new", content, 0o600))
	return m
}

func (m *machine) command(name string, role string) *exec.Cmd {
	c := exec.Command(name)
	c.Env = append(os.Environ(), "SWAP_DIR="+m.dir, "SWAP_KILL="+strconv.Itoa(m.killAt), "SWAP_ROLE="+role,
		"SWAP_DEADLINE="+m.limit.String())
	c.Stderr = os.Stderr
	return c
}

// supervise restarts the service at each connection, as long as l is open.
func (m *machine) supervise(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		m.stop()
		_ = os.Remove(m.dir + "/ready")
		m.service = m.command(m.dir+"/gated", "")
		_ = m.service.Start()
		_ = c.Close()
	}
}

func (m *machine) stop() {
	if m.service != nil && m.service.Process != nil {
		_ = m.service.Process.Kill()
		_ = m.service.Wait()
	}
}

// run restarts the program with the agent until it has ended.
func (m *machine) run() {
	m.t.Helper()
	name := m.dir + "/gated"
	if m.role == "service" {
		l, err := net.Listen("unix", m.dir+"/supervisor")
		require.NoError(m.t, err)
		ended := make(chan struct{})
		go func() {
			m.supervise(l)
			close(ended)
		}()
		defer func() {
			_ = l.Close()
			<-ended
		}()
		name, err = os.Executable()
		require.NoError(m.t, err)
	}
	for m.starts = 1; m.starts < 12; m.starts++ {
		if m.command(name, "agent").Run() == nil {
			return
		}
	}
	require.Fail(m.t, "the program did not end")
}

// Real processes: a program that replaces itself, and a service. Each is updated with a file that
// works and with files that do not, and killed before a change on the disk.
func TestProcessesAreUpdatedAndPutBack(t *testing.T) {
	for _, c := range []struct {
		role, next string
		report     string
		kills      []int
	}{
		{"self", "good", "SUCCEEDED Contoso/Gate 2.0", []int{0, 3, 4, 5}},
		{"self", "sick", "FAILED none", []int{6}},
		{"self", "crash", "FAILED none", []int{0, 4}},
		{"service", "good", "SUCCEEDED Contoso/Gate 2.0", []int{0, 5}},
		{"service", "sick", "FAILED none", []int{0}},
		{"service", "crash", "FAILED none", []int{6}},
	} {
		for _, killAt := range c.kills {
			t.Run(fmt.Sprintf("%s %s, killed before %d", c.role, c.next, killAt), func(t *testing.T) {
				t.Parallel()
				m := newMachine(t, c.role, c.next, killAt)
				m.run()
				reports, err := os.ReadFile(filepath.Join(m.dir, "reports"))
				require.NoError(t, err)
				require.Equal(t, []string{c.report}, strings.Split(strings.TrimSpace(string(reports)), "\n"))
				want := m.script("old")
				if strings.HasPrefix(c.report, "SUCCEEDED") {
					want = m.script(c.next)
				}
				have, err := os.ReadFile(m.dir + "/gated")
				require.NoError(t, err)
				require.Equal(t, string(want), string(have))
				if c.role == "service" {
					require.Eventually(t, func() bool { return Dial("unix", m.dir+"/ready")(t.Context()) == nil },
						20*time.Second, 10*time.Millisecond, "the service runs")
				}
				t.Logf("%d starts", m.starts)
			})
		}
	}
}

// updated runs the agent of a service in this process until the new file works.
func (m *machine) updated() {
	m.t.Helper()
	ctx, cancel := context.WithCancel(m.t.Context())
	defer cancel()
	file := &File{Path: m.dir + "/gated", Healthy: func(context.Context) error {
		cancel()
		return nil
	}, Restart: func(context.Context) error { return nil }}
	a, err := agent.New(backEnd(m.dir).options(file))
	require.NoError(m.t, err)
	require.ErrorIs(m.t, a.Run(ctx), context.Canceled)
}

func TestAnUpdateWithTwoStepsForTheFileIsRefused(t *testing.T) {
	m := newMachine(t, "service", "good", 0)
	const step = `{"handler":"contoso/file:1","files":["f1"]}`
	manifest, err := os.ReadFile(m.dir + "/manifest")
	require.NoError(t, err)
	manifest = bytes.Replace(manifest, []byte(step), []byte(step+","+step), 1)
	require.NoError(t, os.WriteFile(m.dir+"/manifest", manifest, 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	file := &File{Path: m.dir + "/./gated", Healthy: func(context.Context) error { return nil }}
	o := backEnd(m.dir).options(file)
	var latest agent.Result
	o.OnStatus = func(s agent.Status) {
		if latest = s.Latest; latest.Outcome != agent.OutcomeInProgress {
			cancel()
		}
	}
	a, err := agent.New(o)
	require.NoError(t, err)
	require.ErrorIs(t, a.Run(ctx), context.Canceled)
	require.Contains(t, latest.Details, "two steps change "+m.dir+"/gated")
}

// A download continues behind what the folder has. What is damaged begins again.
func TestADownloadContinues(t *testing.T) {
	for name, c := range map[string]struct {
		have    string
		fetched string
	}{
		"nothing":        {"", "0 "},
		"a part":         {"#!/bin/sh\nSWAP", "14 "},
		"a damaged part": {"#!/bin/sh\nswap", "14 0 "},
		"too much":       {strings.Repeat("x", 4096), "0 "},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, "service", "good", 0)
			if c.have != "" {
				require.NoError(t, os.WriteFile(m.dir+"/gated.new", []byte(c.have), 0o600))
			}
			m.updated()
			fetched, err := os.ReadFile(m.dir + "/fetched")
			require.NoError(t, err)
			require.Equal(t, c.fetched, string(fetched))
			have, err := os.ReadFile(m.dir + "/gated")
			require.NoError(t, err)
			require.Equal(t, string(m.script("good")), string(have))
		})
	}
}

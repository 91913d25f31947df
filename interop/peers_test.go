package interop

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// waitLimit bounds every wait for a peer. It is long because these tests measure nothing.
const waitLimit = 60 * time.Second

// soon is a context for one wait.
func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	t.Cleanup(cancel)
	return ctx
}

// eventually polls for a condition that has no event.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	within(t, waitLimit, what, ok)
}

// within polls for a condition with a limit of its own.
func within(t testing.TB, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited %v: %s", limit, what)
		}
	}
}

// seen prints an observation of a test, one line per case, for the log.
func seen(t testing.TB, format string, args ...any) {
	fmt.Printf("SEEN: %s: %s\n", t.Name(), fmt.Sprintf(format, args...))
}

// missing ends a test without its peer.
func missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("HUBLINE_REQUIRE_PEERS") == "1" {
		t.Fatalf("%s is missing, and HUBLINE_REQUIRE_PEERS=1", what)
	}
	line := "SKIPPED: " + t.Name() + ": " + what + " is missing"
	fmt.Fprintln(os.Stderr, line)
	t.Skip(line)
}

func TestMain(m *testing.M) {
	code := m.Run()
	if modules.dir != "" {
		_ = os.RemoveAll(modules.dir)
	}
	if natsProgram.path != "" {
		_ = os.RemoveAll(filepath.Dir(natsProgram.path))
	}
	os.Exit(code)
}

// modules is where the Node.js packages are installed, once for all tests.
var modules struct {
	once sync.Once
	dir  string
	err  error
}

// nodeDir returns a directory with the scripts and their dependencies.
func nodeDir(t testing.TB) string {
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			missing(t, tool)
		}
	}
	m := &modules
	m.once.Do(func() {
		if m.dir, m.err = os.MkdirTemp("", "hubline-interop-"); m.err != nil {
			return
		}
		if m.err = os.CopyFS(m.dir, os.DirFS("node")); m.err != nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		defer cancel()
		ci := exec.CommandContext(ctx, "npm", "ci", "--prefer-offline", "--ignore-scripts", "--no-audit", "--no-fund")
		ci.Dir = m.dir
		if out, err := ci.CombinedOutput(); err != nil {
			m.err = fmt.Errorf("npm ci: %w\n%s", err, out)
		}
	})
	if m.err != nil {
		t.Log(m.err)
		missing(t, "what npm installs")
	}
	return m.dir
}

// script is a running Node.js program that exchanges lines of JSON with the test.
type script struct {
	t      testing.TB
	in     *json.Encoder
	mu     sync.Mutex // guards the fields below
	events []event
	seen   int
	more   chan struct{} // capacity 1
	end    func()        // ends the script; all its events have been read then
}

// event is a message of a script. On determines which fields are set.
type event struct {
	On, Name, Topic, Payload, Text string
	Code, QoS, Port                int
	Session, Dup, Retain           bool

	// For AMQP and for the device SDK.
	ID, Correlation, ContentType, ContentEncoding, To, Link, Action, Outcome, Condition string
	Input, User, Expiry                                                                 string // of the device SDK only
	Properties, Annotations                                                             map[string]string
	Connection, Delivery, Count                                                         int
	Durable                                                                             bool

	Desired, Reported int64 // versions of a twin, of the client of the MQTT v5 profile only
}

// is reports whether an event has this kind and is about this client, for script.next.
func (e event) is(on, name string) bool { return e.On == on && e.Name == name }

// startScript starts a script with the environment of the test plus env.
func startScript(t testing.TB, name string, env ...string) *script {
	dir := nodeDir(t)
	cmd := exec.Command("node", filepath.Join(dir, name))
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	s := &script{t: t, in: json.NewEncoder(in), more: make(chan struct{}, 1)}
	read := make(chan struct{})
	go func() { // ends with the script
		defer close(read)
		s.read(out)
	}()
	s.end = sync.OnceFunc(func() {
		_ = in.Close() // ends the script
		limit := time.AfterFunc(5*time.Second, func() { _ = cmd.Process.Kill() })
		<-read
		_ = cmd.Wait()
		limit.Stop()
	})
	t.Cleanup(s.end)
	return s
}

func (s *script) read(out io.Reader) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			e = event{On: "garbage", Text: lines.Text()}
		}
		s.mu.Lock()
		s.events = append(s.events, e)
		s.mu.Unlock()
		select {
		case s.more <- struct{}{}:
		default:
		}
	}
}

// tell sends a command to the script.
func (s *script) tell(command map[string]any) {
	s.t.Helper()
	require.NoError(s.t, s.in.Encode(command))
}

// next waits for the next event of that kind about that client, and skips others.
func (s *script) next(on, name string) event {
	s.t.Helper()
	return s.wait(fmt.Sprintf("%q about %q", on, name), func(e event) bool { return e.is(on, name) })
}

// wait waits for the next wanted event, and skips others.
func (s *script) wait(what string, wanted func(event) bool) event {
	s.t.Helper()
	limit := time.NewTimer(waitLimit)
	defer limit.Stop()
	for {
		s.mu.Lock()
		for i := s.seen; i < len(s.events); i++ {
			if e := s.events[i]; wanted(e) {
				// Skipped events remain for later calls.
				copy(s.events[s.seen+1:i+1], s.events[s.seen:i])
				s.events[s.seen] = e
				s.seen++
				s.mu.Unlock()
				return e
			}
		}
		waiting := append([]event(nil), s.events[s.seen:]...)
		s.mu.Unlock()
		select {
		case <-s.more:
		case <-limit.C:
			if n := len(waiting); n > 20 {
				waiting = waiting[n-20:]
			}
			s.t.Fatalf("no %s within %v; instead, at last: %+v", what, waitLimit, waiting)
		}
	}
}

// count counts the events of that kind about that client so far.
func (s *script) count(on, name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, e := range s.events {
		if e.is(on, name) {
			n++
		}
	}
	return n
}

// stop ends a process, first with SIGTERM.
func stop(cmd *exec.Cmd) {
	_ = cmd.Process.Signal(syscall.SIGTERM)
	limit := time.AfterFunc(5*time.Second, func() { _ = cmd.Process.Kill() })
	_ = cmd.Wait()
	limit.Stop()
}

package arm

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// telemetry is the Linux board's program, running on this machine against the in-process hub over
// TLS.
type telemetry struct {
	cmd    *exec.Cmd
	stderr *bytes.Buffer
	notify *net.UnixConn
	source string // the file with the number
	ended  chan error
}

// build builds the program for GOARCH arch.
func build(t *testing.T, arch, tags string) (binary string) {
	t.Helper()
	watch(t)
	binary = filepath.Join(t.TempDir(), "hubline-telemetry")
	run(t, root, []string{"CGO_ENABLED=0", "GOARCH=" + arch}, "go", "build", "-ldflags", "-s -w", "-tags", tags, "-o",
		binary, "./cross/arm/linux")
	return binary
}

// start starts the program as systemd would.
func start(t *testing.T, hub *testbroker.Hub, binary string, interval, watchdog time.Duration,
	more ...string) *telemetry {
	t.Helper()
	folder := t.TempDir()
	dev, err := hub.AddDevice(boardID)
	if err != nil {
		t.Fatal(err)
	}
	addr, err := hub.Listen(testbroker.PortMQTTS, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	roots, source := filepath.Join(folder, "roots.pem"), filepath.Join(folder, "temp")
	write(t, filepath.Join(folder, "connection-string"), []byte(dev.ConnectionString()+"\n"))
	write(t, roots, hub.CAPEM())
	write(t, source, []byte("21500\n"))
	socket := filepath.Join(folder, "notify")
	notify, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	p := &telemetry{cmd: exec.Command(binary, append(more, "-source", source, "-addr", addr.String(), "-roots", roots,
		"-interval", interval.String())...), stderr: new(bytes.Buffer), notify: notify, source: source,
		ended: make(chan error, 1)}
	p.cmd.Env = append(os.Environ(), "CREDENTIALS_DIRECTORY="+folder, "NOTIFY_SOCKET="+socket,
		"WATCHDOG_USEC="+strconv.FormatInt(watchdog.Microseconds(), 10))
	p.launch(t)
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		notify.Close()
	})
	return p
}

func (p *telemetry) launch(t *testing.T) {
	t.Helper()
	p.cmd.Stderr = p.stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	cmd := p.cmd
	go func() { p.ended <- cmd.Wait() }()
}

// kill ends the program as a power cut would, and again restarts it with the same settings.
func (p *telemetry) kill(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.ended
}

func (p *telemetry) again(t *testing.T) {
	t.Helper()
	next := exec.Command(p.cmd.Path, p.cmd.Args[1:]...)
	next.Env = p.cmd.Env
	p.cmd = next
	p.launch(t)
}

// told waits for a line of the program to its manager.
func (p *telemetry) told(t *testing.T, want string) {
	t.Helper()
	_ = p.notify.SetReadDeadline(time.Now().Add(20 * time.Second))
	var buf [256]byte
	n, err := p.notify.Read(buf[:])
	if got := string(buf[:n]); err != nil || got != want {
		t.Fatalf("the manager was told %q, %v, want %q\n%s", got, err, want, p.stderr)
	}
}

// forget drops the pending lines to the manager.
func (p *telemetry) forget() {
	_ = p.notify.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	for {
		var buf [256]byte
		if _, err := p.notify.Read(buf[:]); err != nil {
			return
		}
	}
}

// stop sends SIGTERM and waits for a clean end.
func (p *telemetry) stop(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.ends(t)
}

// ends waits for a clean end after SIGTERM.
func (p *telemetry) ends(t *testing.T) {
	t.Helper()
	select {
	case err := <-p.ended:
		if err != nil {
			t.Errorf("ended with %v\n%s", err, p.stderr)
		}
	case <-time.After(25 * time.Second):
		t.Fatal("still running 25 s after SIGTERM")
	}
}

func waitFor(t *testing.T, hub *testbroker.Hub, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := hub.WaitMessages(ctx, n); err != nil {
		t.Fatal(err)
	}
}

// lastReading returns the number of the last reading at the hub. None is missing, and all have one
// of these values.
func lastReading(t *testing.T, hub *testbroker.Hub, values ...int) (last int) {
	t.Helper()
	for _, m := range hub.Messages() {
		var reading struct{ N, Value int }
		if err := json.Unmarshal(m.Body, &reading); err != nil || !slices.Contains(values, reading.Value) ||
			reading.N > last+1 {
			t.Fatalf("%q after reading %d: %v", m.Body, last, err)
		}
		last = max(last, reading.N)
	}
	return last
}

func TestLinuxBoard(t *testing.T) {
	binary := build(t, runtime.GOARCH, "")
	for name, test := range map[string]func(t *testing.T, binary string){
		"notifies systemd": notifiesSystemd, "outlives a kill": outlivesAKill, "outlives its sensor": outlivesItsSensor,
	} {
		t.Run(name, func(t *testing.T) {
			if name != "notifies systemd" {
				long(t)
			}
			t.Parallel() // each waits most of the time
			test(t, binary)
		})
	}
	t.Run("notifies systemd, paho", func(t *testing.T) {
		long(t)
		notifiesSystemd(t, build(t, runtime.GOARCH, "paho"))
	})
}

func notifiesSystemd(t *testing.T, binary string) {
	hub, err := testbroker.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer hub.Close()
	p := start(t, hub, binary, 50*time.Millisecond, 400*time.Millisecond)
	p.told(t, "READY=1")
	p.told(t, "WATCHDOG=1")
	waitFor(t, hub, 10)
	hub.Drop(boardID)
	p.told(t, "WATCHDOG=1")
	waitFor(t, hub, 20)
	// Readings taken while the hub was absent are sent when it is back, also after SIGTERM.
	away := hub.Inject(fault.Fault{Kind: fault.Absent})
	p.forget()
	p.told(t, "WATCHDOG=1")
	p.told(t, "WATCHDOG=1")
	p.told(t, "WATCHDOG=1")
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for line := ""; line != "STOPPING=1"; {
		var buf [64]byte
		_ = p.notify.SetReadDeadline(time.Now().Add(20 * time.Second))
		n, err := p.notify.Read(buf[:])
		if line = string(buf[:n]); err != nil {
			t.Fatal(err)
		}
	}
	away.Remove()
	p.ends(t)
	if last := lastReading(t, hub, 21500); last < 25 {
		t.Errorf("%d readings at the hub", last)
	}
	if strings.Contains(p.stderr.String(), "SharedAccess") {
		t.Error("the log shows a secret")
	}
}

// With -outbox, readings taken while the hub was absent survive the process.
func outlivesAKill(t *testing.T, binary string) {
	hub, err := testbroker.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer hub.Close()
	p := start(t, hub, binary, 20*time.Millisecond, 400*time.Millisecond, "-outbox", filepath.Join(t.TempDir(),
		"outbox"))
	p.told(t, "READY=1")
	waitFor(t, hub, 5)
	away := hub.Inject(fault.Fault{Kind: fault.Absent})
	hub.Drop(boardID)
	before := hub.Len()
	p.forget()
	for range 5 {
		p.told(t, "WATCHDOG=1")
	}
	p.kill(t)
	away.Remove()
	write(t, p.source, []byte("-1\n")) // of the second run
	p.again(t)
	reading := func(m hubdata.Message) (n, value int) {
		var r struct{ N, Value int }
		if err := json.Unmarshal(m.Body, &r); err != nil {
			t.Fatalf("%q: %v", m.Body, err)
		}
		return r.N, r.Value
	}
	second := false
	for n := before + 1; !second; n++ {
		waitFor(t, hub, n)
		_, value := reading(hub.Messages()[n-1])
		second = value == -1
	}
	p.stop(t)
	last := 0
	for _, m := range hub.Messages() {
		n, value := reading(m)
		if value == -1 {
			break
		}
		if n > last+1 {
			t.Fatalf("reading %d after %d", n, last)
		}
		last = max(last, n)
	}
	if last < before+20 { // a second of readings, with some tolerance for a slow machine
		t.Errorf("%d readings of the first life are at the hub, %d of them from before", last, before)
	}
}

// A sensor that disappears while the hub is absent costs its readings, not the waiting ones.
func outlivesItsSensor(t *testing.T, binary string) {
	hub, err := testbroker.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer hub.Close()
	p := start(t, hub, binary, 50*time.Millisecond, 400*time.Millisecond)
	p.told(t, "READY=1")
	waitFor(t, hub, 5)
	away := hub.Inject(fault.Fault{Kind: fault.Absent})
	hub.Drop(boardID)
	p.told(t, "WATCHDOG=1")
	if err := os.Remove(p.source); err != nil {
		t.Fatal(err)
	}
	p.forget()
	p.told(t, "WATCHDOG=1")
	p.told(t, "WATCHDOG=1")
	write(t, p.source, []byte("NaN\n"))
	p.forget()
	p.told(t, "WATCHDOG=1")
	p.told(t, "WATCHDOG=1")
	away.Remove()
	write(t, p.source, []byte("+3\n"))
	for got := 0; got != 3; {
		waitFor(t, hub, hub.Len()+1)
		var reading struct{ N, Value int }
		all := hub.Messages()
		if err := json.Unmarshal(all[len(all)-1].Body, &reading); err != nil {
			t.Fatalf("%q: %v", all[len(all)-1].Body, err)
		}
		got = reading.Value
	}
	p.stop(t)
	lastReading(t, hub, 21500, 3)
	for _, word := range []string{"no such file", "decimal number"} {
		if n := strings.Count(p.stderr.String(), word); n != 1 {
			t.Errorf("the log says %q %d times, want once", word, n)
		}
	}
}

// The memory of an idle device on a small board: the peak resident size, and the part that is not
// pages of the binary.
const (
	residentLimit  = 9_000 // KB
	anonymousLimit = 4_000
)

func TestIdleMemory(t *testing.T) {
	if runtime.GOOS != "linux" || raceDetector {
		t.Skip("reads /proc; the run without -race has this test")
	}
	long(t)
	for _, arch := range []string{"386", "amd64"} { // 386 represents ARM: 32 bits, run natively
		if arch != runtime.GOARCH && runtime.GOARCH != "amd64" {
			continue
		}
		for _, tags := range []string{"", "paho"} {
			t.Run(arch+" "+tags, func(t *testing.T) {
				if arch == "386" {
					need386(t)
				}
				hub, err := testbroker.New(nil)
				if err != nil {
					t.Fatal(err)
				}
				defer hub.Close()
				p := start(t, hub, build(t, arch, tags), time.Hour, time.Hour)
				p.told(t, "READY=1")
				waitFor(t, hub, 1)
				high, anonymous := memory(t, p.cmd.Process.Pid)
				p.stop(t)
				if high > residentLimit || anonymous > anonymousLimit {
					t.Errorf("%d KB resident, %d KB of it anonymous, want %d and %d at most", high, anonymous, residentLimit,
						anonymousLimit)
				}
				t.Logf("%d KB resident at most, %d KB anonymous", high, anonymous)
			})
		}
	}
}

// memory reads the peak resident size of a process and its current anonymous part, in KB.
func memory(t *testing.T, pid int) (high, anonymous int) {
	t.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ":")
		switch kb, _, _ := strings.Cut(strings.TrimSpace(value), " "); name {
		case "VmHWM":
			high, _ = strconv.Atoi(kb)
		case "RssAnon":
			anonymous, _ = strconv.Atoi(kb)
		}
	}
	if high == 0 || anonymous == 0 {
		t.Fatal("no memory in /proc/PID/status")
	}
	return high, anonymous
}

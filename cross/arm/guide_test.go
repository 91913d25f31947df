package arm

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/cross/arm/board"
	"github.com/hubline-iot/hubline/cross/arm/internal/modems"
	"github.com/hubline-iot/hubline/testbroker"
)

const guide = root + "/docs/boards-guide.md"

// guideFiles are the files in the guide, by the text with which each begins.
var guideFiles = map[string]string{
	"main.go": "// Command sensor", "board_tinygo.go": "//go:build tinygo\n", "board_pc.go": "//go:build !tinygo\n",
}

// guideModule is the module of the guide's reader; tree is this module's folder.
func guideModule(t *testing.T, tree string) string {
	t.Helper()
	page, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	for name, begin := range guideFiles {
		text, ok := fenced(page, "```go\n", begin)
		if !ok {
			t.Fatalf("the guide has no %s", name)
		}
		write(t, filepath.Join(folder, name), text)
	}
	text, ok := fenced(page, "```text\n", "module")
	if !ok || !bytes.Contains(text, []byte("=> ../hubline")) {
		t.Fatal("the guide has no go.mod")
	}
	write(t, filepath.Join(folder, "go.mod"), bytes.Replace(text, []byte("../hubline"), []byte(tree), 1))
	return folder
}

// fenced returns the text of the fence that begins so.
func fenced(page []byte, fence, begin string) ([]byte, bool) {
	_, after, ok := bytes.Cut(page, []byte(fence+begin))
	text, _, end := bytes.Cut(after, []byte("```"))
	return append([]byte(begin), text...), ok && end
}

// clone copies the module as the guide says: with a lower Go version.
func clone(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	files := strings.Fields(run(t, root, nil, "git", "ls-files", "*.go", "go.mod"))
	for _, name := range files {
		text, err := os.ReadFile(filepath.Join(root, name))
		if errors.Is(err, os.ErrNotExist) {
			continue // deleted in the working tree
		}
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(folder, name), text)
	}
	run(t, folder, nil, "go", "mod", "edit", "-go="+fmt.Sprintf("1.%d", coreMinor))
	return folder
}

// startSensor starts the guide's program with a modem at its line: serve is the modem's end of it.
// stop ends both.
func startSensor(t *testing.T, program string, serve func(line net.Conn) error) (m *machine, stop func()) {
	t.Helper()
	listener := listen(t)
	sensor := exec.Command(program)
	sensor.Env = append(os.Environ(), "LINE="+listener.Addr().String())
	console, err := sensor.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := sensor.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	m = &machine{ram: new(inspector), grown: make(chan struct{})}
	served, read := make(chan error, 1), make(chan struct{})
	go func() { served <- serve(line) }()
	go func() {
		defer close(read)
		m.read(console)
	}()
	return m, func() {
		_ = sensor.Process.Kill()
		<-read
		_ = sensor.Wait()
		line.Close()
		listener.Close()
		if err := <-served; err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, io.EOF) {
			t.Logf("the modem ended with %v", err)
		}
	}
}

// awaitReadings waits until the hub has n messages.
func awaitReadings(t *testing.T, hub *testbroker.Hub, n int) {
	t.Helper()
	for end := time.Now().Add(time.Minute); hub.Len() < n; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the hub has %d readings after a minute, want %d", hub.Len(), n)
		}
	}
}

// The guide's program, built as the guide says in a folder beside a clone, sends its reading
// through a modem in memory, and at the stand-in for one with TLS. Both changes of the guide fit
// into it.
func TestTheGuidesProgramRuns(t *testing.T) {
	long(t)
	watch(t)
	hub := newHub(t, testbroker.DefaultHostName)
	dev, err := hub.AddDevice(boardID)
	if err != nil {
		t.Fatal(err)
	}
	folder := guideModule(t, clone(t))
	program := buildSensor(t, folder, hub.HostName(), dev.PrimaryKey)
	run(t, folder, literal, "go", "vet", ".")
	t.Run("with a modem", func(t *testing.T) {
		m, stop := startSensor(t, program, func(line net.Conn) error {
			return (&modems.Line{Port: line, Dial: hub.Dial(testbroker.PortMQTT), Now: time.Now}).Serve()
		})
		defer stop()
		if !m.awaitLine(t, time.Minute, func() bool { return m.said("connected connection ok") > 0 }) {
			t.Fatalf("the console says %q", m.console())
		}
		awaitReadings(t, hub, 1)
		checkNumbers(t, hub, 1)
	})
	t.Run("at the stand-in", func(t *testing.T) {
		served, err := hub.Listen(testbroker.PortMQTTS, "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		before, roots := hub.Len(), filepath.Join(folder, "ca.pem")
		write(t, roots, hub.CAPEM())
		startAtStandIn(t, program, "-hub", served.String(), "-roots", roots)
		awaitReadings(t, hub, before+1)
	})
	main, err := os.ReadFile(filepath.Join(folder, "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	for change, edit := range map[string]func(*testing.T, string){
		"change for a cellular modem": changeForAT, "change for the clock": changeForClock,
	} {
		t.Run(change, func(t *testing.T) {
			write(t, filepath.Join(folder, "main.go"), main)
			edit(t, folder)
			run(t, folder, literal, "go", "vet", ".")
		})
	}
}

// buildSensor builds the guide's program for a hub.
func buildSensor(t *testing.T, folder, host, key string, env ...string) string {
	t.Helper()
	program := filepath.Join(folder, "sensor")
	run(t, folder, append(env, literal...), "go", "build", "-o", program, "-ldflags", fmt.Sprintf(
		"-X main.host=%s -X main.deviceID=%s -X main.key=%s", host, boardID, key))
	return program
}

// startAtStandIn starts the stand-in for a modem, and the guide's program at its line, until the
// test ends.
func startAtStandIn(t *testing.T, program string, args ...string) {
	t.Helper()
	modem := filepath.Join(t.TempDir(), "standin")
	run(t, root, nil, "go", "build", "-o", modem, "./cross/arm/standin")
	standIn := exec.Command(modem, append(args, "-listen", "127.0.0.1:0")...)
	out, err := standIn.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stopLater := func(c *exec.Cmd) {
		t.Cleanup(func() {
			_ = c.Process.Kill()
			_ = c.Wait()
		})
	}
	if err := standIn.Start(); err != nil {
		t.Fatal(err)
	}
	stopLater(standIn)
	first, err := bufio.NewReader(out).ReadString('\n')
	line, ok := strings.CutPrefix(strings.TrimSpace(first), "the line is at ")
	if !ok {
		t.Fatalf("it says %q, %v", first, err)
	}
	sensor := exec.Command(program)
	sensor.Env = append(os.Environ(), "LINE="+line)
	if err := sensor.Start(); err != nil {
		t.Fatal(err)
	}
	stopLater(sensor)
}

// literal is the environment of a reader who has no settings of their own and needs no download.
// Without the paths in it, what one clone has built is not built again in another.
var literal = []string{"GOWORK=", "GOFLAGS=", "GOPROXY=off", "CGO_ENABLED=0"}

// The guide's table has each field of board.Config.
func TestTheGuideHasEveryField(t *testing.T) {
	page, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := bytes.Cut(page, []byte("\n## 4. The fields of `board.Config`\n"))
	section, _, _ = bytes.Cut(section, []byte("\n## "))
	table := ""
	for _, line := range strings.Split(string(section), "\n") {
		if field, _, ok := strings.Cut(strings.TrimPrefix(line, "| "), " | "); ok {
			table += field + ", "
		}
	}
	for config, i := reflect.TypeFor[board.Config](), 0; i < config.NumField(); i++ {
		if name := config.Field(i).Name; !strings.Contains(table, "`"+name+"`, ") {
			t.Errorf("the guide lacks %s", name)
		}
	}
}

// The guide's program is a firmware, by the guide's command.
func TestTheGuidesFirmwareIsBuilt(t *testing.T) {
	tinyGo(t)
	watch(t)
	out := run(t, guideModule(t, clone(t)), nil, "tinygo", "build", "-target", "pico", "-panic=trap",
		"-stack-size="+stackSize, "-size", "short", "-ldflags", identity, "-o", filepath.Join(t.TempDir(), "firmware.elf"))
	flash, ram := sizesOf(t, out)
	t.Logf("%d bytes of flash, %d of static RAM", flash, ram)
}

// changeForAT makes the guide's change for a cellular modem.
func changeForAT(t *testing.T, folder string) {
	t.Helper()
	page, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	main, err := os.ReadFile(filepath.Join(folder, "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	change, ok := fenced(page, "```text\n", "\tmodem, err :=")
	begin, rest, found := bytes.Cut(main, []byte("\tmodem := "))
	_, end, loop := bytes.Cut(rest, []byte("\n\t}\n"))
	if !ok || !found || !loop {
		t.Fatal("the guide lacks the change, or the lines that it replaces")
	}
	main = bytes.Join([][]byte{begin, change, end}, nil)
	const board = "cross/arm/board\"\n"
	text := strings.Replace(string(main), board, board+"\t\"github.com/hubline-iot/hubline/cross/arm/board/atmodem\"\n", 1)
	write(t, filepath.Join(folder, "main.go"), []byte(text))
}

// changeForClock makes the guide's change that sets the clock before each connection.
func changeForClock(t *testing.T, folder string) {
	t.Helper()
	page, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "main.go")
	main, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const dial, device = "Dial: modem.Dial, ", "hubline/device\"\n"
	change, ok := fenced(page, "```text\n", "\t\tDial: func")
	if !ok || !bytes.Contains(main, []byte(dial)) {
		t.Fatal("the guide lacks the change, or the line that it replaces")
	}
	text := strings.Replace(string(main), dial, string(bytes.TrimSpace(change))+"\n\t\t", 1)
	text = strings.Replace(text, device, device+"\t\"github.com/hubline-iot/hubline/transport\"\n"+
		"\t\"github.com/hubline-iot/hubline/transport/mqtt/engine\"\n", 1)
	write(t, path, []byte(text))
}

// The guide's program, and that with its change for a cellular modem, need 4 KB of stack at most
// for each goroutine, through lost connections: a build for a processor of 32 bits ends when a
// stack would grow beyond. Go keeps some 800 bytes of each for itself, and the drivers run on the
// same ones, so the client has less than under TinyGo. With 2 KB it ends.
func TestTheGuidesProgramRunsInSmallStacks(t *testing.T) {
	if raceDetector || runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skip("Linux on amd64 runs this program of 32 bits; the run without -race has this test")
	}
	long(t)
	need386(t)
	watch(t)
	tree := clone(t)
	for _, c := range []struct {
		name     string
		cellular bool
		stack    int
		runs     bool
	}{
		{"board.Modem", false, board.StackSize, true},
		{"a cellular modem", true, board.StackSize, true},
		{"too little", false, board.StackSize / 2, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			hub := newHub(t, testbroker.DefaultHostName)
			dev, err := hub.AddDevice(boardID)
			if err != nil {
				t.Fatal(err)
			}
			folder := guideModule(t, tree)
			if c.cellular {
				changeForAT(t, folder)
			}
			path := filepath.Join(folder, "main.go")
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			write(t, path, bytes.Replace(text, []byte("Interval: time.Minute"), []byte("Interval: 50*time.Millisecond"), 1))
			write(t, filepath.Join(folder, "stack.go"), fmt.Appendf(nil,
				"package main\n\nimport \"runtime/debug\"\n\nfunc init() { debug.SetMaxStack(%d) }\n", c.stack))
			program := buildSensor(t, folder, hub.HostName(), dev.PrimaryKey, "GOARCH=386")
			m, stop := startSensor(t, program, func(line net.Conn) error {
				if c.cellular {
					return modems.New(modems.Config{Family: modems.Quectel, Line: line, Now: time.Now,
						Dial: hub.Dial(testbroker.PortMQTTS), Files: map[string][]byte{"ca.pem": hub.CAPEM()}}).Serve()
				}
				return (&modems.Line{Port: line, Dial: hub.Dial(testbroker.PortMQTT), Now: time.Now}).Serve()
			})
			defer stop()
			const overflow = "fatal error: stack overflow"
			if !c.runs {
				for end := time.Now().Add(time.Minute); m.said(overflow) == 0; time.Sleep(10 * time.Millisecond) {
					if time.Now().After(end) {
						t.Fatalf("it runs with stacks of %d bytes", c.stack)
					}
				}
				return
			}
			for range 4 {
				awaitReadings(t, hub, hub.Len()+10)
				hub.Drop(boardID)
			}
			awaitReadings(t, hub, hub.Len()+10)
			if m.said(overflow) != 0 {
				t.Error(overflow)
			}
		})
	}
}

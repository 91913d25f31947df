package arm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

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

// The guide's program, built outside of this module, sends its reading.
func TestTheGuidesProgramRuns(t *testing.T) {
	watch(t)
	tree, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	folder := guideModule(t, tree)
	hub := newHub(t, testbroker.DefaultHostName)
	dev, err := hub.AddDevice(boardID)
	if err != nil {
		t.Fatal(err)
	}
	env := []string{"GOWORK=off", "GOFLAGS=-mod=mod", "GOPROXY=off"}
	run(t, folder, env, "go", "mod", "edit", "-go=1.26")
	run(t, folder, env, "go", "vet", ".")
	program := filepath.Join(folder, "sensor")
	run(t, folder, env, "go", "build", "-o", program, "-ldflags", fmt.Sprintf(
		"-X main.host=%s -X main.deviceID=%s -X main.key=%s", hub.HostName(), boardID, dev.PrimaryKey), ".")

	listener := listen(t)
	defer listener.Close()
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
	m := &machine{hub: hub, modem: &modem{line: line, dial: hub.Dial(testbroker.PortMQTT), now: time.Now},
		grown: make(chan struct{})}
	served, read := make(chan error, 1), make(chan struct{})
	go func() { served <- m.modem.serve() }()
	go func() {
		defer close(read)
		m.read(console)
	}()
	m.awaitConsole(t, func() bool { return m.said("connected connection ok") > 0 })
	for end := time.Now().Add(time.Minute); hub.Len() == 0 && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	_ = sensor.Process.Kill()
	<-read
	_ = sensor.Wait()
	line.Close()
	if err := <-served; err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, io.EOF) {
		t.Logf("the modem ended with %v", err)
	}
	checkNumbers(t, hub, 1)
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

// The guide's change for a cellular modem fits into its program.
func TestTheGuidesChangeForACellularModemFits(t *testing.T) {
	watch(t)
	page, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	folder := guideModule(t, tree)
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
	env := []string{"GOWORK=off", "GOFLAGS=-mod=mod", "GOPROXY=off"}
	run(t, folder, env, "go", "mod", "edit", "-go=1.26")
	run(t, folder, env, "go", "vet", ".")
}

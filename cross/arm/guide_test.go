package arm

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
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

// prices are the features whose price in flash the guide tells: what each adds to the fields of a
// board.Config.
var prices = []struct{ feature, imports, fields string }{
	{"the smallest firmware: readings", "", ""},
	{"`Status`", "\"github.com/hubline-iot/hubline/device\"",
		"Status: func(s device.Status) { println(s.State.String(), s.Reason.String()) },"},
	{"`Command`", "", "Command: func(b []byte) { println(string(b)) },"},
	{"`Feed` and `RebootAfter`", "", "Feed: func() { println(1) }, RebootAfter: time.Hour,"},
	{"a modem with AT commands, in place of `board.Modem`",
		"\"github.com/hubline-iot/hubline/cross/arm/board/atmodem\"", ""},
	{"`Store`, with `flashlog`", "\"github.com/hubline-iot/hubline/cross/arm/board/flashlog\"", "Store: store(),"},
}

// priceMain is a firmware with some features.
const priceMain = `package main

import (
	"context"
	"time"

	"github.com/hubline-iot/hubline/cross/arm/board"
	%s
)

type line struct{}

var first byte

func (line) Read(p []byte) int  { p[0] = first; return int(first) }
func (line) Write(p []byte) int { first = p[0]; return len(p) }
func (line) Pause()             { time.Sleep(time.Millisecond) }

func main() {
	modem := board.NewModem(line{})
	modem.SetClock(time.Second)
	firmware, err := board.New(board.Config{
		Host: "hub.example.test", DeviceID: "board-1", Sign: board.Signer([]byte("key")), Dial: modem.Dial, Now: modem.Now,
		Read: func(b []byte) []byte { return append(b, 'x') },
		%s
	})
	if err != nil {
		println(err.Error())
		return
	}
	println(firmware.Run(context.Background()).Error())
}
`

// priceStore is added for the store: a device that the compiler does not know.
const priceStore = `
type memory struct{ line }

func (memory) ReadAt(p []byte, _ int64) (int, error)  { p[0] = first; return len(p), nil }
func (memory) WriteAt(p []byte, _ int64) (int, error) { first = p[0]; return len(p), nil }
func (memory) EraseBlocks(start, _ int64) error       { first = byte(start); return nil }
func (memory) WriteBlockSize() int64                  { return 4 }
func (memory) EraseBlockSize() int64                  { return 4096 }
func (memory) Size() int64                            { return 1 << 17 }

func store() board.Store {
	log, err := flashlog.New(memory{}, nil)
	if err != nil {
		println(err.Error())
	}
	return log
}
`

// priceModem puts a modem with AT commands in place of board.Modem.
var priceModem = strings.NewReplacer("modem := board.NewModem(line{})", `modem, err := atmodem.New(atmodem.Config{
		Port: line{}, Dialect: atmodem.BG9x, Host: "hub.example.test", CA: "ca.pem"})
	if err != nil {
		println(err.Error())
		return
	}`, "SetClock(time.Second)", "SetClock(context.Background())")

var updatePrices = flag.Bool("prices", false, "write the prices of features into the guide")

// priceTolerance is how much a price may differ from the guide's: TinyGo's versions differ.
const priceTolerance = 400

// The guide's table of prices is right.
func TestPrices(t *testing.T) {
	tinyGo(t)
	watch(t)
	page, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	folder := boardModule(t, nil)
	table, base := "\n| feature | flash, bytes |\n|--|--|\n", 0
	for i, p := range prices {
		text := fmt.Sprintf(priceMain, p.imports, p.fields)
		if strings.Contains(p.fields, "store()") {
			text += priceStore
		}
		if strings.Contains(p.imports, "atmodem") {
			text = priceModem.Replace(text)
		}
		name := "probe/price" + strconv.Itoa(i)
		write(t, filepath.Join(folder, name, "main.go"), []byte(text))
		out := run(t, folder, nil, "tinygo", "build", "-target", "cortex-m-qemu", "-panic=trap", "-stack-size="+stackSize,
			"-size", "short", "-o", filepath.Join(t.TempDir(), "price.elf"), "./"+name)
		flash, _ := sizesOf(t, out)
		price := flash - base
		if i == 0 {
			base = flash
		}
		t.Logf("%s: %d bytes", p.feature, price)
		table += fmt.Sprintf("| %s | %d |\n", p.feature, price)
		m := regexp.MustCompile(regexp.QuoteMeta("| "+p.feature+" | ") + `(\d+)`).FindSubmatch(page)
		if m == nil {
			t.Errorf("the guide does not tell the price of %s: %d bytes", p.feature, price)
			continue
		}
		if told, _ := strconv.Atoi(string(m[1])); max(told-price, price-told) > priceTolerance {
			t.Errorf("the price of %s is %d bytes, and the guide says %d; -prices writes it", p.feature, price, told)
		}
	}
	if *updatePrices {
		before, after, _ := bytes.Cut(page, []byte("<!-- prices -->"))
		_, after, _ = bytes.Cut(after, []byte("<!-- end -->"))
		write(t, guide, []byte(string(before)+"<!-- prices -->"+table+"<!-- end -->"+string(after)))
	}
}

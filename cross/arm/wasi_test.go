//go:build unix

package arm

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/cross/arm/internal/modems"
	"github.com/hubline-iot/hubline/testbroker"
)

// runner starts a module of WASI version 1 under Node.
const runner = `import { WASI } from 'node:wasi'
import { readFile } from 'node:fs/promises'
const wasi = new WASI({ version: 'preview1', args: ['device'], env: {} })
const module = await WebAssembly.compile(await readFile(process.argv[2]))
process.exitCode = wasi.start(await WebAssembly.instantiate(module, wasi.getImportObject()))
`

// The firmware in a sandbox, with the host's modem on its standard input and standard error.
func TestFirmwareInWASI(t *testing.T) {
	tinyGo(t, "node")
	watch(t)
	hub, err := testbroker.New(&testbroker.Options{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer hub.Close()
	dev, err := hub.AddDevice(boardID)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	wasm, script := filepath.Join(folder, "device.wasm"), filepath.Join(folder, "run.mjs")
	write(t, script, []byte(runner))
	const readings = 100
	flags := fmt.Sprintf("-X main.host=%s -X main.deviceID=%s -X main.key=%s -X main.readings=%d", hub.HostName(), boardID,
		dev.PrimaryKey, readings)
	run(t, boardModule(t, nil), nil, "tinygo", "build", "-target", "wasip1", "-ldflags", flags, "-o", wasm,
		"./cross/arm/board/wasi")

	// One socket serves both: the module's end must not block.
	ends, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	theirs, mine := os.NewFile(uintptr(ends[0]), "module"), os.NewFile(uintptr(ends[1]), "modem")
	line, err := net.FileConn(mine)
	mine.Close()
	if err != nil {
		t.Fatal(err)
	}
	m := &modems.Line{Port: line, Dial: hub.Dial(testbroker.PortMQTT), Now: time.Now}
	served := make(chan error, 1)
	go func() { served <- m.Serve() }()

	node := exec.CommandContext(t.Context(), "node", "--no-warnings", script, wasm)
	var console strings.Builder
	node.Stdin, node.Stdout, node.Stderr = theirs, &console, theirs
	node.Cancel = func() error { return node.Process.Kill() }
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	if err := syscall.SetNonblock(ends[0], true); err != nil { // Start makes it blocking
		t.Fatal(err)
	}
	guard := time.AfterFunc(time.Minute, func() { _ = node.Process.Kill() })
	err = node.Wait()
	guard.Stop()
	theirs.Close()
	line.Close()
	<-served
	if want := fmt.Sprintf("counts taken %d acknowledged %d lost 0", readings, readings); err != nil ||
		!strings.Contains(console.String(), want) {
		t.Errorf("%v\n%s", err, console.String())
	}
	checkNumbers(t, hub, readings)
}

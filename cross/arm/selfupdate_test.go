package arm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/cross/arm/internal/modems"
	"github.com/hubline-iot/hubline/internal/flashsim"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/updatedata"
	"github.com/hubline-iot/hubline/update"
)

// The images run in the RAM behind the boot loader's, and have 192 KB of it.
const (
	imageTarget = `{"inherits": ["riscv-qemu"], "linkerscript": "image.ld"}`
	imageScript = `MEMORY
{
    FLASH_TEXT (rw) : ORIGIN = 0x80200000, LENGTH = 0xc0000
    RAM (xrw)       : ORIGIN = 0x80300000, LENGTH = 192K
}
_stack_size = 2K;
INCLUDE "targets/riscv.ld"
`
)

// Sizes of the machine's flash, as in board/serial/flash_virt.go.
const (
	norBlock = 256 << 10
	norBank  = 32 << 20
)

// updatable is a fleet of one: a board with an update service.
type updatable struct {
	*machine
	service *testbroker.DPS
	updates *testbroker.Updates
	folder  string
	flags   string

	mu     sync.Mutex
	ranges []string // of the requests for files
}

// newUpdatable starts a board with image 1.
func newUpdatable(t *testing.T) *updatable {
	t.Helper()
	hub := newHub(t, "hub-1.example.test")
	service, err := testbroker.NewDPS(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = service.Close() })
	updates, err := testbroker.NewUpdates(nil)
	if err != nil {
		t.Fatal(err)
	}
	service.LinkUpdates(updates)
	if err := service.Link(hub); err != nil {
		t.Fatal(err)
	}
	own, err := service.Enroll(dpsdata.Enrollment{ID: boardID, DeviceID: boardID})
	if err != nil {
		t.Fatal(err)
	}
	b := &updatable{service: service, updates: updates, folder: boardModule(t, nil)}
	write(t, filepath.Join(b.folder, "image.json"), []byte(imageTarget))
	write(t, filepath.Join(b.folder, "image.ld"), []byte(imageScript))
	loader := filepath.Join(b.folder, "loader.elf")
	b.build(t, riscV.target, "bootloader", "", loader)
	var roots []string
	for id, key := range updates.Roots() {
		roots = append(roots, id+":"+base64.RawURLEncoding.EncodeToString(key.N.Bytes()))
	}
	b.flags = fmt.Sprintf("-X main.host=%s -X main.scope=%s -X main.deviceID=%s -X main.key=%s -X main.roots=%s",
		service.HostName(), service.IDScope(), boardID, own.PrimaryKey, strings.Join(roots, ","))
	bank := filepath.Join(b.folder, "flash.img")
	write(t, bank, factory(t, b.image(t, 1, 0)))
	modem := &modems.Line{Dial: b.dial, Now: time.Now}
	b.machine = powerOn(t, riscV, []string{"-drive", "if=pflash,unit=1,format=raw,file=" + bank, "-device",
		"loader,file=" + loader}, func(line net.Conn) error {
		modem.Port = line
		return modem.Serve()
	})
	return b
}

func (b *updatable) build(t *testing.T, target, tags, flags, to string) {
	t.Helper()
	run(t, b.folder, nil, "tinygo", "build", "-target", target, "-panic=trap", "-stack-size=8kb", "-tags", tags,
		"-ldflags", flags, "-o", to, "./cross/arm/board/serial")
}

// image builds an image with this number, padded to a size.
func (b *updatable) image(t *testing.T, number, size int) []byte {
	t.Helper()
	file := filepath.Join(b.folder, fmt.Sprintf("image%d.bin", number))
	b.build(t, "image.json", "update", fmt.Sprintf("%s -X main.version=%d", b.flags, number), file)
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("image %d: %d bytes", number, len(content))
	for random := rand.NewPCG(uint64(number), 1); len(content) < size; {
		content = append(content, byte(random.Uint64()))
	}
	return content
}

// factory returns the content of a bank of flash with an image in slot 0.
func factory(t *testing.T, image []byte) []byte {
	t.Helper()
	chip := flashsim.New(12*norBlock, 4, norBlock)
	layout := update.Layout{Flash: chip, Slots: [2]update.Slot{{First: 2, Blocks: 3}, {First: 5, Blocks: 3}}}
	if _, err := chip.WriteAt(append(bytes.Clone(image), make([]byte, -len(image)&3)...), 2*norBlock); err != nil {
		t.Fatal(err)
	}
	running := update.Image{Version: 1, Size: int64(len(image)), SHA256: sha256.Sum256(image)}
	if err := update.Format(&layout, running); err != nil {
		t.Fatal(err)
	}
	bank := bytes.Repeat([]byte{0xff}, norBank)
	if _, err := chip.ReadAt(bank[:chip.Size()], 0); err != nil {
		t.Fatal(err)
	}
	return bank
}

// dial is the modem's: the board names the service, or a server of files by its URL's beginning.
func (b *updatable) dial(ctx context.Context, network, host string) (net.Conn, error) {
	if !strings.Contains(host, ":") {
		return b.service.Dial(testbroker.PortMQTT)(ctx, network, host)
	}
	conn, err := b.service.Dial(testbroker.PortHTTP)(ctx, network, host)
	return watched{conn, b}, err
}

// watched records the requested parts of files.
type watched struct {
	net.Conn
	b *updatable
}

var requested = regexp.MustCompile(`Range: bytes=(\d+-)`)

func (w watched) Write(p []byte) (int, error) {
	if m := requested.FindSubmatch(p); m != nil {
		w.b.mu.Lock()
		w.b.ranges = append(w.b.ranges, string(m[1]))
		w.b.mu.Unlock()
	}
	return w.Conn.Write(p)
}

// offer publishes an image as an update, and offers it.
func (b *updatable) offer(t *testing.T, number int, image []byte) updatedata.Deployment {
	t.Helper()
	id := updatedata.UpdateID{Provider: "Contoso", Name: "Sensor", Version: fmt.Sprintf("%d.0", number)}
	err := b.updates.Publish(updatedata.Update{
		ID: id, Compatibility: []map[string]string{{"manufacturer": "Contoso", "model": "Sensor"}},
		Steps: []updatedata.Step{{Handler: "contoso/slots:1", Files: []string{"image.bin"},
			Properties: fmt.Appendf(nil, `{"installedCriteria":"%d"}`, number)}},
		Files: []updatedata.File{{Name: "image.bin", Content: image}},
	})
	if err != nil {
		t.Fatal(err)
	}
	d, err := b.updates.Deploy(updatedata.Deployment{Update: id})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// ended waits for the outcome of a deployment, and expects one final report of it.
func (b *updatable) ended(t *testing.T, d updatedata.Deployment, want updatedata.Outcome) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	workflow := func() updatedata.Workflow { return b.updates.Device(boardID).Workflow(d.WorkflowID) }
	if err := b.updates.Wait(ctx, func() bool { return workflow().Outcome().Terminal() }); err != nil {
		t.Fatalf("no final report came: %v", err)
	}
	final := 0
	for _, r := range workflow().Reports {
		if r.Result.Outcome.Terminal() {
			final++
		}
	}
	if w := workflow(); w.Outcome() != want || final != 1 {
		t.Errorf("%d final reports among %+v; want %s once", final, w.Reports, want)
	}
}

// crash is an image that resets the machine: it writes 0x7777 to the register at 0x100000.
var crash = []byte{
	0xb7, 0x02, 0x10, 0x00, // lui t0, 0x100
	0x37, 0x73, 0x00, 0x00, // lui t1, 0x7
	0x13, 0x03, 0x73, 0x77, // addi t1, t1, 0x777
	0x23, 0xa0, 0x62, 0x00, // sw t1, 0(t0)
	0x6f, 0x00, 0x00, 0x00, // j .
}

// An emulated board with NOR flash updates itself, with a reset in each phase: the new image runs
// in the end, and reports once. An image that crashes is taken back.
func TestABoardUpdatesItselfThroughResets(t *testing.T) {
	tinyGo(t, riscV.emulator)
	if !testkit.Long() {
		t.Skip("SKIPPED: 600 KB over an emulated line take a minute or more; HUBLINE_LONG=1 runs it")
	}
	watch(t)
	b := newUpdatable(t)
	good := b.offer(t, 2, b.image(t, 2, 300<<10))
	for _, at := range []string{
		"phase verify", "phase download", "slot downloading done 262144", "slot ready", "image 2",
	} {
		if !b.awaitLine(t, 10*time.Minute, func() bool { return b.starts(at) > 0 }) {
			t.Fatalf("the board did not say %q", at)
		}
		if err := b.ram.command("system_reset", map[string]any{}); err != nil {
			t.Fatal(err)
		}
	}
	b.ended(t, good, updatedata.OutcomeSucceeded)
	tried := b.said("boot slot 0")
	b.ended(t, b.offer(t, 3, crash), updatedata.OutcomeFailed)
	if n := b.said("boot slot 0") - tried; n != 3 {
		t.Errorf("image 3 was started %d times, want 3", n)
	}
	if device := b.updates.Device(boardID); device.Installed.Version != "2.0" {
		t.Errorf("the board says that it has %s", device.Installed)
	}
	most := 0
	for _, line := range b.console() {
		var phase string
		var unsent, heap int
		if n, _ := fmt.Sscanf(line, "phase %s unsent %d heap %d", &phase, &unsent, &heap); n == 3 {
			most = max(most, heap)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Contains(b.ranges, "262144-") {
		t.Error("the download did not continue at the block that the flash had")
	}
	t.Logf("requests for parts: %v; heap of %d bytes at most", b.ranges, most)
}

package arm

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/cross/arm/internal/modems"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
)

// The firmware on emulated chips. A serial port is connected to a modem, and the modem to the
// in-process hub.

// chip is a board that QEMU emulates.
type chip struct {
	target, emulator string
	arguments        []string // of the emulator; the modem is the character device "line"
	measured         bool     // its RAM is small enough to be read while it runs
}

var (
	// cortexM3 has 64 KB of RAM.
	cortexM3 = &chip{"cortex-m-qemu", "qemu-system-arm",
		[]string{"-machine", "lm3s6965evb", "-semihosting", "-serial", "stdio", "-serial", "chardev:line"}, true}
	// riscV has 100 MB, as TinyGo's linker sees it.
	riscV = &chip{"riscv-qemu", "qemu-system-riscv32",
		[]string{"-machine", "virt", "-bios", "none", "-serial", "stdio", "-device", "pci-serial,chardev=line,addr=1"}, false}
)

// machine is an emulated board.
type machine struct {
	hub    *testbroker.Hub
	modem  *modems.Line
	ram    *inspector
	static int // bytes of static RAM

	mu    sync.Mutex
	lines []string // of the console
	grown chan struct{}
}

// emulate builds the firmware and starts it. milliseconds and mode are set by the linker,
// stack is the size of stacks.
func emulate(t *testing.T, c *chip, milliseconds int, mode, stack string) *machine {
	t.Helper()
	hub := newHub(t, testbroker.DefaultHostName)
	dev, err := hub.AddDevice(boardID)
	if err != nil {
		t.Fatal(err)
	}
	return boot(t, c, hub, hub.Dial(testbroker.PortMQTT), stack, "", fmt.Sprintf(
		"-X main.host=%s -X main.deviceID=%s -X main.key=%s -X main.milliseconds=%d -X main.mode=%s", hub.HostName(),
		boardID, dev.PrimaryKey, milliseconds, mode))
}

// newHub returns a hub that is closed when the test ends.
func newHub(t *testing.T, host string) *testbroker.Hub {
	t.Helper()
	hub, err := testbroker.New(&testbroker.Options{HostName: host, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := hub.Close(); err != nil {
			t.Error(err)
		}
	})
	return hub
}

// dialer makes a modem's connections.
type dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// boot builds the firmware with stacks of this size, these build tags and settings of the linker,
// and starts it with a modem.
func boot(t *testing.T, c *chip, hub *testbroker.Hub, dial dialer, stack, tags, flags string) *machine {
	t.Helper()
	own := &modems.Line{Dial: dial, Now: time.Now}
	m := bootFrom(t, c, boardModule(t, nil), hub, stack, tags, flags, func(line net.Conn) error {
		own.Port = line
		return own.Serve()
	})
	m.modem = own
	return m
}

// bootFrom is boot with the firmware in a module's folder, and with another modem: serve is its end
// of the line.
func bootFrom(t *testing.T, c *chip, folder string, hub *testbroker.Hub, stack, tags, flags string,
	serve func(net.Conn) error) *machine {
	t.Helper()
	elf := filepath.Join(t.TempDir(), "firmware.elf")
	run(t, folder, nil, "tinygo", "build", "-target", c.target, "-panic=trap", "-stack-size="+stack,
		"-tags", tags, "-ldflags", flags, "-o", elf, "./cross/arm/board/serial")
	m := powerOn(t, c, []string{"-kernel", elf}, serve)
	m.hub = hub
	layout, static := layoutOf(t, elf)
	m.static = static
	if c.measured {
		m.ram.layout = layout
	}
	return m
}

// powerOn starts an emulator with a modem at its line.
func powerOn(t *testing.T, c *chip, arguments []string, serve func(net.Conn) error) *machine {
	t.Helper()
	listener, control := listen(t), listen(t)
	port := listener.Addr().(*net.TCPAddr).Port
	qemu := exec.Command(c.emulator, slices.Concat([]string{"-display", "none", "-qmp", "tcp:" + control.Addr().String(),
		"-chardev", fmt.Sprintf("socket,id=line,host=127.0.0.1,port=%d", port)}, c.arguments, arguments)...)
	console, err := qemu.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := qemu.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{ram: inspect(t, control), grown: make(chan struct{})}
	served := make(chan error, 1)
	go func() { served <- serve(line) }()
	read := make(chan struct{})
	go func() {
		defer close(read)
		m.read(console)
	}()
	t.Cleanup(func() {
		line.Close()
		listener.Close()
		m.ram.control.Close()
		control.Close()
		_ = qemu.Process.Kill()
		<-read
		_ = qemu.Wait()
		if err := <-served; err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, io.EOF) {
			t.Errorf("the modem ended with %v", err)
		}
		if t.Failed() {
			t.Logf("the console:\n%s", strings.Join(m.console(), "\n"))
		}
	})
	return m
}

// listen returns a listener for a connection of QEMU.
func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

// read records the lines of the console.
func (m *machine) read(console io.Reader) {
	for lines := bufio.NewScanner(console); lines.Scan(); {
		m.mu.Lock()
		m.lines = append(m.lines, strings.TrimSpace(lines.Text()))
		close(m.grown)
		m.grown = make(chan struct{})
		m.mu.Unlock()
	}
}

func (m *machine) console() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lines[:len(m.lines):len(m.lines)]
}

// said returns how often the console printed a line.
func (m *machine) said(line string) (n int) {
	for _, l := range m.console() {
		if l == line {
			n++
		}
	}
	return n
}

// counts is one report of the firmware.
type counts struct{ taken, acknowledged, lost, heap, memory, allocations int }

// reports returns all reports so far.
func (m *machine) reports() (all []counts) {
	for _, line := range m.console() {
		var c counts
		if n, _ := fmt.Sscanf(line, "counts taken %d acknowledged %d lost %d heap %d of %d allocations %d", &c.taken,
			&c.acknowledged, &c.lost, &c.heap, &c.memory, &c.allocations); n == 6 {
			all = append(all, c)
		}
	}
	return all
}

// await waits until ok accepts the last report, or fails.
func (m *machine) await(t *testing.T, limit time.Duration, what string, ok func(last counts) bool) {
	t.Helper()
	if !m.awaitLine(t, limit, func() bool {
		all := m.reports()
		return len(all) > 0 && ok(all[len(all)-1])
	}) {
		t.Fatalf("after %v the board has not %s", limit, what)
	}
}

// awaitLine waits until ok accepts the console's lines, and reports whether it did. It measures the
// stacks meanwhile.
func (m *machine) awaitLine(t *testing.T, limit time.Duration, ok func() bool) bool {
	t.Helper()
	end := time.NewTimer(limit)
	defer end.Stop()
	for {
		m.mu.Lock()
		grown := m.grown
		m.mu.Unlock()
		_, err := m.ram.measure()
		if ok() {
			return true
		}
		for _, line := range m.console() {
			if strings.Contains(line, "panic") || strings.Contains(line, "fatal") {
				t.Fatalf("the board said %q", line)
			}
		}
		select {
		case <-grown:
		case <-end.C:
			if err != nil {
				t.Logf("the emulator: %v", err) // it ends with the firmware
			}
			return false
		}
	}
}

const (
	slots = 16 // of the firmware's ring
	// longestOutage is the retry policy's longest delay plus the firmware's spread plus the time to
	// connect.
	longestOutage = 10*time.Second + 2*time.Second + 2*time.Second
)

func TestFirmwareOnACortexM3(t *testing.T) { testFirmware(t, cortexM3, 4000, 14) }

func TestFirmwareOnRISCV(t *testing.T) { testFirmware(t, riscV, 1000, 3) }

// testFirmware takes readings over connections of which this many are lost, and expects that none
// of the readings is missing.
func testFirmware(t *testing.T, c *chip, readings, kills int) {
	tinyGo(t, c.emulator)
	watch(t)
	const perKill, milliseconds = 250, 5
	m := emulate(t, c, milliseconds, "run", stackSize)
	for i := range kills {
		m.await(t, time.Minute, "brought its readings", func(c counts) bool { return c.acknowledged >= (i+1)*perKill })
		if i%2 == 0 {
			m.hub.Inject(fault.Fault{Kind: fault.DropAfterPublish, After: 2})
		} else {
			m.hub.Drop(boardID)
		}
	}
	m.await(t, time.Minute, "brought all readings", func(c counts) bool { return c.acknowledged >= readings })
	all := m.reports()
	last := all[len(all)-1]
	seen, duplicates := numbers(t, m.hub)
	if len(seen) < readings-last.lost {
		t.Errorf("the hub has %d different readings, the board counts %+v", len(seen), last)
	}
	lacks := missing(seen)
	if lacks > last.lost {
		t.Errorf("%d readings are missing at the hub, and the board gave up %d", lacks, last.lost)
	}
	if !slices.IsSorted(seen) {
		t.Error("readings arrived for the first time out of order")
	}
	if last.taken < last.acknowledged+last.lost || last.taken > last.acknowledged+last.lost+slots {
		t.Errorf("%+v: more or fewer readings are on their way than the ring holds", last)
	}
	// Readings are dropped only while disconnected: at most longestOutage per loss, in the board's
	// time.
	if outages := m.modem.Dials - 1; last.lost > outages*int(longestOutage/time.Millisecond)/milliseconds {
		t.Errorf("%d readings gave way in %d outages, one each %d ms", last.lost, outages, milliseconds)
	}
	// A connection takes about 90; sent and dropped messages take none.
	if limit := 200 * m.modem.Dials; last.allocations > limit {
		t.Errorf("%d allocations for %d readings and %d connections, want %d at most", last.allocations, last.taken,
			m.modem.Dials, limit)
	}
	checkRAM(t, m, all, ramBudget)
	checkGrowth(t, all)
	if c.measured {
		checkStacks(t, m)
	}
	t.Logf("%+v; at the hub %d, %d duplicates, %d given up while the link backed off; %d connections", last, len(seen),
		duplicates, lacks, m.modem.Dials)
}

// checkRAM expects the static RAM and the heap at its peak, stacks included, to keep to the budget.
// The boards' garbage collector is conservative: at times it keeps dead memory, such as the stack
// of an ended goroutine.
func checkRAM(t *testing.T, m *machine, all []counts, budget int) {
	t.Helper()
	heaps := make([]int, len(all))
	for i, c := range all {
		heaps[i] = c.heap
	}
	slices.Sort(heaps)
	median, peak := heaps[len(heaps)/2], heaps[len(heaps)-1]
	if m.static+peak > budget {
		t.Errorf("%d bytes of static RAM and at times %d of heap, want %d at most together", m.static, peak, budget)
	}
	t.Logf("RAM at the peak %d of %d bytes: %d static and %d of heap, %d by the median", m.static+peak, budget,
		m.static, peak, median)
}

// checkGrowth expects the heap's minimum not to rise from the first to the last third of reports
// that all have the same phases.
func checkGrowth(t *testing.T, all []counts) {
	t.Helper()
	least := func(part []counts) int {
		return slices.MinFunc(part, func(a, b counts) int { return a.heap - b.heap }).heap
	}
	third := len(all) / 3
	early, late := least(all[third/2:third]), least(all[2*third:])
	if late > early+1024 {
		t.Errorf("the heap grew from %d to %d bytes", early, late)
	}
	t.Logf("heap in use: at least %d bytes early and %d late", early, late)
}

// TinyGo's default stacks for most boards have 2 KB. The firmware must not start with them.
func TestFirmwareRefusesSmallStacks(t *testing.T) {
	tinyGo(t, "qemu-system-arm")
	watch(t)
	for _, size := range []string{"2kb", "3kb"} {
		t.Run(size, func(t *testing.T) {
			m := emulate(t, cortexM3, 5, "run", size)
			refused := "FATAL board: goroutines have small stacks; build with -stack-size=" + stackSize
			m.awaitLine(t, time.Minute, func() bool { return m.said(refused) > 0 || len(m.reports()) > 0 })
			if m.said(refused) != 1 || len(m.reports()) != 0 {
				t.Error("the firmware started")
			}
		})
	}
}

// A board that sleeps restarts at each wake-up: RAM is lost.
func TestFirmwareThatSleepsOnACortexM3(t *testing.T) { testSleep(t, cortexM3, 40) }

func TestFirmwareThatSleepsOnRISCV(t *testing.T) { testSleep(t, riscV, 8) }

func testSleep(t *testing.T, c *chip, wakings int) {
	tinyGo(t, c.emulator)
	watch(t)
	m := emulate(t, c, 20, "sleep", stackSize)
	m.await(t, 2*time.Minute, "slept so often", func(counts) bool { return m.said("cycle true") >= wakings })
	if failed := m.said("cycle false"); failed != 0 {
		t.Errorf("%d wakings did not bring their reading", failed)
	}
	if n := m.hub.Len(); n < wakings {
		t.Errorf("the hub has %d readings of %d wakings", n, wakings)
	}
	all := m.reports()
	for _, c := range all {
		if c.taken != 1 || c.acknowledged != 1 {
			t.Errorf("%+v", c)
			break
		}
	}
	checkRAM(t, m, all, ramBudget)
	t.Logf("%d wakings, %+v", len(all), all[len(all)-1])
}

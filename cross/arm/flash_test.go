package arm

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hubline-iot/hubline/cross/arm/board"
	"github.com/hubline-iot/hubline/cross/arm/board/flashlog"
	"github.com/hubline-iot/hubline/internal/flashsim"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
)

// newFlash returns a chip with six blocks.
func newFlash() *flashsim.Flash { return flashsim.New(6*512, 4, 512) }

// A firmware lives many lives. Each ends by a reboot between two readings, or by a loss of power
// during a write or an erase of its flash. The hub is away in many of them. The ledger: whatever
// the flash has accepted arrives.
func TestNoReadingThatTheFlashAcceptedIsLost(t *testing.T) {
	for seed := range uint64(6) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			random := rand.New(rand.NewPCG(seed, 2))
			memory := newFlash()
			accepted := map[int]bool{}
			const lives, words = 40, 10 // of a reading
			taken, cuts := uint32(0), 0
			for life := range lives {
				memory.Restore()
				last := life == lives-1
				if !last && random.IntN(2) == 0 {
					memory.CutAt(1+random.IntN(2*words), flashsim.Tears[random.IntN(len(flashsim.Tears))], seed)
				}
				if !last && random.IntN(3) != 0 {
					b.hub.Inject(fault.Fault{Kind: fault.Absent, For: time.Minute})
				}
				log, err := flashlog.New(memory, nil)
				if err != nil {
					t.Fatal(err)
				}
				c := b.config(1)
				c.Slots = 48 // outages pile up
				c.Store = &witness{Store: log, accepted: accepted}
				f, err := board.New(c)
				if err != nil {
					t.Fatal(err)
				}
				for range 1 + random.IntN(3) {
					_ = f.Cycle(time.Duration(5+random.IntN(20)) * time.Second)
					if random.IntN(2) == 0 {
						_ = log.Sync()
					}
				}
				if memory.Off() {
					cuts++
				}
				if n := f.Counts().Lost + log.Dropped(); n != 0 {
					t.Errorf("seed %d: %d readings gave way", seed, n)
				}
				taken += f.Counts().Taken
				time.Sleep(time.Minute)
			}
			t.Logf("seed %d", seed)
			arrived, duplicates := checkAccepted(t, b.hub, accepted)
			if cuts < lives/5 || duplicates == 0 || len(accepted) < lives {
				t.Errorf("seed %d: %d losses of power, %d duplicates, %d readings", seed, cuts, duplicates, len(accepted))
			}
			t.Logf("seed %d: %d lives, %d losses of power during a write; %d readings taken, %d accepted by the flash "+
				"with %d writes of a word, %d arrived, %d of them again", seed, lives, cuts, taken, len(accepted),
				memory.Operations(), arrived, duplicates)
		})
	}
}

// checkAccepted expects each reading that the flash accepted at the hub.
func checkAccepted(t *testing.T, hub *testbroker.Hub, accepted map[int]bool) (arrived, duplicates int) {
	t.Helper()
	seen, duplicates := numbers(t, hub)
	for n := range accepted {
		if !slices.Contains(seen, n) {
			t.Errorf("the flash accepted reading %d, which never arrived", n)
		}
	}
	return len(seen), duplicates
}

// witness is a store that records the numbers of accepted readings.
type witness struct {
	board.Store
	accepted map[int]bool
}

func (w *witness) Keep(number uint32, body []byte) error {
	err := w.Store.Keep(number, body)
	if err == nil {
		w.accepted[int(number)] = true
	}
	return err
}

// flashMain keeps readings in the chip's own flash for ever, and forgets all but the latest eight.
// It says what it does, before and after.
const flashMain = `package main

import (
	"machine"

	"github.com/hubline-iot/hubline/cross/arm/board/flashlog"
)

func main() {
	println() // a reset may have ended a line
	log, err := flashlog.New(machine.Flash, &flashlog.Options{Blocks: 6})
	if err != nil {
		println("FATAL", err.Error())
		return
	}
	least, count, wrong := uint32(0), 0, 0
	last, err := log.Load(func(number uint32, body []byte) {
		if count == 0 {
			least = number
		}
		count++
		for _, b := range body {
			if b != byte(number) {
				wrong++
			}
		}
	})
	println("wrong", wrong)
	println("loaded", count, "from", least, "to", last, "well")
	if err != nil {
		println("FATAL", err.Error())
		return
	}
	var body [32]byte
	for number := last + 1; ; number++ {
		for i := range body {
			body[i] = byte(number)
		}
		println("keeping", number, "well")
		if err := log.Keep(number, body[:]); err != nil {
			println("FATAL", err.Error())
			return
		}
		println("kept", number, "well")
		if number > 8 {
			_ = log.Forget(number - 8)
		}
	}
}
`

// An emulated board (Cortex-M0, 16 KB of RAM) is reset at any time while it writes to its flash.
func TestFlashOfAnEmulatedBoardSurvivesResets(t *testing.T) {
	tinyGo(t, "qemu-system-arm")
	watch(t)
	elf := filepath.Join(t.TempDir(), "flash.elf")
	run(t, probeModule(t), nil, "tinygo", "build", "-target", "microbit", "-panic=trap", "-o", elf, "./probe/flash")
	control := listen(t)
	defer control.Close()
	qemu := exec.Command("qemu-system-arm", "-machine", "microbit", "-display", "none", "-qmp",
		"tcp:"+control.Addr().String(), "-serial", "stdio", "-kernel", elf)
	console, err := qemu.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := qemu.Start(); err != nil {
		t.Fatal(err)
	}
	m := &machine{ram: inspect(t, control), grown: make(chan struct{})}
	read := make(chan struct{})
	go func() {
		defer close(read)
		m.read(console)
	}()
	defer func() {
		m.ram.control.Close()
		_ = qemu.Process.Kill()
		<-read
		_ = qemu.Wait()
	}()

	const resets, seed = 60, 1
	random := rand.New(rand.NewPCG(seed, 3))
	for range resets {
		want := len(m.console()) + 20 + random.IntN(400)
		m.awaitConsole(t, func() bool { return len(m.console()) >= want })
		if err := m.ram.command("system_reset", map[string]any{}); err != nil {
			t.Fatal(err)
		}
	}
	m.awaitConsole(t, func() bool { return m.starts("loaded") > resets })
	checkFlash(t, m.console())
}

// awaitConsole waits for output of the board.
func (m *machine) awaitConsole(t *testing.T, ok func() bool) {
	t.Helper()
	end := time.NewTimer(time.Minute)
	defer end.Stop()
	for {
		m.mu.Lock()
		grown := m.grown
		m.mu.Unlock()
		if ok() {
			return
		}
		select {
		case <-grown:
		case <-end.C:
			t.Fatalf("the board said no more after\n%s", strings.Join(lastOf(m.console(), 20), "\n"))
		}
	}
}

// starts returns how many lines begin with a word.
func (m *machine) starts(word string) (n int) {
	for _, l := range m.console() {
		if strings.HasPrefix(l, word) {
			n++
		}
	}
	return n
}

func lastOf(lines []string, n int) []string { return lines[max(0, len(lines)-n):] }

// checkFlash compares what the board loaded after each reset with what it had kept before.
func checkFlash(t *testing.T, lines []string) {
	t.Helper()
	trying, kept, starts, midway := 0, 0, 0, 0
	for _, line := range lines {
		var count, least, last, number int
		if _, err := fmt.Sscanf(line, "loaded %d from %d to %d well", &count, &least, &last); err == nil {
			starts++
			if last < kept || last > trying || kept > 8 && (least > kept-7 || count != last-least+1) {
				t.Errorf("the board had kept %d and begun %d; then it %s", kept, trying, line)
			}
			if trying > kept {
				midway++
			}
			trying, kept = last, last
		}
		// Lines that a reset has cut short do not end with "well".
		if _, err := fmt.Sscanf(line, "keeping %d well", &number); err == nil {
			trying = number
		}
		if _, err := fmt.Sscanf(line, "kept %d well", &number); err == nil {
			kept = number
		}
		if strings.HasPrefix(line, "FATAL") || strings.HasPrefix(line, "wrong") && line != "wrong 0" {
			t.Error(line)
		}
	}
	if starts < 60 || kept < 1000 {
		t.Errorf("%d starts, %d readings", starts, kept)
	}
	t.Logf("%d starts, %d readings; %d resets came during a write", starts, kept, midway)
}

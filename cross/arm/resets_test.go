package arm

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/cross/arm/internal/modems"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
)

// editFirmware changes files of board/serial in a module's folder.
func editFirmware(t *testing.T, folder string, all map[string]*strings.Replacer) {
	t.Helper()
	for name, edits := range all {
		path := filepath.Join(folder, "cross/arm/board/serial", name)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		changed := edits.Replace(string(text))
		if changed == string(text) {
			t.Fatalf("%s has nothing to change", name)
		}
		write(t, path, []byte(changed))
	}
}

// shortDog makes the watchdog of the LM3S6965 reset it after 10 s instead of 80.
var shortDog = strings.NewReplacer("dogTicks = 480_000_000", "dogTicks = 60_000_000")

const shortDogTime = 10 * time.Second

// lives records when a board has started, by its first question to the modem after a connection,
// and when it connected.
type lives struct {
	mu            sync.Mutex
	asked         bool // since the latest connection
	begun, dialed []time.Time
}

// now is the modem's answer to the question for the time.
func (l *lives) now() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if !l.asked {
		l.begun = append(l.begun, now)
	}
	l.asked = true
	return now
}

func (l *lives) dial() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked = false
	l.dialed = append(l.dialed, time.Now())
}

func (l *lives) starts() []time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.begun[:len(l.begun):len(l.begun)]
}

func (l *lives) dials() []time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dialed[:len(l.dialed):len(l.dialed)]
}

// emulateEdited is emulate for a changed firmware on the Cortex-M3. It records the board's lives.
func emulateEdited(t *testing.T, milliseconds int, mode string, edits map[string]*strings.Replacer) (*machine, *lives) {
	t.Helper()
	hub := newHub(t, testbroker.DefaultHostName)
	dev, err := hub.AddDevice(boardID)
	if err != nil {
		t.Fatal(err)
	}
	seen, dial := new(lives), hub.Dial(testbroker.PortMQTT)
	own := &modems.Line{Now: seen.now, Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		seen.dial()
		return dial(ctx, network, addr)
	}}
	folder := boardModule(t, nil)
	editFirmware(t, folder, edits)
	m := bootFrom(t, cortexM3, folder, hub, stackSize, "", fmt.Sprintf(
		"-X main.host=%s -X main.deviceID=%s -X main.key=%s -X main.milliseconds=%d -X main.mode=%s", hub.HostName(),
		boardID, dev.PrimaryKey, milliseconds, mode), func(line net.Conn) error {
		own.Port = line
		return own.Serve()
	})
	m.modem = own
	return m, seen
}

// A firmware that hangs does not feed the watchdog. That resets the chip, and the readings of the
// next life arrive.
func TestTheWatchdogResetsAFirmwareThatHangs(t *testing.T) {
	tinyGo(t, "qemu-system-arm")
	watch(t)
	const enough, resets = 40, 2 // readings of each life
	m, seen := emulateEdited(t, 20, "run", map[string]*strings.Replacer{"chip_lm3s.go": shortDog,
		"main.go": strings.NewReplacer("\t\t\tdog.feed()\n\t\t\tif firmware", fmt.Sprintf(`
			if firmware != nil && firmware.Counts().Acknowledged >= %d {
				println("hangs")
				for {
				}
			}
			dog.feed()
			if firmware`, enough))})
	for life := range resets + 1 {
		if !m.awaitLine(t, 2*time.Minute, func() bool { return m.said("hangs") > life }) {
			t.Fatalf("the board started %d times, and hung %d times", len(seen.starts()), m.said("hangs"))
		}
		if n := len(seen.starts()); n != life+1 || m.hub.Len() < n*enough {
			t.Errorf("%d starts and %d readings in life %d, want %d each", n, m.hub.Len(), life, enough)
		}
	}
	t.Logf("%d starts, %d readings", len(seen.starts()), m.hub.Len())
}

// With RebootAfter the firmware stops feeding the watchdog while the hub takes nothing. After the
// reset its readings arrive.
func TestTheWatchdogResetsAFirmwareWithoutProgress(t *testing.T) {
	tinyGo(t, "qemu-system-arm")
	watch(t)
	m, seen := emulateEdited(t, 20, "run", map[string]*strings.Replacer{"chip_lm3s.go": shortDog,
		"main.go": strings.NewReplacer("RebootAfter: time.Hour", "RebootAfter: 30*time.Second")})
	m.await(t, time.Minute, "brought its first readings", func(c counts) bool { return c.acknowledged >= 50 })
	outage := m.hub.Inject(fault.Fault{Kind: fault.Absent})
	m.hub.Drop(boardID)
	if !m.awaitLine(t, 4*time.Minute, func() bool { return len(seen.starts()) > 1 }) {
		t.Fatal("the board was not reset")
	}
	outage.Remove()
	before := m.hub.Len()
	if !m.awaitLine(t, time.Minute, func() bool { return m.hub.Len() >= before+50 }) {
		t.Fatalf("%d readings came after the reset", m.hub.Len()-before)
	}
}

// A sleep lasts as long as it should: it neither ends early, nor by the watchdog, whose time is
// shorter. The board connects before it sleeps, and asks for the time after that.
func TestSleepEndsAtItsTime(t *testing.T) {
	tinyGo(t, "qemu-system-arm")
	watch(t)
	const sleep, wakings = shortDogTime + 2*time.Second, 2
	m, seen := emulateEdited(t, int(sleep.Milliseconds()), "sleep",
		map[string]*strings.Replacer{"chip_lm3s.go": shortDog})
	if !m.awaitLine(t, 3*time.Minute, func() bool { return m.said("cycle true") >= wakings }) {
		t.Fatalf("%d wakings brought their reading", m.said("cycle true"))
	}
	dials, starts := seen.dials(), seen.starts()
	if m.hub.Len() != wakings || len(dials) != wakings || len(starts) != wakings {
		t.Fatalf("%d readings, %d connections and %d starts of %d wakings", m.hub.Len(), len(dials), len(starts), wakings)
	}
	for i := range wakings - 1 {
		slept := starts[i+1].Sub(dials[i])
		if slept < sleep {
			t.Errorf("sleep %d ended %v after its connection began, want %v", i, slept, sleep)
		}
		t.Logf("sleep %d of %v: the board started again %v after its connection began", i, sleep, slept)
	}
}

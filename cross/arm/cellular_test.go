package arm

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/cross/arm/internal/modems"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
)

// cellularEdits put a cellular modem in place of board.Modem into the firmware, by file.
var cellularEdits = map[string]*strings.Replacer{
	"main.go": strings.NewReplacer(
		"modem := board.NewModem(&line)", `modem, err := atmodem.New(atmodem.Config{
		Port: &line, Dialect: atmodem.BG9x, Host: host, APN: "things.example", CA: "ca.pem"})
	if err != nil {
		println("FATAL", err.Error())
		return
	}`,
		"!modem.SetClock(2 * time.Second)", "modem.SetClock(context.Background()) != nil",
		"\tvar err error\n", "",
		"/cross/arm/board\"\n", "/cross/arm/board\"\n\t\"github.com/hubline-iot/hubline/cross/arm/board/atmodem\"\n"),
	"fixed.go": strings.NewReplacer("*board.Modem", "*atmodem.Modem", "/cross/arm/board\"", "/cross/arm/board/atmodem\""),
}

// The firmware with a cellular modem at its serial port: an emulated BG9x, that verifies the hub's
// certificate. The board writes no CA file here, so the modem has one.
func TestFirmwareWithACellularModemOnACortexM3(t *testing.T) {
	tinyGo(t, "qemu-system-arm")
	watch(t)
	const readings, perKill, kills = 600, 60, 8
	hub := newHub(t, testbroker.DefaultHostName)
	dev, err := hub.AddDevice(boardID)
	if err != nil {
		t.Fatal(err)
	}
	var cellular *modems.Modem
	ready := make(chan struct{})
	folder := boardModule(t, nil)
	editFirmware(t, folder, cellularEdits)
	flags := fmt.Sprintf("-X main.host=%s -X main.deviceID=%s -X main.key=%s -X main.milliseconds=20 -X main.mode=run",
		hub.HostName(), boardID, dev.PrimaryKey)
	m := bootFrom(t, cortexM3, folder, hub, stackSize, "", flags, func(line net.Conn) error {
		cellular = modems.New(modems.Config{Family: modems.Quectel, Line: line,
			Dial: hub.Dial(testbroker.PortMQTTS), Now: time.Now, APN: "things.example", Boot: time.Second,
			Files: map[string][]byte{"ca.pem": hub.CAPEM()}})
		close(ready)
		return cellular.Serve()
	})
	<-ready
	for i := range kills {
		m.await(t, time.Minute, "brought its readings", func(c counts) bool { return c.acknowledged >= (i+1)*perKill })
		switch i % 4 {
		case 0:
			hub.Inject(fault.Fault{Kind: fault.DropAfterPublish, After: 2})
		case 1:
			cellular.Detach()
		case 2:
			hub.Drop(boardID)
		case 3:
			cellular.Cut()
		}
	}
	m.await(t, time.Minute, "brought all readings", func(c counts) bool { return c.acknowledged >= readings })
	all := m.reports()
	last := all[len(all)-1]
	seen, duplicates := numbers(t, hub)
	if len(seen) < last.acknowledged {
		t.Errorf("the hub has %d different readings, the board counts %+v", len(seen), last)
	}
	if last.taken < last.acknowledged+last.lost || last.taken > last.acknowledged+last.lost+slots {
		t.Errorf("%+v: more or fewer readings are on their way than the ring holds", last)
	}
	if cellular.Dials() <= kills {
		t.Errorf("%d connections for %d losses", cellular.Dials(), kills)
	}
	checkRAM(t, m, all, ramBudget+4<<10) // the driver of the modem has a stack of its own
	checkStacks(t, m)
	t.Logf("%+v; at the hub %d, %d duplicates; %d connections", last, len(seen), duplicates, cellular.Dials())
}

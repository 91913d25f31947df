package arm

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/cross/arm/internal/modems"
	"github.com/hubline-iot/hubline/testbroker"
)

// nextEdits make the firmware one for a hub with the MQTT v5 profile. The modem has a certificate.
var nextEdits = map[string]*strings.Replacer{
	"main.go": strings.NewReplacer(`Command:  func(body []byte) { println("command", string(body)) },`, ""),
	"../firmware.go": strings.NewReplacer(
		"import (", "import (\n\t\"github.com/hubline-iot/hubline/transport/mqtt/nexthub\"", "Sign: c.Sign, Now", "Now",
		"c.DeviceID)}),", `c.DeviceID), Dialect: &nexthub.Hub{Random: func(p []byte) error {
			for i := range p {
				p[i] = byte(dice.Uint64())
			}
			return nil
		}}}),`, "type Firmware struct", "var dice = rand.NewPCG(1, 2)\n\ntype Firmware struct"),
}

// The firmware brings its readings to a hub with the MQTT v5 profile, through lost connections and
// within the budget of RAM, without twin and methods.
func TestFirmwareOfAHubWithTheMQTTv5ProfileOnACortexM3(t *testing.T) {
	tinyGo(t, "qemu-system-arm")
	watch(t)
	const perKill, kills = 250, 6
	hub, err := testbroker.New(&testbroker.Options{MQTTv5: &testbroker.MQTTv5Options{}, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer hub.Close()
	if _, err := hub.AddDevice(boardID); err != nil {
		t.Fatal(err)
	}
	folder := boardModule(t, nil)
	editFirmware(t, folder, nextEdits)
	modem := &modems.Line{Dial: hub.Dial(testbroker.PortMQTT), Now: time.Now}
	m := bootFrom(t, cortexM3, folder, hub, stackSize, "", fmt.Sprintf("-X main.host=%s -X main.deviceID=%s "+
		"-X main.key=MDEy -X main.milliseconds=5", hub.HostName(), boardID), func(line net.Conn) error {
		modem.Port = line
		return modem.Serve()
	})
	for i := range kills {
		m.await(t, time.Minute, "brought its readings", func(c counts) bool { return c.acknowledged >= (i+1)*perKill })
		hub.Drop(boardID)
	}
	m.await(t, time.Minute, "brought all readings", func(c counts) bool { return c.acknowledged >= (kills+1)*perKill })
	all := m.reports()
	checkRAM(t, m, all, ramBudget)
	checkGrowth(t, all)
	checkStacks(t, m)
}

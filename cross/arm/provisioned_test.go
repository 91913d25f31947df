package arm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/fault"
)

// The board finds its hub, is moved to another one while it sends, and loses nothing that it has
// not counted as lost.
func TestProvisionedFirmwareOnACortexM3(t *testing.T) {
	tinyGo(t, "qemu-system-arm")
	watch(t)
	const readings, milliseconds = 600, 20
	first, second := newHub(t, "hub-1.example.test"), newHub(t, "hub-2.example.test")
	service, err := testbroker.NewDPS(&testbroker.DPSOptions{Polls: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := service.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := service.Link(first, second); err != nil {
		t.Fatal(err)
	}
	own, err := service.Enroll(dpsdata.Enrollment{ID: boardID, DeviceID: "thermometer-1",
		Hubs: []string{first.HostName()}})
	if err != nil {
		t.Fatal(err)
	}
	service.Inject(fault.Fault{Kind: fault.RefuseProvisioning})
	hosts := map[string]func(context.Context, string, string) (net.Conn, error){
		service.HostName(): service.Dial(testbroker.PortMQTT), first.HostName(): first.Dial(testbroker.PortMQTT),
		second.HostName(): second.Dial(testbroker.PortMQTT),
	}
	dial := func(ctx context.Context, network, host string) (net.Conn, error) {
		if f := hosts[host]; f != nil {
			return f(ctx, network, host)
		}
		return nil, errors.New("no such host: " + host)
	}
	m := boot(t, cortexM3, first, dial, stackSize, "provisioning", fmt.Sprintf("-X main.host=%s -X main.scope=%s "+
		"-X main.deviceID=%s -X main.key=%s "+
		"-X main.milliseconds=%d -X main.mode=run", service.HostName(), service.IDScope(), boardID,
		own.PrimaryKey, milliseconds))
	m.await(t, time.Minute, "brought half of its readings", func(c counts) bool { return c.acknowledged >= readings/2 })
	early := m.others(t)
	if err := service.Move(boardID, second.HostName()); err != nil {
		t.Fatal(err)
	}
	if err := first.RemoveDevice("thermometer-1"); err != nil {
		t.Fatal(err)
	}
	m.await(t, time.Minute, "brought all readings", func(c counts) bool { return c.acknowledged >= readings })
	late := m.others(t)

	all := m.reports()
	last := all[len(all)-1]
	before, _ := numbers(t, first)
	after, _ := numbers(t, second)
	have := slices.Concat(before, after)
	slices.Sort(have)
	have = slices.Compact(have)
	if len(before) < readings/2 || len(after) == 0 || len(have) < last.acknowledged {
		t.Errorf("the hubs have %d and %d readings, the board counts %+v", len(before), len(after), last)
	}
	lacks := missing(have)
	if lacks > last.lost {
		t.Errorf("%d readings are missing at the hubs, and the board gave up %d", lacks, last.lost)
	}
	said := strings.Join(m.console(), "\n")
	for _, host := range []string{first.HostName(), second.HostName()} {
		if !strings.Contains(said, "assigned to "+host+" as thermometer-1") {
			t.Errorf("the board was not assigned to %s", host)
		}
	}
	checkRAM(t, m, all, ramBudget)
	checkStacks(t, m)
	// Both while connected: a registration in between leaves nothing behind. Stacks are not compared,
	// because the collector finds them by chance.
	if late > early+1024 {
		t.Errorf("the heap without stacks grew from %d to %d bytes", early, late)
	}
	t.Logf("heap without stacks: %d bytes at the first hub, %d at the second", early, late)
	t.Logf("%+v; at the hubs %d and %d, %d given up during the move; %d requests to the service", last, len(before),
		len(after), lacks, len(service.Requests()))
}

// others returns how many bytes of the heap are no stacks: the least of some reports, because each
// report follows a collection, and some memory is allocated until it is read.
func (m *machine) others(t *testing.T) int {
	t.Helper()
	least := 0
	for range 5 {
		seen := len(m.reports())
		m.await(t, time.Minute, "sent another report", func(counts) bool { return len(m.reports()) > seen })
		other, err := m.ram.measure()
		if err != nil {
			t.Fatal(err)
		}
		if least == 0 || other < least {
			least = other
		}
	}
	return least
}

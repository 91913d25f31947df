package bench

import (
	"fmt"

	"github.com/hubline-iot/hubline/testbroker"
)

// Number of messages that a hub keeps: all if they are compared afterwards. Few during a
// measurement, which would otherwise include the growth of a log.
const (
	keepAll = 0
	keepFew = 4096
)

// newHub makes a hub with n devices on a loopback port, and the access to it.
func newHub(p *Protocol, n int, secure bool, keep int) (*testbroker.Hub, *access, error) {
	hub, err := testbroker.New(&testbroker.Options{Keep: keep})
	if err != nil {
		return nil, nil, err
	}
	a := &access{Host: hub.HostName()}
	if secure {
		a.CA = hub.CAPEM()
	}
	addr, err := p.listen(hub, secure)
	if err != nil {
		_ = hub.Close()
		return nil, nil, err
	}
	a.Addr = addr.String()
	for i := range n {
		dev, err := hub.AddDevice(fmt.Sprintf("dev-%d", i))
		if err != nil {
			_ = hub.Close()
			return nil, nil, err
		}
		a.Devices = append(a.Devices, identity{dev.ID, dev.PrimaryKey})
	}
	return hub, a, nil
}

package testbroker

import (
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
	"github.com/hubline-iot/hubline/testbroker/internal/updates"
)

// LinkUpdates makes an update service serve the devices and modules of the hub over their twins, as
// the generally available service does, and its files on the hub's HTTP ports. Agents report
// themselves in the component deviceUpdate; then they get deployments there. For deployments the
// tag ADUGroup of a twin is a property of the device. A withdrawn deployment is cancelled. Link one
// service, before devices connect.
func (h *Hub) LinkUpdates(u *Updates) {
	h.updates.Store(u.s)
	u.s.LinkedTo(h.HostName())
	c := updates.NewClassic(u.s, twinHub{h.hub})
	h.hub.WatchTwins(c.Changed)
	for _, id := range h.hub.Identities() {
		if t, err := h.hub.Twin(id.String()); err == nil { // it may have been removed meanwhile
			c.Changed(t)
		}
	}
}

// twinHub is a hub as an update service sees it.
type twinHub struct{ *hub.Hub }

func (h twinHub) Leave() { h.Wg.Done() }

func (h twinHub) Taker(name string) updates.Taker {
	return h.Hub.Taker(nil, identity.SplitIdentity(name))
}

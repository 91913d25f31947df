package hub

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/edge"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
)

var (
	// ErrNoGateway is returned by calls that need Options.Gateway.
	ErrNoGateway = errors.New("testbroker: the hub has no gateway; set Options.Gateway")
	// ErrStopped is the cause of a connection's end when [Hub.StopGateway] ended it.
	ErrStopped = errors.New("gateway was stopped")
	// ErrClients is the cause of refusing a connection beyond GatewayOptions.Clients.
	ErrClients = errors.New("gateway has the maximum number of clients")
)

// A Gateway is an edge gateway in front of the hub. It stores messages, and passes them to the hub
// and to inputs of modules. While it is off-line it answers twin requests from copies.
type Gateway struct {
	hubdata.GatewayOptions
	routes edge.Routes

	cut atomic.Bool // off-line or stopped; written under Hub.mu, read without it

	// Guarded by Hub.mu.
	offline, stopped bool
	upstream, local  line // messages to the hub, and to inputs
	counts           hubdata.Gateway
}

// newGateway returns a gateway; nil without options.
func newGateway(o *hubdata.GatewayOptions) (*Gateway, error) {
	if o == nil {
		return nil, nil
	}
	g := &Gateway{GatewayOptions: *o}
	g.TTL = cmp.Or(max(o.TTL, 0), 2*time.Hour)
	g.Clients = cmp.Or(max(o.Clients, 0), 100)
	g.KeepAlive = cmp.Or(max(o.KeepAlive, 0), 10*time.Minute)
	if err := identity.CheckHost(o.Name); err != nil {
		return nil, fmt.Errorf("testbroker: GatewayOptions.Name: %w", err)
	}
	var err error
	if g.routes, err = edge.ParseRoutes(o.Routes); err != nil {
		return nil, fmt.Errorf("testbroker: GatewayOptions.Routes: %w", err)
	}
	g.upstream, g.local = newLine(), newLine()
	return g, nil
}

// FrontName returns the name at which clients reach the hub: that of its gateway, if it has one.
func (h *Hub) FrontName() string {
	if h.Gateway != nil {
		return h.Gateway.Name
	}
	return h.Host
}

// GatewayName returns the name of the gateway; empty without [Options.Gateway].
func (h *Hub) GatewayName() string {
	if h.Gateway == nil {
		return ""
	}
	return h.Gateway.Name
}

// GatewayState returns the state of the gateway; the zero value without [Options.Gateway].
func (h *Hub) GatewayState() hubdata.Gateway {
	g := h.Gateway
	if g == nil {
		return hubdata.Gateway{}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	g.expireLocked()
	s := g.counts
	s.Name, s.Offline, s.Stopped, s.Stored = g.Name, g.offline, g.stopped, len(g.upstream.items)
	return s
}

// SetOffline cuts the gateway off from the hub, or connects it again.
func (h *Hub) SetOffline(offline bool) error {
	return h.changeGateway(func(g *Gateway) { g.offline = offline })
}

// StopGateway stops the gateway: it cuts all connections with RST and refuses new ones on all
// ports.
func (h *Hub) StopGateway() error { return h.changeGateway(func(g *Gateway) { g.stopped = true }) }

// StartGateway starts the gateway again.
func (h *Hub) StartGateway() error { return h.changeGateway(func(g *Gateway) { g.stopped = false }) }

// changeGateway changes the state of the gateway. set is called with the hub locked.
func (h *Hub) changeGateway(set func(*Gateway)) error {
	g := h.Gateway
	if g == nil {
		return ErrNoGateway
	}
	h.mu.Lock()
	offline, stopped := g.offline, g.stopped
	set(g)
	if g.offline == offline && g.stopped == stopped {
		h.mu.Unlock()
		return nil
	}
	var joined []*TwinState
	if cut := g.offline || g.stopped; cut != g.cut.Load() {
		g.cut.Store(cut)
		joined = h.cutTwinsLocked(cut)
	}
	var open []*Conn
	if g.stopped && !stopped {
		open = h.connsLocked("")
	}
	h.pumpLocked()
	what := gatewayStates[[2]bool{g.stopped, g.offline}]
	h.mu.Unlock()
	h.Event(event.Event{Kind: event.GatewayChanged, Detail: what}, nil)
	for _, c := range open {
		c.CutFor(ErrStopped)
	}
	for _, t := range joined {
		h.announce(t)
	}
	for _, q := range h.queuesOf("", Commands) {
		q.dispatch()
	}
	h.Changed.Wake()
	return nil
}

// gatewayStates describes a gateway that is stopped, or off-line.
var gatewayStates = map[[2]bool]string{
	{false, false}: "on-line", {false, true}: "off-line", {true, false}: "stopped", {true, true}: "stopped",
}

// Offline reports whether a gateway cuts the clients off from the hub: it is off-line or stopped.
func (h *Hub) Offline() bool { return h.Gateway != nil && h.Gateway.cut.Load() }

// downLocked reports whether a stopped gateway refuses connections.
func (h *Hub) downLocked() bool { return h.Gateway != nil && h.Gateway.stopped }

// Full reports whether a gateway has no room for one more client.
func (h *Hub) Full(id identity.Identity) bool {
	if h.Gateway == nil {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for c := range h.conns {
		if c.live && (id == (identity.Identity{}) || c.peer == nil || !c.peer.Present(id, c.live)) {
			n++
		}
	}
	return n >= h.Gateway.Clients
}

// resetGateway restores the state of a new gateway. There are no connections, so nothing is added
// meanwhile.
func (h *Hub) resetGateway() {
	g := h.Gateway
	if g == nil {
		return
	}
	h.mu.Lock()
	g.offline, g.stopped, g.counts = false, false, hubdata.Gateway{}
	g.cut.Store(false)
	var idle []<-chan struct{}
	for _, l := range []*line{&g.upstream, &g.local} {
		idle = append(idle, l.clear())
	}
	h.mu.Unlock()
	for _, done := range idle {
		<-done
	}
}

// moduleOf returns the module that a route names: of the gateway's device, of the sender's device,
// or of the first device that has it.
func (h *Hub) moduleOf(module string, sender identity.Identity) identity.Identity {
	if device := h.Gateway.DeviceID; device != "" {
		return identity.Identity{Device: device, Module: module}
	}
	if id := (identity.Identity{Device: sender.Device, Module: module}); h.Registered(id) {
		return id
	}
	all := h.Identities()
	if i := slices.IndexFunc(all, func(id identity.Identity) bool { return id.Module == module }); i >= 0 {
		return all[i]
	}
	return identity.Identity{Device: sender.Device, Module: module}
}

package amqpfront

import (
	"fmt"
	"net"
	"sync"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/amqp"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
)

// shortFrame is an AMQP frame shorter than the minimum.
var shortFrame = []byte{0, 0, 0, 4, 2, 0, 0, 0}

// A Front serves AMQP 1.0.
type Front struct {
	hub            *hub.Hub
	twins, methods facility

	mu          sync.Mutex                    // guards the fields below, and what other types say it guards
	methodPairs map[identity.Identity]*pair   // the newest pair of each identity
	listening   map[identity.Identity][]*pair // pairs that receive changes of desired properties
}

var _ hub.Front = (*Front)(nil)

func New(h *hub.Hub) *Front {
	f := &Front{hub: h, methodPairs: make(map[identity.Identity]*pair), listening: make(map[identity.Identity][]*pair)}
	f.twins, f.methods = twinLinks{f}, methodLinks{f}
	return f
}

func (f *Front) Below(c *hub.Conn) (net.Conn, []string) { return c.Raw, nil }

// MethodTarget returns the newest pair of method links if both are attached.
func (f *Front) MethodTarget(id identity.Identity, _ string) hub.MethodTarget {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.methodPairs[id]; p != nil && p.whole {
		return methodTarget{p}
	}
	return nil
}

// DesiredListeners returns every pair of links that has subscribed.
func (f *Front) DesiredListeners(id identity.Identity) []hub.DesiredListener {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []hub.DesiredListener
	for _, p := range f.listening[id] {
		all = append(all, desiredListener{p})
	}
	return all
}

// Forget does nothing: a session over AMQP ends with its connection.
func (f *Front) Forget(string) {}

func (f *Front) Shutdown() error { return nil }

// Serve serves a connection from the first byte of AMQP to the end.
func (f *Front) Serve(c *hub.Conn) (hubdata.Protocol, error) {
	h := f.hub
	a := &conn{
		hub: h, front: f, c: c, who: make(map[identity.Identity]struct{}), grants: make(map[grantKey]*grant),
		links: make(map[*hubLink]struct{}), pairs: make(map[pairKey]*pair),
	}
	idle := h.AMQP.IdleTimeout
	a.engine = amqp.NewConn(c, amqp.Config{
		ContainerID: fmt.Sprintf("%s-%d", h.Host, c.Number), MaxFrameSize: h.AMQP.MaxFrameSize,
		ChannelMax: h.AMQP.ChannelMax, HandleMax: h.AMQP.HandleMax, SessionWindow: h.AMQP.SessionWindow, IdleTimeout: idle,
		OmitNextIncomingID: h.AMQP.OmitNextIncomingID,
	}, a)
	c.SetPeer(a)
	err := a.engine.Serve()
	if err == nil {
		err = hub.ErrDisconnect
	}
	c.CloseGracefully(err)
	c.Drain()
	return 0, err
}

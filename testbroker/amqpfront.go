package testbroker

import (
	"fmt"
	"net"

	"github.com/hubline-iot/hubline/testbroker/internal/amqp"
)

// shortFrame is a frame of AMQP that is too short to be one.
var shortFrame = []byte{0, 0, 0, 4, 2, 0, 0, 0}

// An amqpFront speaks AMQP 1.0.
type amqpFront struct {
	hub            *Hub
	twins, methods amqpFacility

	// Guarded by Hub.mu.
	methodPairs map[identity]*amqpPair   // the newest of each identity
	listening   map[identity][]*amqpPair // those that are told of changes of desired properties
}

var _ front = (*amqpFront)(nil)

func newAMQPFront(h *Hub) *amqpFront {
	f := &amqpFront{hub: h, methodPairs: make(map[identity]*amqpPair), listening: make(map[identity][]*amqpPair)}
	f.twins, f.methods = twinLinks{f}, methodLinks{f}
	return f
}

func (f *amqpFront) below(c *conn) (net.Conn, []string) { return c.raw, nil }

// methodTargetLocked returns the newest pair of links for methods if both are attached.
func (f *amqpFront) methodTargetLocked(id identity, _ string) methodTarget {
	if p := f.methodPairs[id]; p != nil && p.whole {
		return amqpTarget{p}
	}
	return nil
}

// desiredListenersLocked returns every pair of links that asked.
func (f *amqpFront) desiredListenersLocked(id identity) []desiredListener {
	var all []desiredListener
	for _, p := range f.listening[id] {
		all = append(all, amqpListener{p})
	}
	return all
}

// forgetLocked does nothing: a client over AMQP has no session that outlives its connection.
func (f *amqpFront) forgetLocked(string) {}

func (f *amqpFront) close() error { return nil }

// serve is the life of a connection from the first byte of AMQP on.
func (f *amqpFront) serve(c *conn) (Protocol, error) {
	h := f.hub
	a := &amqpConn{
		hub: h, front: f, c: c, who: make(map[identity]struct{}), grants: make(map[identity]*grant),
		links: make(map[*amqpLink]struct{}), pairs: make(map[pairKey]*amqpPair),
	}
	idle := h.amqp.IdleTimeout
	a.engine = amqp.NewConn(c, amqp.Config{
		ContainerID: fmt.Sprintf("%s-%d", h.host, c.number), MaxFrameSize: h.amqp.MaxFrameSize,
		ChannelMax: h.amqp.ChannelMax, HandleMax: h.amqp.HandleMax, SessionWindow: h.amqp.SessionWindow, IdleTimeout: idle,
		OmitNextIncomingID: h.amqp.OmitNextIncomingID,
	}, a)
	h.mu.Lock()
	c.peer = a
	h.mu.Unlock()
	err := a.engine.Serve()
	if err == nil {
		err = ErrParted
	}
	c.farewell(err)
	c.drain()
	return 0, err
}

// Package dpsengine carries registrations with the provisioning service over MQTT 3.1.1, for
// boards. It needs a connection and the codec of package engine, and links no sockets, TLS or
// reflection.
//
//	client, err := provisioning.New(id, dpsengine.New(dial, nil), nil)
//
// A session is a CONNECT, a SUBSCRIBE, and then one PUBLISH with QoS 1 for each request. The answer
// counts, not its PUBACK: the service may send them in either order. Packets that are not answers
// to the request in flight are ignored.
package dpsengine

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/hubline-iot/hubline/internal/callback"
	"github.com/hubline-iot/hubline/internal/lifetime"
	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/engine"
)

// Options are the settings of a Carrier. The zero value and nil mean all defaults.
type Options struct {
	// ProductInfo is appended to the client name that the service sees. Empty: nothing.
	ProductInfo string
}

// Carrier is a provisioning.Carrier over MQTT. Several clients may share it if they may share dial.
type Carrier struct {
	dial  engine.Dial
	agent string
	ids   atomic.Uint32 // the latest id of a packet
}

var _ provisioning.Carrier = (*Carrier)(nil)

// New returns a Carrier whose connections come from dial, which gets the host of the service in the
// credentials.
func New(dial engine.Dial, o *Options) *Carrier {
	c := &Carrier{dial: dial, agent: "Hubline"}
	if o != nil && o.ProductInfo != "" {
		c.agent += " " + o.ProductInfo
	}
	return c
}

const (
	proto = "mqtt"
	// minKeepAlive and maxKeepAlive, the service's maximum, are in seconds. A session pings nobody:
	// package provisioning keeps none without requests for as long.
	minKeepAlive = 60
	maxKeepAlive = 1177
	// maxInfo bounds the client name.
	maxInfo = 4096
)

var (
	errSlow   = errors.New("no answer in time")
	errClosed = errors.New("the service closed the connection")
)

// Open connects, sends CONNECT and subscribes to answers.
func (c *Carrier) Open(ctx context.Context, l *provisioning.Login) (provisioning.Session, error) {
	if len(c.agent) > maxInfo {
		return nil, failed(transport.Invalid, errors.New("options: ProductInfo has more than "+strconv.Itoa(maxInfo)+
			" bytes"))
	}
	limited, end := lifetime.WithinTime(ctx, l.Timeout)
	s, err := c.open(ctx, limited, l)
	end()
	if err != nil {
		return nil, err
	}
	return s, nil
}

// open does the work of Open. limited is ctx with the time limit.
func (c *Carrier) open(ctx, limited context.Context, l *provisioning.Login) (*session, error) {
	s := &session{timeout: l.Timeout, ids: &c.ids}
	err := callback.Call("the dial function of dpsengine.New", func() (err error) {
		s.conn, err = c.dial(limited, l.Credentials())
		return err
	})
	if err != nil {
		return nil, cause(ctx, limited, err)
	}
	if s.conn == nil {
		return nil, failed(transport.Invalid, errors.New("the dial function of dpsengine.New returned no connection"))
	}
	if err := s.guarded(ctx, limited, func() error { return s.begin(c.connect(l)) }); err != nil {
		s.cut()
		return nil, err
	}
	return s, nil
}

// connect returns the fields of CONNECT.
func (c *Carrier) connect(l *provisioning.Login) *mqttwire.Greeting {
	return &mqttwire.Greeting{ClientID: l.RegistrationID, UserName: userName(l, c.agent),
		Password: l.Token.Text.Reveal(), CleanSession: true, KeepAlive: keepAlive(l.Timeout)}
}

// keepAlive returns the keep-alive in seconds. The service may take the whole timeout for an
// answer, and the session is silent meanwhile.
func keepAlive(timeout time.Duration) uint16 {
	return uint16(max(minKeepAlive, min(timeout/time.Second, maxKeepAlive)))
}

// failed returns the error of a connection.
func failed(kind transport.Kind, cause error) *transport.Error {
	return &transport.Error{Kind: kind, Scope: transport.ScopeConnection, Op: transport.OpRegister, Proto: proto,
		Err: cause}
}

// cause returns the error of a connection that ends with limited, which is ctx with a time limit.
func cause(ctx, limited context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return lifetime.Cause(ctx)
	case limited.Err() != nil:
		return failed(transport.Timeout, errSlow)
	}
	if e := transport.Find(err); e != nil {
		kept := *e
		kept.Scope, kept.Op, kept.Proto = transport.ScopeConnection, transport.OpRegister, proto
		return &kept
	}
	if t, ok := err.(interface{ Timeout() bool }); ok && t.Timeout() {
		return failed(transport.Timeout, err)
	}
	return failed(transport.Network, err)
}

// reasonTime is how long Open waits for the service's reason when CONNECT could not be written.
const reasonTime = 250 * time.Millisecond

package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hubline-iot/hubline/transport/netopt"
)

// faults cut the connections of devices at random, as bad links do, whatever hub they are at.
type faults struct {
	every time.Duration // mean time until a connection is cut; 0: no cuts
	away  time.Duration // how long a device's network is away after a cut
	ended atomic.Bool   // all networks stay: what was accepted is flushed
	cuts  atomic.Int64  // how many there were
}

// errAway is the failure of an attempt while a device's network is away.
var errAway = errors.New("the device's network is away (flag -away)")

// network returns the network settings of one device, or of devices that share a connection.
func (f *faults) network(of netopt.Options) netopt.Options {
	if f.every == 0 {
		return of
	}
	if of.Dial == nil {
		of.Dial = netopt.Direct
	}
	l := &link{faults: f, dial: of.Dial}
	of.Dial = l.connect
	return of
}

// link is the network of a device.
type link struct {
	faults *faults
	dial   netopt.DialFunc
	mu     sync.Mutex
	back   time.Time // guarded by mu: attempts before fail
}

// connect makes a connection and plans its cut.
func (l *link) connect(ctx context.Context, network, addr string) (net.Conn, error) {
	l.mu.Lock()
	away := time.Now().Before(l.back)
	l.mu.Unlock()
	if away && !l.faults.ended.Load() {
		return nil, errAway
	}
	conn, err := l.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	in := time.Duration(rand.ExpFloat64() * float64(l.faults.every))
	return &cutConn{conn, time.AfterFunc(in, func() { l.cut(conn) })}, nil
}

// cut ends a connection without a goodbye and takes the network away.
func (l *link) cut(conn net.Conn) {
	if l.faults.ended.Load() {
		return
	}
	l.faults.cuts.Add(1)
	l.mu.Lock()
	l.back = time.Now().Add(l.faults.away)
	l.mu.Unlock()
	if c, ok := conn.(*net.TCPConn); ok {
		c.SetLinger(0) // the hub sees a reset
	}
	conn.Close()
}

// cutConn is a connection with the timer of its cut.
type cutConn struct {
	net.Conn
	planned *time.Timer
}

// Close also takes back the cut.
func (c *cutConn) Close() error {
	c.planned.Stop()
	return c.Conn.Close()
}

// NetConn returns the connection below, whose socket the transports look for.
func (c *cutConn) NetConn() net.Conn { return c.Conn }

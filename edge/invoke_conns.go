package edge

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/internal/hubhttp"
)

const (
	// maxIdleConns is how many connections are kept for later calls.
	maxIdleConns = 4
	// idleConnLimit is how long: less than the two minutes after which edgeHub closes them, so that a
	// call is not sent on a connection that is being closed.
	idleConnLimit = 30 * time.Second
	// hangUpLimit is how long the good order of a close may take.
	hangUpLimit = 500 * time.Millisecond
)

// idleConns are the connections of an Invoker that no call uses.
type idleConns struct {
	dial func(context.Context) (*hubhttp.Conn, error)

	mu     sync.Mutex // not held over I/O
	idle   []idleConn // the latest used is the last
	closed bool
	ending sync.WaitGroup // timers that have fired; grows under mu while closed is false
}

type idleConn struct {
	conn  *hubhttp.Conn
	timer *time.Timer
}

// get returns an idle connection, or dials one.
func (p *idleConns) get(ctx context.Context) (*hubhttp.Conn, error) {
	for {
		c := p.pop()
		if c == nil {
			return p.dial(ctx)
		}
		select {
		case <-c.Gone():
			hangUp(c)
		default:
			return c, nil
		}
	}
}

// pop returns nil if there is no idle connection.
func (p *idleConns) pop() *hubhttp.Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := len(p.idle) - 1
	if last < 0 {
		return nil
	}
	c := p.idle[last]
	p.idle = slices.Delete(p.idle, last, last+1)
	c.timer.Stop() // if it has fired, expire does not find the connection
	return c.conn
}

// put keeps a connection for a later call.
func (p *idleConns) put(c *hubhttp.Conn) {
	if !p.keep(c) {
		hangUp(c)
	}
}

func (p *idleConns) keep(c *hubhttp.Conn) bool {
	select {
	case <-c.Gone():
		return false
	default:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.idle) == maxIdleConns {
		return false
	}
	p.idle = append(p.idle, idleConn{c, time.AfterFunc(idleConnLimit, func() { p.expire(c) })})
	return true
}

// expire closes a connection that was idle for too long. It runs on the timer's goroutine.
func (p *idleConns) expire(c *hubhttp.Conn) {
	p.mu.Lock()
	i := slices.IndexFunc(p.idle, func(i idleConn) bool { return i.conn == c })
	if i >= 0 {
		p.idle = slices.Delete(p.idle, i, i+1)
		p.ending.Add(1) // close empties the list before it waits
	}
	p.mu.Unlock()
	if i >= 0 {
		hangUp(c)
		p.ending.Done()
	}
}

// close closes all connections and waits until no goroutine uses them.
func (p *idleConns) close() {
	p.mu.Lock()
	p.closed = true
	all := p.idle
	p.idle = nil
	p.mu.Unlock()
	for _, c := range all {
		c.timer.Stop()
		p.ending.Go(func() { hangUp(c.conn) })
	}
	p.ending.Wait()
}

// hangUp closes a connection in good order, if that does not take too long.
func hangUp(c *hubhttp.Conn) {
	defer time.AfterFunc(hangUpLimit, c.Abort).Stop()
	c.Close()
}

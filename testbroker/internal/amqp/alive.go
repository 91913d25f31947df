package amqp

import (
	"time"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
)

// watch starts two timers: one closes the connection of a silent client, the other sends
// keep-alives.
func (c *Conn) watch(theirs time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		return
	}
	c.heard = time.Now()
	if c.cfg.IdleTimeout > 0 {
		c.idle = time.AfterFunc(c.cfg.IdleTimeout, c.timer(c.silentLocked))
	}
	if theirs > 0 {
		c.beat = theirs / 2
		c.alive = time.AfterFunc(c.beat, c.timer(c.beatLocked))
	}
}

// timer wraps do for use by a timer: Serve waits for it, and it does nothing after the end.
func (c *Conn) timer(do func() (then func())) func() {
	return func() {
		c.mu.Lock()
		if c.dead {
			c.mu.Unlock()
			return
		}
		c.timers.Add(1)
		then := do()
		c.mu.Unlock()
		if then != nil {
			then()
		}
		c.timers.Done()
	}
}

func (c *Conn) silentLocked() func() {
	if left := c.cfg.IdleTimeout - time.Since(c.heard); left > 0 || c.busy {
		c.idle.Reset(max(left, time.Millisecond))
		return nil
	}
	c.closeLocked(wire.Errorf(wire.ResourceLimitExceeded, "nothing was heard for %s", c.cfg.IdleTimeout))
	return c.handler.Idle
}

func (c *Conn) beatLocked() func() {
	if left := c.beat - time.Since(c.wrote); left > 0 {
		c.alive.Reset(left)
		return nil
	}
	c.writeLocked(0, nil, nil)
	c.flushLocked()
	c.alive.Reset(c.beat)
	return nil
}

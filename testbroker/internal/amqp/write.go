package amqp

import (
	"time"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
)

// say appends a frame to the output.
func (c *Conn) say(channel uint16, p wire.Performative, payload []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writeLocked(channel, p, payload)
}

// writeLocked is say with the lock held. A handler's error or attach may be too long for the client
// or impossible to encode; then the optional parts are left out.
func (c *Conn) writeLocked(channel uint16, p wire.Performative, payload []byte) {
	if c.dead {
		return
	}
	fits := func(p wire.Performative) bool {
		out, err := wire.AppendFrame(c.out, channel, p, payload)
		if err != nil || len(out)-len(c.out) > int(min(c.frame, maxFrame)) {
			return false
		}
		c.out = out
		return true
	}
	if !fits(p) && !fits(without(p, false)) {
		fits(without(p, true))
	}
}

// without returns a performative without its optional parts: properties, and the description of an
// error, or with all the whole error.
func without(p wire.Performative, all bool) wire.Performative {
	bare := func(e *wire.Error) *wire.Error {
		if e == nil || all {
			return nil
		}
		return &wire.Error{Condition: e.Condition}
	}
	switch p := p.(type) {
	case *wire.Attach:
		a := *p
		a.Properties = nil
		return &a
	case *wire.Detach:
		return &wire.Detach{Handle: p.Handle, Closed: p.Closed, Error: bare(p.Error)}
	case *wire.End:
		return &wire.End{Error: bare(p.Error)}
	case *wire.Close:
		return &wire.Close{Error: bare(p.Error)}
	case *wire.Disposition:
		if r, ok := p.State.(*wire.Rejected); ok {
			d := *p
			d.State = &wire.Rejected{Error: bare(r.Error)}
			return &d
		}
	}
	return p
}

// flushLocked writes the output. Windows and credit are renewed only here, so that the client
// learns of each renewal at once.
func (c *Conn) flushLocked() {
	for _, s := range c.toTell {
		s.renewLocked()
	}
	c.tellLocked()
	c.toTell = c.toTell[:0]
	if len(c.out) == 0 {
		return
	}
	c.net.Write(c.out) // a reader sees the error
	c.wrote = time.Now()
	if n := cap(c.out); n > keepBuffer || n > keepIdle && len(c.out) <= keepIdle {
		c.out = nil // free the memory of a burst
	}
	c.out = c.out[:0]
}

// tellLocked appends the collected dispositions.
func (c *Conn) tellLocked() {
	for _, s := range c.toTell {
		s.tellLocked()
	}
}

// doneLocked ends a method that any goroutine may call. It flushes unless Serve will.
func (c *Conn) doneLocked() {
	if !c.busy {
		c.flushLocked()
	}
}

// Flush writes the output.
func (c *Conn) Flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flushLocked()
}

// Close sends a close, with an error unless it is nil, and nothing after it. Before an open it
// sends nothing. The caller closes the stream.
func (c *Conn) Close(e *wire.Error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		return
	}
	c.closeLocked(e)
}

func (c *Conn) closeLocked(e *wire.Error) {
	if c.said {
		c.tellLocked()
		c.writeLocked(0, &wire.Close{Error: e}, nil)
	}
	c.flushLocked()
	c.dead = true
}

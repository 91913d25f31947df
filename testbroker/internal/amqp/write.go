package amqp

import (
	"time"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
)

// say appends a frame to what is to be written.
func (c *Conn) say(channel uint16, p wire.Performative, payload []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writeLocked(channel, p, payload)
}

// writeLocked is say. What a handler has put into an error or an attach may be too long for the
// client, or impossible to encode; then that is left out.
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

// without returns a performative without what is not needed: properties, the description of an
// error, or all of it.
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

// flushLocked writes out what is to be said. Only here windows and credit are renewed, so that none
// counts of which the client cannot know.
func (c *Conn) flushLocked() {
	for _, s := range c.toTell {
		s.renewLocked()
	}
	c.tellLocked()
	c.toTell = c.toTell[:0]
	if len(c.out) == 0 {
		return
	}
	c.net.Write(c.out) // who reads learns of an error
	c.wrote = time.Now()
	if c.out = c.out[:0]; cap(c.out) > keepBuffer {
		c.out = nil
	}
}

// tellLocked appends the dispositions that were put together.
func (c *Conn) tellLocked() {
	for _, s := range c.toTell {
		s.tellLocked()
	}
}

// doneLocked ends a method that may be called from anywhere.
func (c *Conn) doneLocked() {
	if !c.busy {
		c.flushLocked()
	}
}

// Flush writes out everything that was said so far.
func (c *Conn) Flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flushLocked()
}

// Close sends a close, with an error unless it is nil, and nothing after it. What becomes of the
// stream is up to the caller. Without an open nothing is sent.
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

package device

import "github.com/hubline-iot/hubline/transport"

// sink is the client as its sessions see it. It holds functions: methods of a type that refers to
// Client would make a board's linker keep the type descriptions of all of Client, which are 6 KB.
type sink struct {
	done    func(tag uint16, err error)
	reply   func(id uint32, r transport.Reply)
	deliver func(d *transport.Delivery) bool
}

func (s *sink) Done(tag uint16, err error) { s.done(tag, err) }

func (s *sink) Reply(id uint32, r transport.Reply) { s.reply(id, r) }

func (s *sink) Deliver(d *transport.Delivery) bool { return s.deliver(d) }

func (c *Client) replied(id uint32, r transport.Reply) {
	switch id {
	case subscribeID:
		c.events <- event{subscribed: true, err: r.Err}
		return
	case renewID:
		c.events <- event{renewed: &r.Expires, err: r.Err}
		return
	}
	if x := c.features(); x != nil {
		x.reply(id, r)
	}
}

func (c *Client) deliver(d *transport.Delivery) bool {
	x := c.features()
	return x != nil && x.deliver(d)
}

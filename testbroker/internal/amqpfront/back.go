package amqpfront

import (
	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/testbroker/internal/amqp"
)

// A backLink is a link of a back end. The connection's goroutine calls its methods, with no lock
// held, except as stated.
type backLink interface {
	// resource returns the path for which a policy's token must give the right. It is called with
	// Front.mu held.
	resource() string
	// permit checks whether the client may attach the link. A *wire.Error refuses it.
	permit() error
	// attached is called when the link was accepted, by any goroutine.
	attached()
	// credit is called when the client has given credit.
	credit()
	// message handles a message of the client, as amqp.Handler.Message.
	message(d amqp.Delivery) error
	// settled handles the client's state of a message, as amqp.Handler.Settled.
	settled(tag []byte, state wire.DeliveryState) wire.DeliveryState
	// detached is called when the link has ended, by any goroutine: perhaps more than once, and
	// perhaps without a call of attached.
	detached()
}

// backEnds open the links of back ends: each returns nil for an address that is not its own, and
// otherwise sets the link's kind. An error refuses the link.
var backEnds = []func(l *hubLink, path string) (backLink, error){serviceLink, eventsLink}

// classifyBack is classify for the links of back ends; false if the address is of none.
func (l *hubLink) classifyBack(path string) (bool, error) {
	for _, open := range backEnds {
		back, err := open(l, path)
		if back != nil || err != nil {
			l.back = back
			return true, err
		}
	}
	return false, nil
}

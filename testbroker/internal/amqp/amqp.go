// Package amqp is the server side of AMQP 1.0 [OASIS AMQP 1.0]: connections with SASL, sessions,
// links, flow control and settlement. A [Handler] decides the meaning of messages, the rights to
// attach, and the addresses.
//
// The server is strict: it answers a violation with the condition that the standard defines, on the
// smallest affected unit: a link, a session or the connection.
package amqp

import (
	"errors"
	"time"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
)

// Config are the settings of a connection. All but HandshakeFrame and IdleTimeout must be set.
type Config struct {
	// ContainerID is the server's container id.
	ContainerID string
	// MaxFrameSize is the largest accepted frame, at least 512 bytes.
	MaxFrameSize uint32
	// HandshakeFrame is the largest accepted frame before the open is answered. Zero means the limit
	// of the standard, 512 bytes, which some clients exceed with a long user name and token.
	HandshakeFrame uint32
	// ChannelMax is the highest channel number of a connection, HandleMax the highest link handle of a
	// session.
	ChannelMax uint16
	HandleMax  uint32
	// SessionWindow is how many transfer frames a client may send ahead in a session.
	SessionWindow uint32
	// IdleTimeout is how long a client may send no complete frame before the connection is closed.
	// Half of it is announced, as the standard recommends. Zero means no limit.
	IdleTimeout time.Duration
	// OmitNextIncomingID omits next-incoming-id from each flow, which violates the standard.
	OmitNextIncomingID bool
}

var (
	// ErrLater is returned by Handler.Attach when [Link.Accept] or [Link.Refuse] will answer the
	// attach, at any time.
	ErrLater = errors.New("amqp: the attach is answered later")
	// ErrIdle is the result of Serve when the client was silent for too long.
	ErrIdle = errors.New("amqp: client was silent for too long")
)

// A Handler decides. The goroutine in [Conn.Serve] calls its methods, except Idle, one at a time
// and with no lock held, so they may call everything in this package. An error other than a
// *wire.Error ends the connection without a close.
type Handler interface {
	// Mechanisms returns the offered SASL mechanisms.
	Mechanisms() []wire.Symbol
	// Authenticate checks the response for the chosen mechanism and returns the outcome code.
	Authenticate(mechanism wire.Symbol, response []byte) uint8
	// Open checks a connection before the open is answered. A *wire.Error closes it.
	Open(o *wire.Open) error
	// Opened is called after the answer was sent.
	Opened() error
	// Attach checks a link. A *wire.Error refuses it. To accept it, Attach may modify the link's
	// Answer.
	Attach(l *Link) error
	// Attached is called after a link was accepted.
	Attached(l *Link)
	// Message handles a message received on a link. Unless it is settled, [Link.Settle] must be called
	// eventually.
	Message(l *Link, d Delivery) error
	// Credit is called when a client has given credit to a link on which the server sends, or when
	// there is room again to use that credit.
	Credit(l *Link)
	// Settled is called with the client's state of a message sent unsettled. The state may be nil. The
	// result is the final state for a client that expects one.
	Settled(l *Link, tag []byte, state wire.DeliveryState) wire.DeliveryState
	// Detached is called when the client or the connection has ended an attached link. It is not
	// called for a link ended by [Link.Detach] or [Session.End].
	Detached(l *Link)
	// Idle is called from another goroutine when the client was silent for too long. A close was sent.
	Idle()
}

// A Challenger is a Handler with SASL mechanisms of more than one step.
type Challenger interface {
	// Challenge is called instead of Handler.Authenticate, with each response. It returns the next
	// challenge, or nil and the outcome code.
	Challenge(mechanism wire.Symbol, response []byte) (challenge []byte, code uint8)
}

// Delivery is a received message.
type Delivery struct {
	ID      uint32
	Tag     []byte
	Format  uint32
	Settled bool
	Payload []byte // owned by the handler
}

// Outgoing is a message to send.
type Outgoing struct {
	Tag     []byte // 1 to 32 bytes
	Settled bool
	Payload []byte // not retained
}

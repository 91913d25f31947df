// Package amqp is the server's side of AMQP 1.0 [OASIS AMQP 1.0]: connections with SASL, sessions,
// links, flow control and settlement. What messages mean, who may attach and what addresses there
// are, it leaves to a [Handler].
//
// It is strict: what breaks the standard is answered with the condition that the standard has for
// it, on the smallest thing that is broken: a link, a session or the connection.
package amqp

import (
	"errors"
	"time"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
)

// Config are the settings of a connection. All but IdleTimeout must be set.
type Config struct {
	// ContainerID is the server's name.
	ContainerID string
	// MaxFrameSize is the largest frame that is taken, 512 at least.
	MaxFrameSize uint32
	// ChannelMax and HandleMax are the highest numbers of sessions and of links of a session.
	ChannelMax uint16
	HandleMax  uint32
	// SessionWindow is how many transfer frames a session may be sent ahead.
	SessionWindow uint32
	// IdleTimeout is how long a client may send no frame before the connection is closed; parts of one
	// do not count. Half of it is announced, as the standard recommends. Zero means no limit.
	IdleTimeout time.Duration
	// OmitNextIncomingID leaves that field out of each flow, which the standard forbids.
	OmitNextIncomingID bool
}

var (
	// ErrLater is returned by Handler.Attach when the answer is up to [Link.Accept] or [Link.Refuse],
	// at any time.
	ErrLater = errors.New("amqp: the attach is answered later")
	// ErrIdle is how a connection ends whose client was silent for too long.
	ErrIdle = errors.New("amqp: client was silent for too long")
)

// A Handler decides. Its methods are called from the goroutine in [Conn.Serve], never two at once
// and with no lock held, so they may call everything here. An error other than a *wire.Error ends
// the connection without a word.
type Handler interface {
	// Mechanisms returns those that are offered.
	Mechanisms() []wire.Symbol
	// Authenticate judges a choice of mechanism and returns the code of the outcome.
	Authenticate(mechanism wire.Symbol, response []byte) uint8
	// Open judges a connection before it is answered. A *wire.Error closes it.
	Open(o *wire.Open) error
	// Opened is told that the answer was sent.
	Opened() error
	// Attach judges a link. A *wire.Error refuses it. To accept it, Attach sets what it likes in the
	// link's Answer.
	Attach(l *Link) error
	// Attached is told that an attach was answered in the affirmative.
	Attached(l *Link)
	// Message takes a message that came over a link. Unless it is settled, somebody must call
	// [Link.Settle] at some time.
	Message(l *Link, d Delivery) error
	// Credit is told that a client has given credit to a link that the server sends on, or that there
	// is room again for what that credit allows.
	Credit(l *Link)
	// Settled is told what the client says of a message that was sent unsettled. The state may be nil.
	// What is returned is the final state, for a client that wants to be told.
	Settled(l *Link, tag []byte, state wire.DeliveryState) wire.DeliveryState
	// Detached is told that a link has ended that was attached, by whatever the client or the
	// connection did. It is not told of a link that [Link.Detach] or [Session.End] ended.
	Detached(l *Link)
	// Idle is told that the client was silent for too long, from another goroutine. A close was sent.
	Idle()
}

// Delivery is a message that came.
type Delivery struct {
	ID      uint32
	Tag     []byte
	Format  uint32
	Settled bool
	Payload []byte // the handler's own
}

// Outgoing is a message to be sent.
type Outgoing struct {
	Tag     []byte // 1 to 32 bytes
	Settled bool
	Payload []byte // not kept
}

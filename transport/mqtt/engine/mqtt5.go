package engine

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/internal/lifetime"
	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
)

// MQTT5Options are the settings of MQTT 5. The zero value and nil mean all defaults.
type MQTT5Options struct {
	// SessionExpiry is how long the broker keeps the session of a device that is away: its
	// subscriptions and the messages for it. Whole seconds; 2^32-1 s (136 years) and more mean for
	// ever. A broker may shorten it. 0: a day, or with Options.CleanSession no longer than the
	// connection.
	SessionExpiry time.Duration
	// ReceiveMaximum is the most messages of the broker that wait for their verdict, up to 65535. 0:
	// transport.Config.Queue, which device sets to Options.Inbox.
	ReceiveMaximum int
	// MaximumPacketSize is the largest packet that the broker may send, 64 bytes at least. A larger
	// one ends the session. 0: 1 MB, or Options.ReadBuffer.
	MaximumPacketSize int
	// TopicAliases replaces the topics of messages by numbers, after the first message on each, if the
	// broker allows that: 3 bytes instead of the topic in each message. Up to 16 topics have aliases.
	TopicAliases bool
	// WillDelay is how long the broker waits for a new connection before it publishes Options.Will, in
	// whole seconds.
	WillDelay time.Duration
	// NoLocal keeps messages away that the device published itself to a topic that it subscribes to.
	NoLocal bool
	// RetainHandling says whether a subscription brings the retained messages.
	RetainHandling RetainHandling
	// ExactlyOnce requests messages with QoS 2, so that a message with QoS 2 that the client has
	// accepted does not come again in the same session. It costs a round trip and a half for each.
	ExactlyOnce bool
	// AssignClientID lets the broker choose the client id, which the Transport keeps for its later
	// connections.
	AssignClientID bool
	// Auth is enhanced authentication. Nil: user name and password.
	Auth *Auth
	// UserProperties are sent in CONNECT.
	UserProperties []transport.Property
}

// RetainHandling says whether a subscription brings the retained messages of its topics.
type RetainHandling uint8

// What a subscription brings.
const (
	// RetainedAlways: each subscription brings them, that is each connection.
	RetainedAlways RetainHandling = iota
	// RetainedFirst: only the first subscription of a session brings them.
	RetainedFirst
	// RetainedNever: no subscription brings them.
	RetainedNever
)

// MQTT5 returns a value for Options.Protocol. The options are copied. Options.Dialect must be that
// of a broker, such as a *Topics, because IoT Hub speaks MQTT 3.1.1.
//
// A Transport keeps what belongs to the broker's session: which messages are in flight, which
// messages with QoS 2 it has received, and an assigned client id. A session of the broker from
// before the program started is taken over as it is.
//
// Messages are never sent with QoS 2: the message id makes a repetition recognizable.
func MQTT5(o *MQTT5Options) Protocol {
	var opt MQTT5Options
	if o != nil {
		opt = *o
	}
	return protocol5{&opt}
}

type protocol5 struct{ opt *MQTT5Options }

func (p protocol5) version(all *Options) (version, error) {
	v := &five{opt: *p.opt, all: all}
	if err := v.resolve(); err != nil {
		return nil, err
	}
	return v, nil
}

// five is MQTT 5 for one Transport.
type five struct {
	opt MQTT5Options
	all *Options

	// Kept between connections. The tags are guarded by session.mu while there is one.
	clientID string        // that the broker assigned
	received mqttwire.Tags // ids of messages with QoS 2 whose PUBREC was sent and that are not complete
	// generation counts the sessions of the broker; set by greeted.
	generation uint16

	// Of a connection: set by begin and greeted, then constant.
	ctx            context.Context // of the Dial
	life           *lifetime.Context
	over           chan struct{} // closed when the token of the write side is not given back
	window         int           // transport.Config.Window
	receiveMaximum int
	peer           limits
	judge          dialect.Judge // nil: codes mean what they mean elsewhere
	ownWindow      int           // most messages of an Active dialect that wait for their PUBACK
	authExpires    time.Time

	// Owned by the holder of the write side's token.
	block   []byte    // properties of the message that is prepared
	held    []request // of an Active dialect that wait for a PUBACK, also on the next connection
	aliases []string  // the topic of alias 1 and so on
	alias   uint16    // of the message that is prepared, 0 for none

	ref [onceRef]byte // guarded by session.backlog.Passing

	// Guarded by session.mu.
	unsettled   mqttwire.Tags // ids of messages without a verdict
	waiting     int           // number of unsettled
	pending     int           // number of those in received that came on this connection
	declined    int           // those of them that were released
	ending      *time.Timer   // ends the connection when all of them were
	exceeded    bool          // the broker sent more than receiveMaximum
	control     []byte        // packets that answer the broker
	wanted      bool          // an Active dialect may have something to publish
	own         []request     // its messages that wait for their PUBACK
	controlling bool          // a goroutine writes them
	wake        *time.Timer   // when the dialect may have something next
	auth        authState

	helpers sync.WaitGroup
}

// limits are what a broker's CONNACK allows.
type limits struct {
	maxPacket                      int
	aliases                        int
	noRetain, noWildcard, noShared bool
	onlyQoS0                       bool
}

const (
	maxExpiry     = 1<<32 - 1
	defaultExpiry = 24 * 60 * 60
	// maxAliases bounds the topics with aliases, which are searched in turn.
	maxAliases = 16
	minPacket  = 64
)

// resolve sets the defaults, or returns an *Error of Kind Invalid about the first wrong field.
func (v *five) resolve() error {
	o, all := &v.opt, v.all
	if o.MaximumPacketSize == 0 {
		if o.MaximumPacketSize = all.ReadBuffer; o.MaximumPacketSize == 0 {
			o.MaximumPacketSize = maxIncoming
		}
	}
	switch {
	case o.SessionExpiry < 0:
		return mqttwire.Invalid("options: SessionExpiry is negative; give a positive duration, or 0 for a day")
	case o.ReceiveMaximum < 0 || o.ReceiveMaximum > 65535:
		return mqttwire.Invalid("options: ReceiveMaximum is " + strconv.Itoa(o.ReceiveMaximum) + "; give 1 to 65535, or 0")
	case o.MaximumPacketSize < minPacket:
		return mqttwire.Invalid("options: MaximumPacketSize is " + strconv.Itoa(o.MaximumPacketSize) +
			"; give 64 bytes at least, or 0")
	case o.MaximumPacketSize > maxIncoming:
		return mqttwire.Invalid("options: MaximumPacketSize is " + strconv.Itoa(o.MaximumPacketSize) + "; give " +
			strconv.Itoa(maxIncoming) + " at most")
	case all.ReadBuffer > 0 && o.MaximumPacketSize > all.ReadBuffer:
		return mqttwire.Invalid("options: MaximumPacketSize is " + strconv.Itoa(o.MaximumPacketSize) + " and ReadBuffer " +
			strconv.Itoa(all.ReadBuffer) + "; a packet must fit into the buffer")
	case o.WillDelay < 0:
		return mqttwire.Invalid("options: WillDelay is negative; give a positive duration, or 0")
	case o.WillDelay > 0 && all.Will == nil:
		return mqttwire.Invalid("options: WillDelay is set without a Will; set Options.Will too")
	case o.RetainHandling > RetainedNever:
		return mqttwire.Invalid("options: RetainHandling is none of RetainedAlways, RetainedFirst and RetainedNever")
	case o.Auth != nil && (o.Auth.Method == "" || !mqttwire.ValidText(o.Auth.Method)):
		return mqttwire.Invalid("options: Auth.Method is not the name of a method; give one such as \"OAUTH2-JWT\"")
	}
	for i := range o.UserProperties {
		if p := &o.UserProperties[i]; !mqttwire.ValidText(p.Name) || !mqttwire.ValidText(p.Value) {
			return mqttwire.Invalid("options: UserProperties[" + strconv.Itoa(i) + "]" + textRule)
		}
	}
	return nil
}

// textRule ends the error about a text that MQTT cannot carry.
const textRule = " is not a text of MQTT; use 65535 bytes at most, of UTF-8 without control characters and " +
	"noncharacters"

// seconds returns d in whole seconds, rounded up, within a four byte integer.
func seconds(d time.Duration) uint32 {
	n := d / time.Second
	if d%time.Second > 0 {
		n++
	}
	return uint32(min(max(0, n), maxExpiry))
}

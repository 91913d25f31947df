package engine

import (
	"strconv"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/internal/texts"
	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
)

// Options are the settings of a Transport. The zero value and nil mean all defaults.
type Options struct {
	// KeepAlive is the time between pings, in whole seconds from 1 s to 65535 s. The hub is told it,
	// and closes the connection, and publishes the Will, when no whole packet came for 1.5 times as
	// long. A broker with MQTT 5 may shorten it. 0: pings each 60 s, but the hub is told 180 s, so a
	// large message may take 3.5 minutes; the hub notices after 4.5 minutes that the device is gone.
	KeepAlive time.Duration
	// PingTimeout is how long the answer to a ping may take. 0: 20 s.
	PingTimeout time.Duration
	// ProductInfo is appended to the client name that the device announces to the hub
	// (DeviceClientType). Empty: nothing.
	ProductInfo string
	// ModelID is the Plug and Play model that the device announces, such as
	// "dtmi:com:example:Thermostat;1". Empty: none.
	ModelID string
	// Will is a message that the hub receives if the connection ends without DISCONNECT. It must not
	// be changed after New. Nil: none.
	Will *transport.Message
	// CleanSession requests a session that is not persistent: messages for the device are lost while
	// it is away.
	CleanSession bool
	// AtMostOnce sends telemetry with QoS 0: a message is done when it was written to the network, and
	// may be lost with the connection.
	AtMostOnce bool
	// ReadBuffer and WriteBuffer are the sizes, for boards, of buffers that New allocates once and
	// that do not grow: 64 bytes at least. CONNECT with its token must fit into the write buffer, some
	// 600 bytes, and so must a message without its body. A message from the hub that does not fit into
	// the read buffer is skipped and not acknowledged. One from a broker with dialect.Topics, which
	// would send it again on each connection, is acknowledged if its topic fits, and reported to
	// device.Trace.HandlerPanic. 0: buffers that grow with use, the read buffer up to 1 MB for a
	// message, the write buffer up to about 16 KB, or 64 KB while a long topic is sent. On a fast link
	// a session has another one of 80 KB while it sends more than 16 KB, and 82 KB for records of TLS.
	ReadBuffer, WriteBuffer int
	// Dialect says how to speak with the service: a *dialect.Topics for a broker that is no hub. Nil:
	// dialect.Hub, but dialect.HubMessages in programs built by TinyGo, which have the twin and
	// methods with dialect.HubTwinAndMethods.
	Dialect dialect.Dialect
	// Protocol is the version of MQTT. Nil: MQTT 3.1.1, or what the Dialect needs. MQTT5 returns the
	// other one.
	Protocol Protocol
}

// protocolled is a dialect that chooses the version of MQTT.
type protocolled interface{ Protocol() Protocol }

const (
	defaultKeepAlive   = 60 * time.Second
	defaultAnnounced   = 180 * time.Second // in CONNECT: pings wait behind a large message
	defaultPingTimeout = 20 * time.Second

	maxKeepAlive = 65535 * time.Second
	minBuffer    = 64
)

// resolve returns a copy with the defaults in place, or an *Error of Kind Invalid about the first
// wrong field.
func (o *Options) resolve() (Options, error) {
	var r Options
	if o != nil {
		r = *o
	}
	if r.Dialect == nil {
		r.Dialect = defaultDialect
	}
	if r.PingTimeout == 0 {
		r.PingTimeout = defaultPingTimeout
	}
	r.PingTimeout = times.Cap(r.PingTimeout)
	switch {
	case r.KeepAlive < 0 || r.KeepAlive%time.Second != 0 || r.KeepAlive > maxKeepAlive:
		return r, mqttwire.Invalid("options: KeepAlive is out of range; give whole seconds from 1s to 65535s, or 0 for " +
			"the default")
	case r.PingTimeout < 0:
		return r, mqttwire.Invalid("options: PingTimeout is negative; give a positive duration, or 0 for 20s")
	case r.ModelID != "" && !strings.HasPrefix(r.ModelID, "dtmi:"):
		return r, mqttwire.Invalid("options: ModelID " + texts.Quote(r.ModelID) + " is not a model id; give one such as " +
			"\"dtmi:com:example:Thermostat;1\"")
	case len(r.ProductInfo) > mqttwire.MaxInfo:
		return r, tooLong("ProductInfo", len(r.ProductInfo))
	case len(r.ModelID) > mqttwire.MaxInfo:
		return r, tooLong("ModelID", len(r.ModelID))
	case r.ReadBuffer != 0 && r.ReadBuffer < minBuffer:
		return r, tooSmall("ReadBuffer", r.ReadBuffer)
	case r.WriteBuffer != 0 && r.WriteBuffer < minBuffer:
		return r, tooSmall("WriteBuffer", r.WriteBuffer)
	}
	return r, mqttwire.CheckWill(r.Will)
}

func tooLong(field string, n int) error {
	return mqttwire.Invalid("options: " + field + " has " + strconv.Itoa(n) + " bytes; give " +
		strconv.Itoa(mqttwire.MaxInfo) +
		" at most")
}

func tooSmall(field string,
	n int) error {
	return mqttwire.Invalid("options: " + field + " is " + strconv.Itoa(n) + "; give 64 bytes at least, or 0 for a " +
		"buffer that grows")
}

// deadlineInterval is the least time between two moves of the read deadline. PingTimeout is
// shortened by up to that much.
func (o *Options) deadlineInterval() time.Duration { return min(time.Second, o.PingTimeout/8) }

// agent returns the client name that the device announces to the hub.
func (o *Options) agent() string {
	if o.ProductInfo == "" {
		return "Hubline"
	}
	return "Hubline " + o.ProductInfo
}

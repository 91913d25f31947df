package mqtt

import (
	"time"

	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
	"github.com/hubline-iot/hubline/transport/mqtt/engine"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// Options are the settings of a Transport. The zero value and nil mean all defaults: TLS to port
// 8883 of the credentials' host.
type Options struct {
	// Network says how to reach the hub.
	Network netopt.Options
	// KeepAlive is the time between pings, in whole seconds from 1 s to 65535 s. The hub is told it,
	// and closes the connection, and publishes the Will, when no whole packet came for 1.5 times as
	// long. A broker with MQTT 5 may shorten it. 0: pings each 60 s, but the hub is told 180 s, so a
	// large message may take 3.5 minutes; the hub notices after 4.5 minutes that the device is gone.
	KeepAlive time.Duration
	// PingTimeout is how long the answer to a ping may take. 0: 20 s.
	PingTimeout time.Duration
	// Dialect says how to speak with the service: a *dialect.Topics for a broker that is no hub. Nil:
	// dialect.Hub.
	Dialect dialect.Dialect
	// ModelID is the Plug and Play model that the device announces, such as
	// "dtmi:com:example:Thermostat;1". Empty: none.
	ModelID string
	// Will is a message that the service sends if the connection ends without DISCONNECT. With a
	// *dialect.Topics its Topic is required. It must not be changed after New. Nil: none.
	Will *transport.Message
	// CleanSession requests a session that is not persistent: messages for the device are lost while
	// it is away.
	CleanSession bool
	// AtMostOnce sends telemetry with QoS 0: a message is done when it was written to the network, and
	// may be lost with the connection.
	AtMostOnce bool
	// Protocol is the version of MQTT. Nil: MQTT 3.1.1. MQTT5 returns the other one, for brokers that
	// are no hub.
	Protocol Protocol
}

// engine returns the options of the engine.
func (o *Options) engine() *engine.Options {
	return &engine.Options{KeepAlive: o.KeepAlive, PingTimeout: o.PingTimeout, ProductInfo: o.Network.ProductInfo,
		ModelID: o.ModelID, Will: o.Will, CleanSession: o.CleanSession, AtMostOnce: o.AtMostOnce, Dialect: o.Dialect,
		Protocol: o.Protocol}
}

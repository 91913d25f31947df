// Package mqtt carries a device over MQTT 3.1.1 or 5: to an IoT hub, or with a topic map to any
// other broker.
//
//	client, err := device.New(creds, mqtt.New(nil), nil)
//	client, err := device.New(creds, mqtt.New(&mqtt.Options{Dialect: &mqtt.Topics{Telemetry: "site/{device}/up"}}), nil)
//
// It is package engine on standard sockets: TCP, TLS with client certificates, proxies and
// WebSocket. What a session does, what it costs and which errors it has stand there. A Transport
// belongs to one client. Package paho, beside this one, is the alternative for programs that want
// eclipse/paho.mqtt.golang underneath.
//
// Cloud-to-device messages have system properties in the fields of Message and of Message.System.
// Those without a field become Properties, under names that applications cannot use: "iothub-ack"
// and "iothub-operation" as they are, unknown ones as they arrive ("$.xyz").
//
// A module has no cloud-to-device messages. Its messages come by inputs, from the routes of an edge
// gateway, with Message.Input; a message with an Output leaves by that output. Both, and
// Message.System, need the dialect dialect.Hub, which is the default.
//
// AWSIoT and EventGrid return dialects that check the limits of these services.
//
// # Network
//
// Options.Network says how to reach the hub, in layers that are independent of each other: Dial
// makes the connection, directly or through a proxy; TLS runs above it, with a client certificate
// if Certificate returns one; a Tunnel such as WebSocket runs above TLS, and MQTT above that. A
// Tunnel that sends replies by itself, as WebSocket does, costs the session one more goroutine.
//
// A connection that died silently is detected by a ping within KeepAlive and PingTimeout, by
// default 80 s; during a write, within Network.WriteTimeout after the network's buffers are full. A
// slow connection is not a dead one: the answer to a ping may come as much later as the network
// needs for the bytes before it, and a hop behind it for the messages that are not acknowledged, a
// second for each KiB and 256 s at most.
//
// # Errors
//
// A failed Dial has, besides the Kinds that package engine lists, one of these:
//
//   - Invalid for wrong options;
//   - Network and Timeout when the hub was not reached, the TLS handshake was cut short, or ctx
//     ended;
//   - Untrusted when the hub's certificate does not verify, or ClockUnset when it is not valid yet
//     by the device's clock;
//   - Unauthorized for a client certificate that was refused or has expired;
//   - Unsupported when the two sides share no TLS version or parameters;
//   - NotFound or Forbidden when a TLS alert says so;
//   - the Kind that the functions of Options.Network return.
package mqtt

import (
	"context"
	"errors"

	"github.com/hubline-iot/hubline/internal/dialer"
	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
	"github.com/hubline-iot/hubline/transport/mqtt/engine"
	"github.com/hubline-iot/hubline/transport/neterr"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// Topics is the topic map of a broker that is no hub, for Options.Dialect.
type Topics = dialect.Topics

// The types of package engine that users of this package need.
type (
	// Protocol is a version of MQTT.
	Protocol = engine.Protocol
	// MQTT5Options are the settings of MQTT 5.
	MQTT5Options = engine.MQTT5Options
	// ConnackError is a CONNECT that the hub refused.
	ConnackError = engine.ConnackError
	// SubackError is a subscription that the hub refused.
	SubackError = engine.SubackError
	// ReasonError is a refusal by a broker that speaks MQTT 5.
	ReasonError = engine.ReasonError
)

// MQTT5 returns MQTT 5 for Options.Protocol; nil means all defaults.
func MQTT5(o *MQTT5Options) Protocol { return engine.MQTT5(o) }

// Transport makes sessions for one client, one at a time.
type Transport struct {
	engine *engine.Transport
	err    error // what Check and Dial return for wrong options of the network
}

// New returns a Transport with the given options, which are copied; nil means all defaults. Wrong
// options are reported by Check, which device.New calls, and by Dial, with Kind Invalid.
func New(o *Options) *Transport {
	if o == nil {
		o = new(Options)
	}
	dial, err := dialing(o.Network)
	return &Transport{engine.New(dial, o.engine()), err}
}

var (
	_ transport.Transport = (*Transport)(nil)
	_ transport.Checker   = (*Transport)(nil)
	_ transport.Limited   = (*Transport)(nil)
)

// Dial makes a session as transport.Transport says.
func (t *Transport) Dial(ctx context.Context, cfg *transport.Config) (transport.Session, error) {
	if t.err != nil {
		return nil, t.err
	}
	return t.engine.Dial(ctx, cfg)
}

// Check implements transport.Checker.
func (t *Transport) Check(creds *transport.Credentials) error {
	if t.err != nil {
		return t.err
	}
	return t.engine.Check(creds)
}

// Lacks implements transport.Limited.
func (t *Transport) Lacks(creds *transport.Credentials, feature transport.Features) string {
	return t.engine.Lacks(creds, feature)
}

// Dialer returns the dial function of New, for engine.New with options that package mqtt does not
// have, such as buffers of a fixed size. The options are copied; nil means all defaults. Each dial
// reports wrong ones. ProductInfo has no effect here: give it to engine.Options.
func Dialer(o *netopt.Options) engine.Dial {
	if o == nil {
		o = new(netopt.Options)
	}
	dial, err := dialing(*o)
	if err != nil {
		return func(context.Context, *transport.Credentials) (engine.Conn, error) { return nil, err }
	}
	return dial
}

// dialing returns the dial function, and an error for wrong options.
func dialing(o netopt.Options) (engine.Dial, error) {
	d := &dialer.Dialer{Protocol: &protocol, Network: o}
	err := d.Resolve()
	return func(ctx context.Context, creds *transport.Credentials) (engine.Conn, error) {
		cert, err := d.ClientCertificate(ctx, creds)
		if err != nil {
			return nil, protocol.Error(err)
		}
		outer, socket, err := d.Dial(ctx, creds, cert)
		if err != nil {
			return nil, protocol.Error(err)
		}
		c := newConn(outer, socket)
		if cert != nil {
			c.expires = cert.Leaf.NotAfter
		}
		return c, nil
	}, err
}

// protocol describes MQTT to package dialer.
var protocol = dialer.Protocol{Name: mqttwire.Proto, Secure: "8883", Plain: "1883", Kind: unanswered}

// unanswered is the Kind and hint of a connection that ended in place of a CONNACK.
func unanswered(err error) (transport.Kind, string, bool) {
	if u, ok := errors.AsType[mqttwire.Unanswered](err); ok {
		if kind, hint, ok := neterr.Explain(u.Err); ok && kind == transport.Network && hint == "" {
			return kind, mqttwire.HintUnanswered, true
		}
	}
	return 0, "", false
}

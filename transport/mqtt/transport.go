// Package mqtt carries a device over MQTT 3.1.1, on the library eclipse/paho.mqtt.golang: to an IoT
// hub, or with a topic map to any other broker.
//
//	client, err := device.New(creds, mqtt.New(nil), nil)
//	client, err := device.New(creds, mqtt.New(&mqtt.Options{Dialect: &mqtt.Topics{Telemetry: "site/{device}/up"}}), nil)
//
// A Transport keeps nothing between dials and is safe for use by many clients at a time. Package
// lean, beside this one, does the same with its own MQTT engine, which is faster, smaller and
// younger.
//
// Telemetry is sent with QoS 1 and is done when the hub's PUBACK arrives. MQTT cannot refuse a
// single message: a hub closes the connection instead, so Done reports an error only for messages
// too large to send. Messages sent again carry the DUP flag. Sessions are persistent (CleanSession
// 0): the hub keeps subscriptions and messages while the device is away. The twin and direct
// methods use QoS 0, as in the official SDKs: package device repeats a request whose answer was
// lost with the connection.
//
// Cloud-to-device messages arrive with QoS 1. Accept and Reject acknowledge them. Release does not,
// so the hub delivers them again on a later connection, with Delivery.Again. Their system
// properties fill the fields of Message and of Message.System. Those without a field become
// Properties, under names that applications cannot use: "iothub-ack" and "iothub-operation" as they
// are, unknown ones as they arrive ("$.xyz").
//
// A module has no cloud-to-device messages. Its messages come by inputs, from the routes of an edge
// gateway, with Message.Input; a message with an Output leaves by that output. Both, and
// Message.System, need the dialect dialect.Hub, which is the default.
//
// # Other brokers
//
// Options.Dialect says what is sent to another service than a hub: package dialect. With a *Topics
// messages go to and come from topics of your own, with QoS 0 or 1 and RETAIN, and there is neither
// a twin nor a method. A message that the dialect refuses fails alone, with Unsupported or Invalid.
// What the dialect does before the connection counts as connected, such as Topics.Birth, is part of
// Dial: its errors are those of the dial, with the Kind of a refused subscription or of the
// message. Messages that come meanwhile are delivered by Run, up to 2 MB; more are not
// acknowledged, so they come again on a later connection.
//
// # Tokens
//
// A new token needs a new connection: OpRenew is unsupported, and Info.Expires is when the present
// token expires.
//
// # Network
//
// Options.Network says how to reach the hub, in layers that are independent of each other: Dial
// makes the connection, directly or through a proxy; TLS runs above it, with a client certificate
// if Certificate returns one; a Tunnel such as WebSocket runs above TLS, and MQTT above that.
//
// Only its context limits the time of a Dial; package device sets the limit.
//
// A connection that died silently is detected by a ping within KeepAlive and PingTimeout, by
// default 80 s; during a write, within WriteTimeout after the network's buffers are full.
//
// # Errors
//
// A failed Dial returns an *transport.Error of Scope Connection and Op OpDial, with one of these
// Kinds:
//
//   - Invalid for wrong options or credentials;
//   - Network and Timeout when the hub was not reached, the TLS handshake was cut short, or ctx
//     ended;
//   - Untrusted when the hub's certificate does not verify, or ClockUnset when it is not valid yet
//     by the device's clock;
//   - Unauthorized for CONNACK 2, 4 and 5 and for a client certificate that was refused or has
//     expired;
//   - Unavailable for CONNACK 3;
//   - Unsupported for CONNACK 1, and when the two sides share no TLS version or parameters;
//   - Protocol for other CONNACKs and for peers that speak another protocol;
//   - NotFound or Forbidden when a TLS alert says so;
//   - the Kind that Credentials.NewToken and the functions of Options.Network return.
//
// The code of a refusal is in the *ConnackError reached with errors.As.
//
// The end of a live session is always worth a retry: Network, or Timeout when the hub answers no
// ping or accepts no data.
package mqtt

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strconv"
	"time"

	paho "github.com/eclipse/paho.mqtt.golang"

	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
	"github.com/hubline-iot/hubline/transport/mqtt/internal/endpoint"
	"github.com/hubline-iot/hubline/transport/mqtt/internal/wire"
)

// Transport makes MQTT sessions. It is safe for concurrent use.
type Transport struct {
	opt Options
	err error // what Dial returns for wrong options
}

// New returns a Transport with the given options, which are copied; nil means all defaults. Wrong
// options are reported by Check, which device.New calls, and by Dial, with Kind Invalid.
func New(o *Options) *Transport {
	t := new(Transport)
	t.opt, t.err = o.resolve()
	return t
}

var _ transport.Transport = (*Transport)(nil)

// Check reports wrong options and credentials that the dialect cannot carry. It calls
// Dialect.Session.
func (t *Transport) Check(creds *transport.Credentials) error {
	if t.err != nil {
		return t.err
	}
	_, _, err := t.opt.session(&transport.Config{Creds: creds})
	return err
}

// Dial makes a session as transport.Transport says: token, connection, TLS, CONNECT. The Sink is
// not called before Run. The package documentation lists the errors.
func (t *Transport) Dial(ctx context.Context, cfg *transport.Config) (transport.Session, error) {
	s, err := t.dial(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (t *Transport) dial(ctx context.Context, cfg *transport.Config) (*session, error) {
	if t.err != nil {
		return nil, t.err
	}
	if err := cfg.Creds.Validate(); err != nil {
		return nil, endpoint.Error(err)
	}
	s, err := t.connect(ctx, cfg)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx) // ctx ended and caused the socket's error
		}
		return nil, endpoint.Error(err)
	}
	return s, nil
}

// connect does the work of dial.
func (t *Transport) connect(ctx context.Context, cfg *transport.Config) (*session, error) {
	as, hello, err := t.opt.session(cfg)
	if err != nil {
		return nil, err
	}
	d := t.opt.dialer()
	d.Timeout = cfg.DialTimeout
	cert, err := d.ClientCertificate(ctx, cfg.Creds)
	if err != nil {
		return nil, err
	}
	token, err := cfg.Creds.NewToken(ctx)
	switch {
	case err != nil:
		return nil, err
	case len(token.Text.Reveal()) > wire.MaxField:
		return nil, wire.Invalid("the token has " + strconv.Itoa(len(token.Text.Reveal())) +
			" bytes; a password of MQTT has 65535 at most")
	}
	outer, socket, err := d.Dial(ctx, cfg.Creds, cert)
	if err != nil {
		return nil, err
	}
	s := newSession(cfg, token, as, hello.MaxSize)
	s.atMostOnce = t.opt.AtMostOnce
	s.conn = newConn(outer, socket, s)
	s.conn.sent = func(tag uint16) { cfg.Sink.Done(tag, nil) }
	s.conn.beat = newHeartbeat(time.Now(), t.opt.KeepAlive, t.opt.PingTimeout)
	who := &login{hello.UserName, token.Text.Reveal()}
	shake := s.handshakeOf()
	s.client = paho.NewClient(t.clientOptions(s, &hello, who))

	connected := s.client.Connect()
	select {
	case <-connected.Done():
	case <-ctx.Done():
		s.conn.fail(errAborted)
		<-connected.Done()
	}
	err = connected.Error()
	*who = login{} // else the library would keep it for the whole session
	var failed error
	if err == nil && shake != nil {
		failed = s.handshake(ctx, shake)
	}
	switch {
	case failed != nil:
	case err != nil || ctx.Err() != nil:
		failed = errAborted
	default:
		return s, nil
	}
	cause := s.conn.fail(failed) // the first failure; the library's error wraps others too
	if err == nil {
		<-s.lost // the library had connected and notices the end
	}
	<-s.conn.flushed
	return nil, cause
}

// libraryWait bounds how long the library's Publish and Subscribe block after the connection was
// lost: they notice the loss only when that time is over. Writes to conn do not block, so it has no
// effect on a live connection.
const libraryWait = 250 * time.Millisecond

// unusedServer is the server list that the library requires and nothing reads.
var unusedServer = []*url.URL{{Scheme: "tcp", Host: "hub"}}

// login is what CONNECT says about the device.
type login struct{ user, password string }

// clientOptions returns options for one connection: the library does not redial, store or retry.
// Its own acknowledgements are off because sending one may wait for the goroutine that requests it.
func (t *Transport) clientOptions(s *session, hello *dialect.Hello, who *login) *paho.ClientOptions {
	o := paho.NewClientOptions()
	o.Servers = unusedServer
	o.SetAutoReconnect(false)
	o.SetConnectRetry(false)
	o.SetProtocolVersion(4) // else a refused CONNECT is repeated with MQTT 3.1
	o.SetCleanSession(t.opt.CleanSession)
	o.SetOrderMatters(true)
	o.SetAutoAckDisabled(true)
	o.SetWriteTimeout(libraryWait)
	o.SetKeepAlive(0) // heartbeat does that
	o.Dialer, o.HTTPHeaders = nil, nil
	o.SetStore((*packetStore)(s))
	o.SetResumeSubs(true) // puts SUBSCRIBE packets into the store, which learns their ids
	o.SetClientID(hello.ClientID)
	if w := &hello.Will; w.Msg != nil {
		qos := byte(1)
		if w.AtMostOnce {
			qos = 0
		}
		o.SetBinaryWill(string(s.dialect.AppendSuffix([]byte(w.Topic), w.Msg)), w.Msg.Body, qos, w.Retain)
	}
	o.SetCredentialsProvider(func() (string, string) { return who.user, who.password })
	o.SetDefaultPublishHandler(s.received)
	o.SetConnectionLostHandler(func(paho.Client, error) { close(s.lost) })
	used := false
	o.SetCustomOpenConnectionFn(func(*url.URL, paho.ClientOptions) (net.Conn, error) {
		if used {
			return nil, errors.New("one connection per client")
		}
		used = true
		return s.conn, nil
	})
	return o
}

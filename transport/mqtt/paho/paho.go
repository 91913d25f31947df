// Package paho carries a device over MQTT 3.1.1 on the client eclipse/paho.mqtt.golang, for
// programs that want that client underneath: to an IoT hub, or with a topic map to any other
// broker.
//
//	client, err := device.New(creds, paho.New(nil), nil)
//
// Package mqtt, with its own engine, is the default: it is faster, smaller, and does more. This
// package uses paho as its authors mean it to be used: telemetry is published with QoS 1 and is
// done when paho's token says so. What paho cannot do, or does in another way:
//
//	MQTT 5                       not there: Options.Protocol must be nil
//	DUP on a message sent again  missing: each connection has a new client of paho, which takes
//	                             every message for a new one
//	write time-outs              Options.Network's, not paho's; a message that waits for the network
//	                             is handed to paho again every 400 ms, and takes one of the
//	                             connection's 65,535 packet ids each time
//	results out of order         reported in the order of sending
//	handshakes with answers      not there: a dialect may publish one message, such as Topics.Birth
//	keep-alive by default        the hub is told 60 s, as often as paho pings: a message that takes
//	                             longer than 90 s never arrives without a longer Options.KeepAlive
//	pings                        sent and checked every 5 s; an answer has an eighth of PingTimeout
//	                             more time, or a PingTimeout more after the latest progress
//	packet ids                   from 1 on, as brokers count theirs; mochi refuses a subscription whose
//	                             id is that of a message in flight to the device
//
// Everything else is as in package mqtt: persistent sessions, settling, twin and methods with QoS
// 0, a new connection for a new token, options of the network, dialects, and the Kinds of errors.
//
// What the peer sends is checked before paho reads it: a packet that is malformed, too large or not
// meant for clients ends the connection with Kind Protocol in a dial and Network later. A PUBLISH
// that is too large is skipped.
//
// A Transport keeps nothing between dials and is safe for use by many clients at a time.
package paho

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/url"
	"strconv"
	"time"

	paho "github.com/eclipse/paho.mqtt.golang"
	"github.com/eclipse/paho.mqtt.golang/packets"

	"github.com/hubline-iot/hubline/internal/dialer"
	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
	"github.com/hubline-iot/hubline/transport/mqtt/engine"
)

// Transport makes MQTT sessions. It is safe for concurrent use.
type Transport struct {
	opt  mqtt.Options
	dial engine.Dial
	same *mqtt.Transport // with the same options, which it checks
}

// New returns a Transport with the given options, which are copied; nil means all defaults. Wrong
// options are reported by Check, which device.New calls, and by Dial, with Kind Invalid. Protocol
// must be nil.
func New(o *mqtt.Options) *Transport {
	t := new(Transport)
	if o != nil {
		t.opt = *o
	}
	t.same = mqtt.New(&t.opt)
	if t.opt.Dialect == nil {
		t.opt.Dialect = dialect.Hub
	}
	t.opt.KeepAlive = cmp.Or(t.opt.KeepAlive, 60*time.Second)
	t.opt.PingTimeout = cmp.Or(t.opt.PingTimeout, 20*time.Second)
	t.dial = mqtt.Dialer(&t.opt.Network)
	return t
}

var (
	_ transport.Transport = (*Transport)(nil)
	_ transport.Checker   = (*Transport)(nil)
	_ transport.Limited   = (*Transport)(nil)
)

// Check implements transport.Checker.
func (t *Transport) Check(creds *transport.Credentials) error {
	if _, chooses := t.opt.Dialect.(interface{ Protocol() mqtt.Protocol }); chooses || t.opt.Protocol != nil {
		return mqttwire.Invalid("options: Protocol is set, or the Dialect needs MQTT 5, and paho speaks MQTT 3.1.1 alone; " +
			"leave it nil, or use package mqtt")
	}
	return t.same.Check(creds)
}

// Lacks implements transport.Limited.
func (t *Transport) Lacks(creds *transport.Credentials, feature transport.Features) string {
	return t.same.Lacks(creds, feature)
}

// Dial makes a session as transport.Transport says: token, connection, TLS, CONNECT, and what the
// dialect does before the connection counts as connected. The Sink is not called before Run.
// Package mqtt lists the errors.
func (t *Transport) Dial(ctx context.Context, cfg *transport.Config) (transport.Session, error) {
	if err := cfg.Creds.Validate(); err != nil {
		return nil, mqttwire.DialError(err)
	}
	if err := t.Check(cfg.Creds); err != nil {
		return nil, err
	}
	s, err := t.connect(ctx, cfg)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx) // ctx ended and caused the socket's error
		}
		return nil, mqttwire.DialError(err)
	}
	return s, nil
}

func (t *Transport) connect(ctx context.Context, cfg *transport.Config) (*session, error) {
	as, hello, err := t.opt.Dialect.Session(&dialect.Config{Creds: cfg.Creds, ModelID: t.opt.ModelID,
		Agent: dialer.Agent(t.opt.Network.ProductInfo), Will: t.opt.Will, Certificates: cfg.Certificates})
	if err != nil {
		return nil, mqttwire.DialectError(err)
	}
	token, err := cfg.Creds.NewToken(ctx)
	if err != nil {
		return nil, err
	}
	if n := len(token.Text.Reveal()); n > mqttwire.MaxText {
		return nil, mqttwire.Invalid("the token has " + strconv.Itoa(n) + " bytes; a password of MQTT has 65535 at most")
	}
	limited, cancel := ctx, context.CancelFunc(func() {})
	if cfg.DialTimeout > 0 {
		limited, cancel = context.WithTimeout(ctx, cfg.DialTimeout)
	}
	c, err := t.dial(limited, cfg.Creds)
	cancel()
	if err != nil {
		return nil, err
	}
	s := newSession(cfg, token, as, hello.MaxSize, newGuard(c.(conn), t.opt.PingTimeout))
	if s.info.Expires.IsZero() {
		s.info.Expires = s.guard.Expires()
	}
	s.atMostOnce = t.opt.AtMostOnce
	s.client = paho.NewClient(t.clientOptions(s, &hello, token.Text.Reveal()))
	defer context.AfterFunc(ctx, func() { s.guard.fail(context.Cause(ctx)) })()

	connected := s.client.Connect()
	<-connected.Done()
	if err := connected.Error(); err != nil {
		return nil, s.guard.Explain(s.guard.fail(err)) // the first failure; paho's error wraps others too
	}
	if err := s.handshake(); err != nil {
		err = s.guard.fail(err)
		<-s.lost
		return nil, err
	}
	return s, nil
}

// handshake does what the dialect wants before the connection counts as connected.
func (s *session) handshake() error {
	d, ok := s.dialect.(dialect.Handshaker)
	if !ok {
		return nil
	}
	h, ok := d.Handshake().(*dialect.Handshake)
	switch {
	case !ok:
		return nil
	case h.Answer != nil || len(h.Filters) > 0:
		return mqttwire.Refused(transport.OpDial, transport.Unsupported, errAnswers)
	case h.Message.Msg == nil:
		return nil
	}
	p := &h.Message
	if err := s.fits(p); err != nil {
		return err
	}
	token := s.publish(s.topic(p), qos(p.AtMostOnce || s.atMostOnce), p.Retain, p.Msg.Body)
	if token == nil {
		return errClosed
	}
	select {
	case <-token.Done():
		return token.Error()
	case <-s.lost:
		return errClosed
	}
}

var errAnswers = errors.New("paho cannot wait for the answers of a dialect's handshake; use package mqtt")

// unused is the server list that paho requires and nothing reads.
var unused = []*url.URL{{Scheme: "tcp", Host: "hub"}}

// clientOptions returns options for one connection: paho does not redial, store or resend, because
// package device does.
func (t *Transport) clientOptions(s *session, hello *dialect.Hello, password string) *paho.ClientOptions {
	o := paho.NewClientOptions()
	o.Servers = unused
	o.SetAutoReconnect(false)
	o.SetConnectRetry(false)
	o.SetProtocolVersion(4) // else a refused CONNECT is repeated with MQTT 3.1
	o.SetCleanSession(t.opt.CleanSession)
	o.SetOrderMatters(true)
	o.SetAutoAckDisabled(true) // OpSettle acknowledges
	o.SetWriteTimeout(handOver)
	o.SetKeepAlive(t.opt.KeepAlive)
	o.SetPingTimeout(t.opt.PingTimeout)
	o.SetStore((*store)(s))
	o.SetClientID(hello.ClientID)
	o.SetUsername(hello.UserName)
	o.SetPassword(password)
	if w := &hello.Will; w.Msg != nil {
		o.SetBinaryWill(string(s.dialect.AppendSuffix([]byte(w.Topic), w.Msg)), w.Msg.Body, qos(w.AtMostOnce), w.Retain)
	}
	o.SetDefaultPublishHandler(s.received)
	o.SetConnectionLostHandler(func(paho.Client, error) { close(s.lost) })
	o.SetCustomOpenConnectionFn(func(*url.URL, paho.ClientOptions) (net.Conn, error) {
		return s.guard, nil // asked for once: one server, one version, no retries
	})
	return o
}

func qos(atMostOnce bool) byte {
	if atMostOnce {
		return 0
	}
	return 1
}

// store is a session as paho's message store. It stores nothing, so paho resends nothing.
type store session

// Close is called when paho failed to connect or has disconnected, not when the connection was
// lost.
func (s *store) Close() { s.closeOnce.Do(func() { close(s.closed) }) }

func (*store) Open()                             {}
func (*store) Reset()                            {}
func (*store) Del(string)                        {}
func (*store) All() []string                     { return nil }
func (*store) Put(string, packets.ControlPacket) {}
func (*store) Get(string) packets.ControlPacket  { return nil }

// handOver bounds how long Publish and Subscribe of paho block. It has no effect on writes: guard
// ignores paho's deadlines.
const handOver = 400 * time.Millisecond

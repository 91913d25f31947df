package lean

import (
	"context"
	"errors"
	"io"
	"strconv"
	"time"

	"github.com/hubline-iot/hubline/internal/callback"
	"github.com/hubline-iot/hubline/internal/errchain"
	"github.com/hubline-iot/hubline/internal/lifetime"
	"github.com/hubline-iot/hubline/internal/mqttpacket"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/internal/wire"
)

// Dial makes a session as transport.Transport says: token, connection, CONNECT. The Sink is not
// called before Run. The package documentation lists the errors.
func (t *Transport) Dial(ctx context.Context, cfg *transport.Config) (transport.Session, error) {
	if t.err != nil {
		return nil, t.err
	}
	if err := cfg.Creds.Validate(); err != nil {
		return nil, wire.DialError(err)
	}
	if !t.busy.CompareAndSwap(false, true) {
		return nil, wire.Invalid("this Transport serves a client already; make one for each client with lean.New")
	}
	s, err := t.connect(ctx, cfg)
	if err != nil {
		t.busy.Store(false)
		if ctx.Err() != nil {
			err = context.Cause(ctx) // ctx ended and caused the connection's error
		}
		return nil, wire.DialError(err)
	}
	return s, nil
}

// connect does the work of Dial.
func (t *Transport) connect(ctx context.Context, cfg *transport.Config) (*session, error) {
	token, err := cfg.Creds.NewToken(ctx)
	if err != nil {
		return nil, err
	}
	topics := wire.NewTopics(cfg.Creds)
	connectPacket, err := t.connectPacket(cfg, token.Text.Reveal(), &topics)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var c Conn
	if failed := callback.Run("the dial function of lean.New", func() { c, err = t.dial(ctx) }); failed != nil {
		err = failed
	}
	if err != nil {
		return nil, err
	}
	s := newSession(t, cfg, token, topics, c)
	aborted := make(chan struct{})
	stop := lifetime.AfterFunc(ctx, func() {
		s.fail(errAborted)
		close(aborted)
	})
	err = s.handshake(connectPacket)
	if !stop() {
		<-aborted
	}
	if err == nil {
		err = s.failure()
	}
	if err == nil {
		return s, nil
	}
	s.fail(err)
	if x, ok := c.(Explainer); ok && !isMQTTError(err) {
		err = x.Explain(err)
	}
	return nil, err
}

// isMQTTError reports whether an error of handshake is about the hub's MQTT packets.
func isMQTTError(err error) bool {
	switch err.(type) {
	case *ConnackError, wire.Violation:
		return true
	}
	return false
}

// connectPacket encodes the CONNECT into the write buffer.
func (t *Transport) connectPacket(cfg *transport.Config, password string, topics *wire.Topics) ([]byte, error) {
	if len(password) > wire.MaxField {
		return nil, wire.Invalid("the token has " + strconv.Itoa(len(password)) + " bytes; a password of MQTT has 65535 at " +
			"most")
	}
	version := wire.APIVersion
	if cfg.Certificates && t.opt.Calls.version != "" {
		version = t.opt.Calls.version
	}
	g := mqttpacket.Greeting{
		ClientID: wire.ClientID(cfg.Creds), Password: password,
		UserName:     wire.UserName(cfg.Creds, version, t.opt.agent(), t.opt.ModelID),
		CleanSession: t.opt.CleanSession, KeepAlive: uint16(t.opt.KeepAlive / time.Second),
	}
	if w := t.opt.Will; w != nil {
		g.Will = &mqttpacket.Will{Topic: wire.AppendBag([]byte(topics.Telemetry), w), Body: w.Body, QoS: 1}
	}
	if n := mqttpacket.ConnectSize(&g); t.opt.WriteBuffer > 0 && n > t.opt.WriteBuffer {
		return nil, wire.Invalid("options: WriteBuffer is " + strconv.Itoa(t.opt.WriteBuffer) + "; CONNECT has " +
			strconv.Itoa(n) + " bytes here")
	}
	connect, err := mqttpacket.AppendConnect(t.out[:0], &g)
	if err != nil {
		return nil, wire.Invalid("CONNECT cannot be sent: " + err.Error())
	}
	return connect, nil
}

// reasonTime is how long the dial waits for the hub's reason when CONNECT could not be written.
const reasonTime = 250 * time.Millisecond

// handshake sends CONNECT and reads the CONNACK. Bytes behind it stay in the read buffer. The error
// is not wrapped.
func (s *session) handshake(connect []byte) error {
	_, err := s.conn.Write(connect)
	clear(connect) // the token
	if err != nil {
		// With TLS 1.3 a client certificate is refused after the handshake, and the write may fail before
		// the alert was read.
		_ = s.conn.SetReadDeadline(time.Now().Add(reasonTime))
		_, readErr := s.conn.Read(s.readSpace(1))
		if readErr != nil && !errchain.Same(readErr, io.EOF) && !wire.TimedOut(readErr) {
			err = readErr
		}
		return err
	}
	for {
		in := s.t.in[:s.unread]
		switch h, ok, err := mqttpacket.Next(in); {
		case err != nil:
			return wire.Violation{Err: err}
		case len(in) > 0 && h.Type != mqttpacket.Connack, ok && h.Body != 2:
			return wire.NewViolation("the hub's first packet is not a CONNACK") // [MQTT-3.2.0-1]
		case ok && len(in) >= h.Size+h.Body:
			_, code, err := mqttpacket.ReadConnack(in[h.Size : h.Size+h.Body])
			if err != nil {
				return wire.Violation{Err: err}
			}
			if code != 0 {
				return &ConnackError{Code: code}
			}
			s.unread = copy(in, in[h.Size+h.Body:])
			return nil
		}
		n, err := s.conn.Read(s.readSpace(1))
		s.unread += n
		switch {
		case n > 0:
		case errchain.Same(err, io.EOF):
			return wire.HubClosed{}
		case err != nil:
			return err
		default:
			return io.ErrNoProgress
		}
	}
}

var (
	errClosed  = errors.New("the connection was closed on this side")
	errAborted = errors.New("the connection was given up")
)

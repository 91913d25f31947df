package engine

import (
	"cmp"
	"context"
	"errors"
	"io"
	"strconv"
	"time"

	"github.com/hubline-iot/hubline/internal/callback"
	"github.com/hubline-iot/hubline/internal/lifetime"
	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
)

// Dial makes a session as transport.Transport says: token, connection, CONNECT. The Sink is not
// called before Run. The package documentation lists the errors.
func (t *Transport) Dial(ctx context.Context, cfg *transport.Config) (transport.Session, error) {
	s, err := t.session(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Check reports wrong options and credentials that the dialect cannot carry. It calls
// Dialect.Session.
func (t *Transport) Check(creds *transport.Credentials) error {
	if t.err != nil {
		return t.err
	}
	_, _, err := t.dialect(&transport.Config{Creds: creds}, nil)
	return err
}

// dialect prepares a session of the dialect.
func (t *Transport) dialect(cfg *transport.Config, kept *any) (dialect.Session, dialect.Hello, error) {
	d, hello, err := t.opt.Dialect.Session(&dialect.Config{Creds: cfg.Creds, Agent: t.opt.agent(), ModelID: t.opt.ModelID,
		Will: t.opt.Will, Certificates: cfg.Certificates, Properties: t.newer != nil, Want: cfg.Want,
		DesiredVersion: cfg.DesiredVersion, Kept: kept})
	if err != nil {
		err = mqttwire.DialectError(err)
	}
	return d, hello, err
}

// session does the work of Dial.
func (t *Transport) session(ctx context.Context, cfg *transport.Config) (*session, error) {
	if t.err != nil {
		return nil, t.err
	}
	if err := cfg.Creds.Validate(); err != nil {
		return nil, mqttwire.DialError(err)
	}
	if !t.busy.CompareAndSwap(false, true) {
		return nil, mqttwire.Invalid("this Transport serves a client already; make one for each client")
	}
	var s *session
	var err error
	callback.Watch(func() { s, err = t.connect(ctx, cfg) }, func(returned bool) {
		if !returned || err != nil {
			t.busy.Store(false)
		}
	})
	if err != nil {
		if ctx.Err() != nil {
			err = lifetime.Cause(ctx) // ctx ended and caused the connection's error
		}
		return nil, mqttwire.DialError(err)
	}
	return s, nil
}

// connect makes the connection, from the token to the end of the handshake.
func (t *Transport) connect(ctx context.Context, cfg *transport.Config) (*session, error) {
	d, hello, err := t.dialect(cfg, &t.kept)
	if err != nil {
		return nil, err
	}
	token, err := cfg.Creds.NewToken(ctx)
	if err != nil {
		return nil, err
	}
	creds := cfg.Creds
	if t.newer != nil {
		if err := t.newer.begin(ctx, t, cfg, &token, d); err != nil {
			return nil, err
		}
		creds = t.newer.dialed(creds, &hello)
	}
	connectPacket, err := t.connectPacket(&hello, d, token.Text.Reveal())
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var c Conn
	limited, cancel := ctx, func() {}
	if cfg.DialTimeout > 0 {
		limited, cancel = lifetime.WithinTime(ctx, cfg.DialTimeout)
	}
	err = callback.Call("the dial function of engine.New", func() (err error) {
		c, err = t.dial(limited, creds)
		return err
	})
	cancel()
	switch {
	case err == nil && c == nil:
		return nil, mqttwire.Invalid("the dial function of engine.New returned no connection; return one, or an error")
	case err != nil && creds != cfg.Creds: // the next dial goes to the host of the credentials
		return nil, mqttwire.Unreached(err)
	case err != nil:
		return nil, err
	}
	s := newSession(t, cfg, token, d, c)
	s.info.MaxSize = hello.MaxSize
	aborted := make(chan struct{})
	stop := lifetime.AfterFunc(ctx, func() {
		s.fail(errAborted)
		close(aborted)
	})
	end := func(err error) {
		s.fail(err)
		if v := t.newer; v != nil { // also after a handshake that ctx overtook
			_ = v.end(err)
		}
	}
	callback.Watch(func() {
		if err = s.greet(connectPacket); err == nil {
			s.connackAt = time.Now()
			err = s.handshake()
		}
	}, func(returned bool) {
		if !returned {
			stop()
			end(errAborted)
		}
	})
	if !stop() {
		<-aborted
	}
	if err == nil {
		err = s.failure()
	}
	if err == nil {
		return s, nil
	}
	end(err)
	if x, ok := c.(Explainer); ok {
		err = x.Explain(err)
	}
	if v, ok := err.(mqttwire.Violation); ok && !s.connackAt.IsZero() { //nolint:errorlint // not wrapped
		err = &transport.Error{Kind: transport.Protocol, Err: lateViolation{v}}
	}
	return nil, err
}

// A lateViolation is a violation during the handshake. With its CONNACK the peer has shown that it
// speaks MQTT, so that another attempt may succeed.
type lateViolation struct{ error }

func (lateViolation) Unwrap() error { return transport.ErrViolation }

// connectPacket encodes the CONNECT into the write buffer.
func (t *Transport) connectPacket(hello *dialect.Hello, d dialect.Session, password string) ([]byte, error) {
	if len(password) > mqttwire.MaxText {
		return nil, mqttwire.Invalid("the token has " + strconv.Itoa(len(password)) +
			" bytes; a password of MQTT has 65535 at " +
			"most")
	}
	g := mqttwire.Greeting{
		ClientID: hello.ClientID, UserName: hello.UserName, Password: password,
		CleanSession: t.opt.CleanSession, KeepAlive: uint16(cmp.Or(t.opt.KeepAlive, defaultAnnounced) / time.Second),
	}
	if w := &hello.Will; w.Msg != nil {
		g.Will = &mqttwire.Will{Topic: d.AppendSuffix([]byte(w.Topic), w.Msg), Body: w.Msg.Body, QoS: 1, Retain: w.Retain}
		if w.AtMostOnce {
			g.Will.QoS = 0
		}
	}
	if v := t.newer; v != nil {
		return v.connect(t.out[:0], &g, hello.Will)
	}
	if n := mqttwire.ConnectSize(&g); t.opt.WriteBuffer > 0 && n > t.opt.WriteBuffer {
		return nil, t.opt.tooLongConnect(n)
	}
	connect, err := mqttwire.AppendConnect(t.out[:0], &g)
	if err != nil {
		return nil, invalidConnect(err)
	}
	return connect, nil
}

// tooLongConnect is the error about a CONNECT of n bytes, which does not fit into the write buffer.
func (o *Options) tooLongConnect(n int) error {
	return mqttwire.Invalid("options: WriteBuffer is " + strconv.Itoa(o.WriteBuffer) + "; CONNECT has " + strconv.Itoa(n) +
		" bytes here")
}

func invalidConnect(err error) error {
	return mqttwire.Invalid("CONNECT cannot be sent: " + err.Error())
}

// reasonTime is how long a session waits for the hub's reason when a packet could not be written.
const reasonTime = 250 * time.Millisecond

// greet sends CONNECT and reads the CONNACK. Bytes behind it stay in the read buffer. The error
// is not wrapped.
func (s *session) greet(connect []byte) error {
	_, err := s.conn.Write(connect)
	clear(connect) // the token
	if err != nil {
		// With TLS 1.3 a client certificate is refused after the handshake, and the write may fail before
		// the alert was read.
		_ = s.conn.SetReadDeadline(time.Now().Add(reasonTime))
		_, readErr := s.conn.Read(s.readSpace(1))
		if readErr != nil && readErr != io.EOF && !mqttwire.TimedOut(readErr) { //nolint:errorlint // as in readMore
			err = readErr
		}
		return err
	}
	for {
		in := s.t.in[:s.unread]
		used, done, err := s.greeted(in)
		if err != nil {
			return err
		}
		if s.unread = copy(in, in[used:]); done {
			return nil
		}
		if used > 0 {
			continue
		}
		want := 1
		if h, ok, err := s.next(s.t.in[:s.unread]); ok && err == nil {
			want = h.Size + h.Body - s.unread
		}
		if err := s.readMore(want); err != nil {
			if s.unread == 0 {
				return mqttwire.Unanswered{Err: err}
			}
			return err
		}
	}
}

// readMore reads once, into space for want bytes at least.
func (s *session) readMore(want int) error {
	space := s.readSpace(want)
	n, err := s.conn.Read(space)
	s.unread, s.filled = s.unread+n, n == len(space)
	switch {
	case n > 0:
		s.receiving.Add(n)
		s.receiving.Report(s.progress)
		return nil
	case err == io.EOF: //nolint:errorlint // a tunnel's error around it says more
		return mqttwire.HubClosed{}
	case err != nil:
		return err
	}
	return io.ErrNoProgress
}

// greeted handles the packet at the beginning of in, which is to be the CONNACK, and returns its
// size; 0 if it is incomplete.
func (s *session) greeted(in []byte) (used int, done bool, err error) {
	if v := s.t.newer; v != nil {
		return v.greeted(s, in)
	}
	switch h, ok, err := mqttwire.Next(in); {
	case len(in) > 0 && h.Type != mqttwire.Connack, ok && h.Body != 2 && len(in) >= h.Size+min(h.Body, 2):
		return 0, false, mqttwire.FirstBytes(in)
	case err != nil:
		return 0, false, mqttwire.Violation{Err: err}
	case ok && len(in) >= h.Size+h.Body:
		_, code, err := mqttwire.ReadConnack(in[h.Size : h.Size+h.Body])
		if err != nil {
			return 0, false, mqttwire.Violation{Err: err}
		}
		if code != 0 {
			return 0, false, &ConnackError{Code: code}
		}
		return h.Size + h.Body, true, nil
	}
	return 0, false, nil
}

var (
	errClosed  = errors.New("the connection was closed on this side")
	errAborted = errors.New("the connection was given up")
)

package amqp

import (
	"context"
	"crypto/tls"
	"errors"
	"time"

	"github.com/hubline-iot/hubline/internal/amqpclient"
	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/transport"
)

// connection is one AMQP connection, of one device or shared by the devices of a Mux.
type connection struct {
	*amqpclient.Conn
	opt    *Options
	tokens *tokens
	window *window
	host   string
	user   string // of SASL PLAIN

	expires time.Time // of the login; zero: never, or not known

	// For a Mux, guarded by its mutex.
	dial     *dialing // the dial that made it
	users    int
	accepted bool          // the hub accepted a device on it
	began    time.Time     // when its dial ended
	pause    time.Duration // the Mux's before that
	judged   bool          // its end was recorded
}

// endTimeout is how long a device that leaves a shared connection waits for the end of its AMQP
// session.
const endTimeout = 500 * time.Millisecond

// login holds the credentials that prove an identity.
type login struct {
	auth  Auth
	cert  *tls.Certificate
	token transport.Token // the zero Token when none is needed
	user  string          // of Plain
}

// expires returns when the login ends; zero if never, or not known.
func (l *login) expires() time.Time {
	switch {
	case !l.token.Fixed && !l.token.Expires.IsZero():
		return l.token.Expires
	case l.cert != nil:
		return l.cert.Leaf.NotAfter
	}
	return time.Time{}
}

// prove gets the login from the credentials and options. Its error is a cause for dialer.Protocol.
func (o *Options) prove(ctx context.Context, creds *transport.Credentials) (l login, err error) {
	l.auth = o.auth(creds)
	d := o.dialer()
	if o.Network.Certificate != nil || l.auth == AuthDefault || l.auth == AuthExternal {
		if l.cert, err = d.ClientCertificate(ctx, creds); err != nil {
			return l, err
		}
	}
	if l.auth == AuthPlain {
		if l.user = o.userName(creds); l.user == "" {
			return l, protocol.Invalid("options: Auth is PLAIN, but the credentials have no UserName; set it")
		}
	}
	if l.auth == AuthCBS || l.auth == AuthPlain {
		switch l.token, err = creds.NewToken(ctx); {
		case err != nil:
			return l, err
		case l.token.Text.Reveal() == "":
			return l, protocol.Invalid("options: Auth is " + l.auth.String() + ", but the credentials have neither Sign nor " +
				"Token")
		}
	}
	return l, nil
}

// sasl returns the SASL mechanisms, the preferred one first. Nil, where CBS or TLS proves the
// identity: a hub expects no SASL then.
func (l *login) sasl(host string) []wire.Init {
	switch l.auth {
	case AuthPlain:
		return []wire.Init{{Mechanism: "PLAIN", InitialResponse: []byte("\x00" + l.user + "\x00" + l.token.Text.Reveal())}}
	case AuthExternal:
		return []wire.Init{{Mechanism: "EXTERNAL", InitialResponse: []byte{}, Hostname: host}}
	case AuthAnonymous:
		return []wire.Init{{Mechanism: "ANONYMOUS", InitialResponse: []byte("anonymous")}}
	case AuthDefault, AuthCBS:
	}
	return nil
}

// without returns the SASL mechanisms, the preferred one first, for a login that is without SASL if
// the peer does not insist on it. Their meaning is the same: the identity is proven by CBS or TLS.
// Edge gateways have MSSBCBS or ANONYMOUS, older ones not the former.
func (l *login) without(host string) []wire.Init {
	if l.auth == AuthCBS {
		return []wire.Init{{Mechanism: "MSSBCBS", Hostname: host}, {Mechanism: "ANONYMOUS", Hostname: host}}
	}
	return []wire.Init{{Mechanism: "EXTERNAL", InitialResponse: []byte{}, Hostname: host}}
}

// connect dials, within limit, and does the handshakes. before is the learnt state of earlier
// connections. The error is a cause for dialer.Protocol.
func (o *Options) connect(ctx context.Context, creds *transport.Credentials, l *login, limit time.Duration,
	before *learnt) (*connection, error) {
	conn, err := o.open(ctx, creds, l, limit, l.sasl(creds.Host))
	if errors.Is(err, amqpclient.ErrWantsSASL) {
		conn, err = o.open(ctx, creds, l, limit, l.without(creds.Host))
		if errors.Is(err, amqpclient.ErrNoMechanism) {
			err = &transport.Error{Kind: transport.Unsupported, Err: errNoMechanism}
		}
	}
	if err != nil {
		return nil, err
	}
	c := &connection{Conn: conn, opt: o, host: creds.DialHost(), user: l.user, expires: l.expires()}
	c.tokens, c.window = newTokens(c), newWindow(c.Conn, o.IdleTimeout, before)
	return c, nil
}

// open makes a connection with a SASL dialogue, or none.
func (o *Options) open(ctx context.Context, creds *transport.Credentials, l *login, limit time.Duration,
	sasl []wire.Init) (*amqpclient.Conn, error) {
	d := o.dialer()
	d.Timeout = limit
	outer, socket, err := d.Dial(ctx, creds, l.cert)
	if err != nil {
		return nil, err
	}
	return amqpclient.Connect(ctx, outer, socket, &amqpclient.Options{Host: creds.Host, IdleTimeout: o.IdleTimeout,
		SASL: sasl})
}

var errNoMechanism = errors.New("the peer insists on SASL, and offers neither MSSBCBS nor ANONYMOUS for tokens, nor " +
	"EXTERNAL for a certificate; set Options.Auth to amqp.AuthPlain if it offers PLAIN")

// maxDevices returns how many devices may share the connection, with an AMQP session each. One
// session is for tokens, and one allows for a session that is about to end.
func (c *connection) maxDevices() int { return c.Sessions() - 2 }

// close closes the connection, orderly if that is quick, and waits for all its goroutines.
func (c *connection) close() {
	c.Conn.Close()
	c.window.stop()
}

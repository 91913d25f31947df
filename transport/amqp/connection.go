package amqp

import (
	"context"
	"crypto/tls"
	"errors"
	"sync"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/hubline-iot/hubline/internal/amqpconn"
	"github.com/hubline-iot/hubline/internal/amqpscreen"
	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/transport"
)

// connection is one AMQP connection, of one device or shared by the devices of a Mux.
type connection struct {
	*amqpconn.Conn
	opt    *Options
	tokens *tokens
	window *window
	host   string
	user   string // of SASL PLAIN
	idle   idleLinks

	// background are the goroutines of begin, and goroutines of devices that left while a call of the
	// library blocked them, ignoring its context. close waits for them.
	background sync.WaitGroup

	mu      sync.Mutex // guards the fields below; never held during I/O
	closing bool       // close was called: begin starts no more goroutines

	// For a Mux, guarded by its mutex.
	dial     *dialing // the dial that made it
	users    int
	accepted bool // the hub accepted a device on it
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

// sasl returns the SASL mechanism. It is nil where CBS or TLS proves the identity, because a hub
// expects no SASL then.
func (l *login) sasl() amqp.SASLType {
	switch l.auth {
	case AuthPlain:
		return amqp.SASLTypePlain(l.user, l.token.Text.Reveal())
	case AuthExternal:
		return amqp.SASLTypeExternal("")
	case AuthAnonymous:
		return amqp.SASLTypeAnonymous()
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
	conn, err := o.open(ctx, creds, l, limit, nil)
	if errors.Is(err, amqpconn.ErrWantsSASL) {
		conn, err = o.open(ctx, creds, l, limit, l.without(creds.Host))
		if errors.Is(err, amqpconn.ErrWantsSASL) { // again, after the dialogue
			err = amqpscreen.ErrNotAMQP
		}
	}
	if err != nil {
		return nil, err
	}
	c := &connection{Conn: conn, opt: o, host: creds.DialHost(), user: l.user}
	c.tokens, c.window = newTokens(c), newWindow(c.Stream, o.IdleTimeout, before)
	return c, nil
}

// open makes a connection. inits are for a SASL dialogue before the library's handshake, nil for
// none.
func (o *Options) open(ctx context.Context, creds *transport.Credentials, l *login, limit time.Duration,
	inits []wire.Init) (*amqpconn.Conn, error) {
	d := o.dialer()
	d.Timeout = limit
	outer, socket, err := d.Dial(ctx, creds, l.cert)
	if err != nil {
		return nil, err
	}
	sasl := l.sasl()
	if inits != nil {
		sasl = nil
		switch err := amqpconn.Authenticate(ctx, outer, socket, inits, nil); {
		case errors.Is(err, amqpconn.ErrNoMechanism):
			return nil, &transport.Error{Kind: transport.Unsupported, Err: errNoMechanism}
		case err != nil:
			return nil, err
		}
	}
	return amqpconn.Connect(ctx, outer, socket, &amqp.ConnOptions{HostName: creds.Host, IdleTimeout: o.IdleTimeout,
		SASLType: sasl})
}

var errNoMechanism = errors.New("the peer insists on SASL, and offers neither MSSBCBS nor ANONYMOUS for tokens, nor " +
	"EXTERNAL for a certificate; set Options.Auth to amqp.AuthPlain if it offers PLAIN")

// begin begins an AMQP session. The end of ctx ends the wait but not the library's call: after a
// cancelled call the library writes end with its next call, even if it never wrote begin. A hub
// closes the whole connection for that [AMQP 1.0, 2.5.5]. So a session that begins too late is
// ended afterwards.
func (c *connection) begin(ctx context.Context) (*amqp.Session, error) {
	switch err := c.Stream.AcquireSession(ctx, c.Done()); {
	case errors.Is(err, amqpscreen.ErrClosed):
		return nil, c.Loss()
	case err != nil:
		return nil, err
	}
	type result struct {
		session *amqp.Session
		err     error
	}
	begun := make(chan result)
	c.mu.Lock()
	closing := c.closing
	if !closing {
		c.background.Go(func() {
			var r result
			r.session, r.err = c.NewSession(context.Background(), nil) // the connection's end ends it
			select {
			case begun <- r:
			case <-ctx.Done():
				if r.err == nil {
					_ = r.session.Close(ctx) // sends end without waiting for its answer
				}
			}
		})
	}
	c.mu.Unlock()
	if closing {
		return nil, amqpscreen.ErrClosed
	}
	select {
	case r := <-begun:
		return r.session, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// sessions returns how many AMQP sessions the peer allows.
func (c *connection) sessions() int { return c.Stream.Sessions() }

// maxDevices returns how many devices may share the connection, with an AMQP session each. One
// session is for tokens, and one allows for a session that is about to end.
func (c *connection) maxDevices() int { return c.sessions() - 2 }

// close closes the connection, orderly if that is quick, and waits for all its goroutines.
func (c *connection) close() {
	c.mu.Lock()
	c.closing = true
	c.mu.Unlock()
	c.Conn.Close()
	c.idle.stop()
	c.window.stop()
	c.tokens.join()
	c.background.Wait()
}

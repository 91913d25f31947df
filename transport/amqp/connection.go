package amqp

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"sync"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/hubline-iot/hubline/internal/callback"
	"github.com/hubline-iot/hubline/transport"
)

// connection is one AMQP connection, of one device or shared by the devices of a Mux.
type connection struct {
	opt    *Options
	stream *stream
	amqp   *amqp.Conn
	tokens *tokens
	window *window
	host   string
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

const (
	// closeTimeout is how long an orderly close may take.
	closeTimeout = 700 * time.Millisecond
	// endTimeout is how long a device that leaves a shared connection waits for the end of its AMQP
	// session.
	endTimeout = 500 * time.Millisecond
)

// login holds the credentials that prove an identity.
type login struct {
	auth           Auth
	cert           *tls.Certificate
	token          transport.Token // the zero Token when none is needed
	user, password string          // of Plain
}

// prove gets the login from the credentials and options. Its error is a cause for dialer.Protocol.
func (o *Options) prove(ctx context.Context, creds *transport.Credentials) (l login, err error) {
	l.auth = o.auth(creds)
	d := o.dialer()
	if o.Network.Certificate != nil || l.auth == AuthDefault || l.auth == External {
		if l.cert, err = d.ClientCertificate(ctx, creds); err != nil {
			return l, err
		}
	}
	if l.auth == CBS || l.auth == Plain && o.Login == nil {
		switch l.token, err = creds.NewToken(ctx); {
		case err != nil:
			return l, err
		case l.token.Text.Reveal() == "":
			return l, protocol.Invalid("options: Auth is " + l.auth.String() + ", but the credentials have neither Sign nor " +
				"Token")
		}
	}
	switch {
	case l.auth != Plain:
	case o.Login == nil:
		l.user, l.password = userName(creds), l.token.Text.Reveal()
	default:
		if failed := callback.Run("Options.Login", func() { l.user, l.password, err = o.Login(ctx) }); failed != nil {
			err = failed
		}
		if err != nil {
			if transport.KindOf(err) == transport.Unknown && ctx.Err() == nil {
				err = &transport.Error{Kind: transport.Unauthorized, Err: err}
			}
			return l, err
		}
	}
	return l, nil
}

// sasl returns the SASL mechanism. It is nil where CBS or TLS proves the identity, because a hub
// expects no SASL then.
func (l *login) sasl() amqp.SASLType {
	switch l.auth {
	case Plain:
		return amqp.SASLTypePlain(l.user, l.password)
	case External:
		return amqp.SASLTypeExternal("")
	case Anonymous:
		return amqp.SASLTypeAnonymous()
	case AuthDefault, CBS:
	}
	return nil
}

// connect dials and does the handshakes. before is the learnt state of earlier connections. The
// error is a cause for dialer.Protocol.
func (o *Options) connect(ctx context.Context, creds *transport.Credentials, l *login, before *learnt) (*connection,
	error) {
	outer, socket, err := o.dialer().Dial(ctx, creds, l.cert)
	if err != nil {
		return nil, err
	}
	c := &connection{opt: o, host: creds.DialHost(), stream: newStream(outer, socket)}
	stop := context.AfterFunc(ctx, func() { c.stream.fail(errClosed) }) // the library would send close before it ends
	c.amqp, err = amqp.NewConn(ctx, c.stream, &amqp.ConnOptions{
		ContainerID: "hubline-" + rand.Text(), HostName: creds.Host, MaxFrameSize: maxFrame,
		IdleTimeout: o.IdleTimeout, WriteTimeout: -1, SASLType: l.sasl(),
	})
	stop()
	switch cause := c.stream.failure(); {
	case err == nil && ctx.Err() == nil:
		c.tokens, c.window = newTokens(c), newWindow(c.stream, o.IdleTimeout, before)
		return c, nil
	case err == nil:
		err = context.Cause(ctx)
		c.stream.fail(errClosed)
		_ = c.amqp.Close()
	case cause != nil && cause != errClosed:
		err = cause // the library's error may describe a consequence
	default:
		err = handshakeError(err)
	}
	c.stream.fail(errClosed)
	<-c.stream.flushed
	return nil, err
}

// begin begins an AMQP session. The end of ctx ends the wait but not the library's call: after a
// cancelled call the library writes end with its next call, even if it never wrote begin. A hub
// closes the whole connection for that [AMQP 1.0, 2.5.5]. So a session that begins too late is
// ended afterwards.
func (c *connection) begin(ctx context.Context) (*amqp.Session, error) {
	switch err := c.stream.sessions.acquire(ctx, c.sessions(), c.ended()); {
	case err == errClosed:
		return nil, c.loss()
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
			r.session, r.err = c.amqp.NewSession(context.Background(), nil) // the connection's end ends it
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
		return nil, errClosed
	}
	select {
	case r := <-begun:
		return r.session, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// sessions returns how many AMQP sessions the peer allows.
func (c *connection) sessions() int { return int(c.stream.screen.sessions.Load()) }

// maxDevices returns how many devices may share the connection, with an AMQP session each. One
// session is for tokens, and one allows for a session that is about to end.
func (c *connection) maxDevices() int { return c.sessions() - 2 }

// ended is closed when the connection has ended.
func (c *connection) ended() <-chan struct{} { return c.amqp.Done() }

// gone reports whether the connection has ended.
func (c *connection) gone() bool {
	select {
	case <-c.ended():
		return true
	default:
		return false
	}
}

// loss returns why the connection ended: the hub's error, or the network's.
func (c *connection) loss() error {
	<-c.ended()
	err := c.amqp.Err()
	if e, ok := errors.AsType[*amqp.ConnError](err); ok && e.RemoteErr != nil {
		return conditionOf("connection", e.RemoteErr)
	}
	if cause := c.stream.failure(); cause != nil && cause != errClosed {
		return cause
	}
	if err == nil {
		return conditionOf("connection", nil) // closed without an error, or by this side
	}
	return err
}

// explain returns the underlying cause of an error of the library.
func (c *connection) explain(err error) error {
	if isConn(err) {
		return c.loss()
	}
	if e := endedByLibrary(err); e != nil {
		return e
	}
	if e := ended(err); e != nil {
		return e
	}
	return err
}

// close closes the connection, orderly within closeTimeout, and waits for all its goroutines.
func (c *connection) close() {
	c.mu.Lock()
	c.closing = true
	c.mu.Unlock()
	limit := time.AfterFunc(closeTimeout, func() { c.stream.fail(errClosed) })
	_ = c.amqp.Close()
	<-c.stream.flushed
	limit.Stop()
	c.idle.stop()
	c.window.stop()
	c.tokens.join()
	c.background.Wait()
}

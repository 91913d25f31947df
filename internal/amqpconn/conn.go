// Package amqpconn is a connection of the AMQP library over a screened stream, and says what errors
// of the library mean.
package amqpconn

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/hubline-iot/hubline/internal/amqpscreen"
	"github.com/hubline-iot/hubline/internal/dialer"
)

// Conn is an open AMQP connection. The connection's goroutines end with Close.
type Conn struct {
	*amqp.Conn
	Stream *amqpscreen.Stream
}

// closeTimeout is how long an orderly close may take.
const closeTimeout = 700 * time.Millisecond

// Connect does the handshakes of AMQP over the connections that dialer.Dialer.Dial returned. It
// sets the fields of o that suit the stream: container id, frame size and write time-out. On error
// the connections are closed; the error is a cause for dialer.Protocol.
func Connect(ctx context.Context, outer, socket net.Conn, o *amqp.ConnOptions) (*Conn, error) {
	o.ContainerID, o.MaxFrameSize, o.WriteTimeout = "hubline-"+rand.Text(), amqpscreen.MaxFrame, -1
	c := &Conn{Stream: amqpscreen.New(outer, socket)}
	// the library would send close before it ends
	stop := context.AfterFunc(ctx, func() { c.Stream.Fail(amqpscreen.ErrClosed) })
	var err error
	c.Conn, err = amqp.NewConn(ctx, c.Stream, o)
	stop()
	switch cause := c.Stream.Failure(); {
	case err == nil && ctx.Err() == nil:
		return c, nil
	case err != nil && o.SASLType == nil && c.Stream.SASL():
		err = ErrWantsSASL
	case err == nil:
		err = context.Cause(ctx)
		c.Stream.Fail(amqpscreen.ErrClosed)
		_ = c.Conn.Close()
	case cause != nil && !errors.Is(cause, amqpscreen.ErrClosed):
		err = cause // the library's error may describe a consequence
		if c.Stream.Received().IsZero() {
			err = dialer.First{Err: cause, Want: "AMQP"}
		}
	default:
		err = handshakeError(err)
	}
	c.Stream.Fail(amqpscreen.ErrClosed)
	<-c.Stream.Flushed()
	return nil, err
}

// Gone reports whether the connection has ended.
func (c *Conn) Gone() bool {
	select {
	case <-c.Done():
		return true
	default:
		return false
	}
}

// Loss returns why the connection ended: the peer's error, or the network's.
func (c *Conn) Loss() error {
	<-c.Done()
	err := c.Err()
	if e, ok := errors.AsType[*amqp.ConnError](err); ok && e.RemoteErr != nil {
		return ConditionOf("connection", e.RemoteErr)
	}
	if cause := c.Stream.Failure(); cause != nil && !errors.Is(cause, amqpscreen.ErrClosed) {
		return cause
	}
	if err == nil {
		return ConditionOf("connection", nil) // closed without an error, or by this side
	}
	return err
}

// Explain returns the underlying cause of an error of the library.
func (c *Conn) Explain(err error) error {
	if IsConn(err) {
		return c.Loss()
	}
	if e := endedByLibrary(err); e != nil {
		return e
	}
	if e := Ended(err); e != nil {
		return e
	}
	return err
}

// Close closes the connection, orderly within 700 ms, and waits for its goroutines.
func (c *Conn) Close() {
	limit := time.AfterFunc(closeTimeout, func() { c.Stream.Fail(amqpscreen.ErrClosed) })
	_ = c.Conn.Close()
	<-c.Stream.Flushed()
	limit.Stop()
}

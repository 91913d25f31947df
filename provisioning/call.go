package provisioning

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/hubline-iot/hubline/internal/callback"
	"github.com/hubline-iot/hubline/internal/lifetime"
	"github.com/hubline-iot/hubline/transport"
)

// shared is what registrations and calls of a device share, also those of the copies that WithCSR
// makes. The service may allow a device one connection.
type shared struct {
	turn chan struct{} // capacity 1; holds a value during a call or an attempt to register
	line line          // owned by the holder of turn, as is idle
	idle *time.Timer   // closes line; nil before the first call

	// hold holds a registration back; nil without Before. It has its own function value, so that
	// boards that use no Before do not link it.
	hold func(*registration) error
	left atomic.Int64 // what is left of holdTime
}

// take waits for the turn.
func (r *registration) take() *transport.Error {
	select {
	case r.c.shared.turn <- struct{}{}:
		r.holds = true
		return nil
	case <-r.ctx.Done():
		return r.cancelled()
	}
}

// give ends the turn, and leaves the session to the next one.
func (r *registration) give() {
	if r.holds {
		r.holds = false
		<-r.c.shared.turn
	}
}

// closeIdle closes the session, unless somebody has the turn.
func (s *shared) closeIdle() {
	select {
	case s.turn <- struct{}{}:
		s.line.closeSession()
		<-s.turn
	default:
	}
}

// holdTime is how long Before may hold registrations back, in all.
const holdTime = time.Minute

// maxCall bounds the name of an operation.
const maxCall = 64

// Call makes one request that is not part of a registration, such as one of package
// update/dpsupdate, and returns the service's answer, whatever its status. name is that of the
// operation. body is JSON of at most 96 KB.
//
// Calls and attempts to register share a connection, one after the other. It stays open for half a
// minute after a call. A call repeats nothing, with these exceptions. If a connection from before
// the call turns out to be lost, the request is sent once more over a new one; the service may have
// received it twice. A refused token leads to the other key, or to a token by the service's time,
// as in Register.
//
// The error is a *transport.Error with the Kinds of Register: Unauthorized for a refused token,
// Invalid and TooLarge before anything is sent, Unsupported if the service takes no calls by the
// Carrier (Limited) or from devices with a TPM, Cancelled when ctx ends.
func (c *Client) Call(ctx context.Context, name string, body []byte) (*Answer, error) {
	if err := c.checkCall(name, body); err != nil {
		return nil, err
	}
	own := *c
	own.version = c.callVersion()
	r := &registration{c: &own, ctx: ctx, line: &c.shared.line, attempt: 1}
	if failure := r.take(); failure != nil {
		return nil, about(failure)
	}
	defer r.give()
	var answer *Answer
	var failure *transport.Error
	if failed := callback.Run(callbacks,
		func() { answer, failure = r.call(&Request{Call: name, Body: body}) }); failed != nil {
		failure = callbackFailed(failed)
	}
	s := c.shared
	if s.idle != nil {
		s.idle.Stop()
	}
	s.idle = time.AfterFunc(maxIdle, s.closeIdle)
	if failure != nil {
		return nil, about(failure)
	}
	return answer, nil
}

// about returns the error of a registration as that of a call.
func about(e *transport.Error) *transport.Error {
	own := *e
	own.Op = transport.OpCall
	return &own
}

func (c *Client) checkCall(name string, body []byte) error {
	fail := func(kind transport.Kind, text string) error {
		return &transport.Error{Kind: kind, Op: transport.OpCall, Err: errors.New(text)}
	}
	switch lacks := c.lacksCalls(); {
	case !consistsOf(name, "-", maxCall):
		return fail(transport.Invalid, "the name of the operation has other characters than letters, digits and -, or none")
	case len(body) > maxBody:
		return fail(transport.TooLarge, name+": "+strconv.Itoa(len(body))+" bytes; the service takes "+strconv.Itoa(maxBody))
	case lacks != "":
		return fail(transport.Unsupported, name+": "+lacks)
	}
	return nil
}

// lacksCalls returns why the client can make no calls; empty if it can.
func (c *Client) lacksCalls() string {
	if l, ok := c.carrier.(Limited); ok {
		return l.LacksCalls()
	}
	return c.id.lacksCalls()
}

// callVersion returns the version of the API for calls.
func (c *Client) callVersion() string {
	if c.opt.APIVersion != "" {
		return c.opt.APIVersion
	}
	return apiVersionPreview
}

// statusUnauthorized is the answer to a refused token over HTTPS.
const statusUnauthorized = 401

// call makes one request. A session that was open before may have been lost meanwhile.
func (r *registration) call(q *Request) (*Answer, *transport.Error) {
	kept := r.session != nil
	for {
		answer, err := r.exchange(q)
		if err == nil {
			if answer.Status != statusUnauthorized {
				return answer, nil
			}
			err = refusal(answer.Status, answer.RetryAfter, answer.Body, "message")
		}
		failure := r.judge(err)
		switch {
		case r.otherProof(failure):
		case kept && failure.Kind == transport.Network:
			kept = false
		default:
			return nil, failure
		}
	}
}

// CloseIdle closes the connection of Call, unless it is in use. A device calls it before it sleeps.
func (c *Client) CloseIdle() { c.shared.closeIdle() }

// Before makes registrations wait for f, until f has returned nil once or has taken a minute in
// all: then its ctx ends. An error of f is in an Event, and delays nothing else. f may use Call,
// which uses the connection of the registration. Call Before ahead of the first registration.
//
// Registrations ask for the API version 2026-11-02-preview then, the one with calls, unless
// Options.APIVersion is set.
func (c *Client) Before(f func(ctx context.Context) error) {
	c.version = c.callVersion()
	c.shared.left.Store(int64(holdTime))
	c.shared.hold = func(r *registration) error { return r.holdFor(f) }
}

// holdFor runs f, with a connection to the service that calls may use. The error is that of the
// connection, or of an ended context.
func (r *registration) holdFor(f func(context.Context) error) error {
	s := r.c.shared
	left := time.Duration(s.left.Load())
	if left <= 0 {
		return nil
	}
	if err := r.ready(); err != nil {
		return err
	}
	r.publish(Event{Step: StepHolding, Attempt: r.attempt})
	began := time.Now()
	ctx, end := lifetime.WithinTime(r.ctx, left)
	s.left.Store(0) // a concurrent registration does not wait
	r.give()
	err := callback.Call("Client.Before", func() error { return f(ctx) })
	end()
	if err != nil {
		s.left.Store(int64(left - time.Since(began)))
	}
	r.publish(Event{Step: StepReleased, Attempt: r.attempt, Err: err})
	if cancelled := r.take(); cancelled != nil {
		return cancelled
	}
	return nil
}

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

// calls is what Call, Before and CloseIdle share, also between the copies that WithCSR makes.
type calls struct {
	turn chan struct{} // capacity 1; its holder owns line and idle
	line line
	idle *time.Timer // closes line; nil: no session was kept yet

	// hold holds a registration back; nil without Before. It has its own function value, so that
	// boards that use no Before do not link it.
	hold func(*registration) error
	left atomic.Int64 // what is left of holdTime
}

// holdTime is how long Before may hold registrations back, in all.
const holdTime = time.Minute

// maxCall bounds the name of an operation.
const maxCall = 64

// Call makes one request that is not part of a registration, such as one of package
// update/dpsupdate, and returns the service's answer, whatever its status. name is that of the
// operation. body is JSON of at most 96 KB.
//
// Calls share a connection, one after the other. It stays open for half a minute after each call.
// A call repeats nothing, with these exceptions: a connection that was lost between two calls is
// replaced, and a refused token leads to the other key, or to a token by the service's time, as in
// Register.
//
// The error is a *transport.Error with the Kinds of Register: Unauthorized for a refused token,
// Invalid and TooLarge before anything is sent, Unsupported if the service takes no calls by the
// Carrier (Limited) or from devices with a TPM, Cancelled when ctx ends.
func (c *Client) Call(ctx context.Context, name string, body []byte) (*Answer, error) {
	if err := c.checkCall(name, body); err != nil {
		return nil, err
	}
	s, own := c.calls, *c
	own.version = c.callVersion()
	r := &registration{c: &own, ctx: ctx, attempt: 1}
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, about(r.cancelled())
	}
	r.line = s.line
	answer, failure := r.call(&Request{Call: name, Body: body})
	s.line = r.line
	s.end()
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

// CloseIdle closes the connection of Call, unless a call is being made. A device calls it before it
// sleeps.
func (c *Client) CloseIdle() { c.calls.closeIdle() }

func (s *calls) closeIdle() {
	if s.begin() {
		s.line.closeSession()
		s.end()
	}
}

// begin takes the turn, if nobody has it.
func (s *calls) begin() bool {
	select {
	case s.turn <- struct{}{}:
		return true
	default:
		return false
	}
}

// end gives the turn back. A session that is not used is closed later.
func (s *calls) end() {
	if s.idle != nil {
		s.idle.Stop()
	}
	if s.line.session != nil {
		s.idle = time.AfterFunc(maxIdle, s.closeIdle)
	}
	<-s.turn
}

// Before makes registrations wait for f, until f has returned nil once or has taken a minute in
// all: then its ctx ends. An error of f is in an Event, and delays nothing else. f may use Call,
// which uses the connection of the registration. Call Before ahead of the first registration.
//
// Registrations ask for the API version 2026-11-02-preview then, the one with calls, unless
// Options.APIVersion is set.
func (c *Client) Before(f func(ctx context.Context) error) {
	c.version = c.callVersion()
	c.calls.left.Store(int64(holdTime))
	c.calls.hold = func(r *registration) error { return r.holdFor(f) }
}

// holdFor runs f, with a connection to the service. The error is that of the connection.
func (r *registration) holdFor(f func(context.Context) error) error {
	s := r.c.calls
	left := time.Duration(s.left.Swap(0)) // a concurrent registration does not wait
	if left <= 0 {
		return nil
	}
	if err := r.ready(); err != nil {
		s.left.Store(int64(left))
		return err
	}
	r.publish(Event{Step: StepHolding, Attempt: r.attempt})
	began := time.Now()
	ctx, end := lifetime.WithinTime(r.ctx, left)
	s.swap(&r.line)
	var err error
	if failed := callback.Run("Client.Before", func() { err = f(ctx) }); failed != nil {
		err = failed
	}
	s.swap(&r.line)
	end()
	if err != nil {
		s.left.Store(int64(left - time.Since(began)))
	}
	r.publish(Event{Step: StepReleased, Attempt: r.attempt, Err: err})
	return nil
}

// swap exchanges l with the session of calls, unless a call is being made: that has its own.
func (s *calls) swap(l *line) {
	if s.begin() {
		s.line, *l = *l, s.line
		s.end()
	}
}

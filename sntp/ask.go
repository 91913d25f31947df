package sntp

import (
	"context"
	"errors"
	"time"

	"github.com/hubline-iot/hubline/internal/callback"
	"github.com/hubline-iot/hubline/internal/scrub"
	"github.com/hubline-iot/hubline/transport"
)

const (
	// maxStray bounds the datagrams that one attempt ignores.
	maxStray = 64
	// glance is how long one Read waits at most, so that the end of the context is noticed without a
	// goroutine.
	glance = 250 * time.Millisecond
)

// ask sends a request to s and waits for the answer. began and ended are times of the own clock.
func (c *Clock) ask(ctx context.Context, s *server) (a answer, began, ended time.Time, err error) {
	if failed := callback.Run("the dial function of sntp.New, its connection, Options.Rand or Options.Now", func() {
		conn, dialErr := c.dial(ctx, s.name)
		switch {
		case dialErr != nil:
			err = asNetwork(dialErr)
			return
		case conn == nil:
			err = invalid("the dial function of sntp.New returned no connection")
			return
		}
		defer conn.Close()
		began = c.opt.Now() // also if the exchange panics: the server may have been asked
		a, began, ended, err = c.exchange(ctx, conn)
	}); failed != nil {
		err = asNetwork(failed)
	}
	return a, began, ended, err
}

// exchange sends a request and waits for the answer. It allocates nothing.
func (c *Clock) exchange(ctx context.Context, conn Conn) (a answer, began, ended time.Time, err error) {
	nonce := c.opt.Rand()
	began = c.opt.Now()
	if _, err := conn.Write(appendRequest(c.out[:0], nonce)); err != nil {
		return answer{}, began, ended, asNetwork(err)
	}
	end := began.Add(c.opt.Timeout)
	for range maxStray {
		n, err := c.read(ctx, conn, end)
		ended = c.opt.Now()
		if err != nil {
			return answer{}, began, ended, err
		}
		a, err = parse(c.in[:n], nonce, &c.earliest)
		if errors.Is(err, errStray) {
			continue
		}
		if trip := ended.Sub(began); err == nil && (trip > c.opt.MaxRoundTrip || a.held > trip) {
			err = errSlow
		}
		return a, began, ended, err
	}
	return answer{}, began, ended, errManyStray
}

// read returns the size of the next datagram in c.in.
func (c *Clock) read(ctx context.Context, conn Conn, end time.Time) (int, error) {
	for {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		now := c.opt.Now()
		left := end.Sub(now)
		if left <= 0 {
			return 0, errNoAnswer
		}
		// The deadline is by the connection's clock, which is the system's.
		if err := conn.SetReadDeadline(time.Now().Add(min(left, glance))); err != nil {
			return 0, asNetwork(err)
		}
		n, err := conn.Read(c.in[:])
		switch {
		case n > 0:
			return min(n, len(c.in)), nil
		case err == nil:
			return 0, nil // an empty datagram
		}
		if late, ok := err.(interface{ Timeout() bool }); !ok || !late.Timeout() {
			return 0, asNetwork(err)
		}
	}
}

// asNetwork makes the error of a connection a *transport.Error, if it is none, and hides its
// secrets.
func asNetwork(err error) error {
	err = scrub.Cause(err)
	if transport.Find(err) != nil {
		return err
	}
	return &transport.Error{Kind: transport.Network, Scope: transport.ScopeConnection, Proto: proto, Err: err}
}

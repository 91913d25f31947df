package amqp

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/transport"
)

// dialing is a dial, which runs on its own goroutine. It continues while a device waits for it, for
// Options.OperationTimeout at most.
type dialing struct {
	creds  *transport.Credentials // the device that began it
	skew   time.Duration          // of its clock
	limit  time.Duration          // for the socket
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when the dial ends
	// err is why it failed; valid after done. A connection that ends before a device was accepted on
	// it also counts as a failed dial: then Mux.mu guards err.
	err *transport.Error

	// Guarded by Mux.mu.
	conn    *connection // the result
	waiters int         // the last one that leaves ends the dial, or an unused result
}

// The pause after a failed dial begins with minPause and doubles up to maxPause.
const minPause, maxPause = time.Second, 30 * time.Second

// awaitLimit is how long a device that must not dial waits for the dial of another one. Then it
// gets the latest failure. It is less than the usual DialTimeout, which would hide that failure.
const awaitLimit = 8 * time.Second

// connection returns the live connection, or that of a dial, which the caller waits for or begins.
// It counts the caller as a user. proof gets the caller's login before a dial: a device without a
// login does not dial.
func (m *Mux) connection(ctx context.Context, cfg *transport.Config, proof func() (login, error)) (*connection,
	error) {
	creds := cfg.Creds
	began := time.Now()
	limit, skew := began.Add(awaitLimit), m.skew(creds)
	proven := false
	for ctx.Err() == nil {
		m.mu.Lock()
		c, err := m.livingLocked(creds)
		if c != nil || err != nil {
			m.mu.Unlock()
			return c, err
		}
		changed := m.changed
		refused, wait := m.pausedLocked(creds, skew)
		switch d := m.dialing; {
		case d != nil && d.waiters > 0 && d.creds.DialHost() == creds.DialHost():
			d.waiters++
			m.mu.Unlock()
			if c, err := m.wait(ctx, d, creds, skew); c != nil || err != nil {
				return c, err
			}
		case d != nil: // to another host, or about to end
			m.mu.Unlock()
			select {
			case <-d.done:
			case <-ctx.Done():
			}
		case refused != nil:
			m.mu.Unlock()
			left := time.Until(limit)
			if refused.RetryAfter > 0 || left <= 0 {
				return nil, refused
			}
			again := time.NewTimer(min(wait, left))
			select {
			case <-changed:
			case <-again.C:
			case <-ctx.Done():
			}
			again.Stop()
		case !proven:
			m.mu.Unlock()
			if _, err := proof(); err != nil {
				return nil, err
			}
			proven = true
		default:
			l, _ := proof()
			d := m.beginLocked(cfg, skew, &l)
			m.mu.Unlock()
			if c, err := m.wait(ctx, d, creds, skew); c != nil || err != nil {
				return c, err
			}
		}
	}
	return nil, ctx.Err()
}

// livingLocked returns the live connection and adds a user, or returns why the caller cannot have
// it, or one in place of a retired one. Both are nil when there is none. mu is held.
func (m *Mux) livingLocked(creds *transport.Credentials) (*connection, error) {
	users := 0
	for _, c := range append([]*connection{m.conn}, m.retired...) {
		if c == nil || c.Gone() {
			continue
		}
		if err := m.fits(c, creds); err != nil {
			return nil, err
		}
		users += c.users
	}
	c := m.conn
	switch {
	case users >= m.opt.Devices && !m.moving[creds.Resource()]:
		return nil, &transport.Error{Kind: transport.Quota, Err: errFull}
	case c == nil || c.Gone():
		return nil, nil
	case c.users >= c.maxDevices():
		return nil, &transport.Error{Kind: transport.Quota, Err: errNoChannel}
	}
	c.users++
	return c, nil
}

// fits returns why a device belongs to another Mux than c. mu is held.
func (m *Mux) fits(c *connection, creds *transport.Credentials) error {
	switch {
	case c.host != creds.DialHost() && !c.accepted:
		// Before the next attempt that device is accepted, and the Mux belongs to its host, or it is
		// refused, as a mistyped host is.
		return &transport.Error{Kind: transport.Unavailable, Err: errors.New("this Mux is connected to " +
			strconv.Quote(c.host) + " for another device, which is not accepted there yet")}
	case c.host != creds.DialHost():
		return protocol.Invalid("this Mux is connected to " + strconv.Quote(c.host) + ", and the device belongs to " +
			strconv.Quote(creds.DialHost()) + "; give it another Mux")
	case m.opt.Addresses != nil && m.opt.user(creds) != c.user:
		return protocol.Invalid("this Mux is connected as another user than the device's UserName; give the device " +
			"another Mux")
	}
	return nil
}

var (
	errFull      = errors.New("the Mux has as many devices as Options.Devices allows; use another Mux")
	errNoChannel = errors.New("the connection has as many devices as the peer allows AMQP sessions (channel-max); use " +
		"another Mux")
)

// pausedLocked returns the failure for which the device must not dial now, and for how long. mu is
// held.
func (m *Mux) pausedLocked(creds *transport.Credentials, skew time.Duration) (*transport.Error, time.Duration) {
	wait := time.Until(m.pausedUntil)
	if m.lastErr == nil || wait <= 0 || m.lastHost != creds.DialHost() || m.lastDialer == creds.Resource() ||
		m.lastErr.Kind == transport.ClockUnset && !alike(m.lastSkew, skew) {
		return nil, 0
	}
	refused := *m.lastErr
	if refused.RetryAfter > 0 {
		refused.RetryAfter = wait
	}
	return &refused, wait
}

// beginLocked begins a dial with the caller as a waiter. mu is held.
func (m *Mux) beginLocked(cfg *transport.Config, skew time.Duration, l *login) *dialing {
	ctx, cancel := context.WithCancelCause(context.Background())
	d := &dialing{creds: cfg.Creds, skew: skew, limit: m.opt.OperationTimeout, cancel: cancel, done: make(chan struct{}),
		waiters: 1}
	if t := cfg.DialTimeout; t > 0 && t < d.limit {
		d.limit = t
	}
	m.dialing = d
	m.notifyLocked()
	go m.dial(ctx, d, l)
	return d
}

// dial is the goroutine of a dial.
func (m *Mux) dial(ctx context.Context, d *dialing, l *login) {
	defer close(d.done)
	conn, err := m.connect(ctx, d, l)
	if !m.dialed(d, conn, err) {
		conn.close()
		m.dialed(d, nil, nil)
	}
}

// connect makes a connection within OperationTimeout. With Addresses it also gets its login.
func (m *Mux) connect(ctx context.Context, d *dialing, l *login) (*connection, error) {
	limit := time.AfterFunc(m.opt.OperationTimeout, func() { d.cancel(errNoAnswer) })
	defer limit.Stop()
	if m.opt.Addresses != nil {
		all, err := m.opt.prove(ctx, d.creds)
		if ctx.Err() != nil {
			err = errNoLogin
		}
		if err != nil {
			return nil, err
		}
		l = &all
	}
	c, err := m.opt.connect(ctx, d.creds, l, d.limit, &m.learnt)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err == nil && c.maxDevices() < 1 {
		c.close()
		return nil, &transport.Error{Kind: transport.Unsupported, Err: errFewSessions}
	}
	return c, err
}

// errNoLogin ends the wait of a dial for the callbacks of the credentials and options.
var errNoLogin = &timeoutError{"the token source or Network.Certificate took longer than Options.OperationTimeout"}

// errFewSessions is for a peer that cannot serve a Mux.
var errFewSessions = errors.New("the peer allows less than three AMQP sessions on a connection (channel-max); " +
	"give each device a Transport of its own")

// dialed records the result of a dial. It returns false when no device waits for the connection.
// The caller then closes the connection and calls again without it; until then the dial counts as
// running.
func (m *Mux) dialed(d *dialing, conn *connection, err error) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if conn != nil && d.waiters == 0 {
		return false
	}
	m.dialing = nil
	if conn != nil {
		conn.dial, conn.began = d, time.Now()
		m.conn, d.conn, m.lastErr = conn, conn, nil
	} else {
		d.cancel(nil)
		if err != nil && d.waiters > 0 { // else it was cancelled
			m.failedLocked(d, err)
		}
	}
	m.notifyLocked()
	return true
}

// notifyLocked wakes the waiters for a change. mu is held.
func (m *Mux) notifyLocked() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// failedLocked records a failed dial, so that a thousand devices do not dial one after the other.
// Only the first failure of a dial counts. mu is held.
func (m *Mux) failedLocked(d *dialing, err error) {
	if d.err != nil {
		return
	}
	d.err = protocol.Error(err)
	if !d.pauses() {
		return
	}
	if host := d.creds.DialHost(); m.lastHost != host {
		m.pause, m.lastHost = 0, host
	}
	m.pause = min(max(2*m.pause, minPause), maxPause)
	m.pausedUntil = time.Now().Add(max(m.pause, min(d.err.RetryAfter, times.MaxRetryAfter)))
	m.lastErr, m.lastDialer, m.lastSkew = d.err, d.creds.Resource(), d.skew
}

// pauses reports whether a failed dial is retried, so that other devices must wait. Clients count
// the failures with ErrMaybeDamaged, so none may be reported to a device twice.
func (d *dialing) pauses() bool {
	switch d.err.Kind {
	case transport.Network, transport.Timeout, transport.Unavailable, transport.Throttled, transport.Quota,
		transport.ClockUnset:
		return true
	case transport.Protocol:
		return errors.Is(d.err, transport.ErrViolation)
	default:
		return false
	}
}

// concerns reports whether a failed dial that does not pause others would have failed for them in
// the same way. A certificate is valid by the clock of a device. With Addresses the dial includes
// the login of one device.
func (m *Mux) concerns(d *dialing, skew time.Duration) bool {
	return errors.Is(d.err, transport.ErrMaybeDamaged) ||
		alike(d.skew, skew) && (m.opt.Addresses == nil || d.err.Kind == transport.Untrusted)
}

// skew returns how far the device's clock is ahead of the system's as that was set when the Mux was
// made: it changes when either of them is set.
func (m *Mux) skew(creds *transport.Credentials) time.Duration {
	return creds.Time().Sub(m.made.UTC()) - time.Since(m.made) // UTC strips the monotonic reading
}

// alike reports whether two clocks show about the same time.
func alike(a, b time.Duration) bool { return (a - b).Abs() < time.Minute }

// wait waits for the end of a dial or of ctx, and then removes the caller from the waiters. It
// returns the connection, with the caller as a user, or why the caller cannot have it. Both are nil
// when the dial of another device failed and may be repeated.
func (m *Mux) wait(ctx context.Context, d *dialing, creds *transport.Credentials, skew time.Duration) (c *connection,
	err error) {
	select {
	case <-d.done:
	case <-ctx.Done():
	}
	m.mu.Lock()
	if err = ctx.Err(); err == nil {
		c, err = m.livingLocked(creds)
	}
	if c == nil && err == nil && d.conn != nil && d.conn.Gone() { // the hub accepted it and has ended it
		m.failedLocked(d, d.conn.Loss())
		err = d.err
	}
	if c == nil && err == nil && d.err != nil && (d.creds == creds || !d.pauses() && m.concerns(d, skew)) {
		err = d.err
	}
	d.waiters--
	last, running := d.waiters == 0, m.dialing == d
	unused := m.unusedLocked(d.conn)
	m.mu.Unlock()
	switch {
	case last && running:
		d.cancel(context.Canceled)
		<-d.done
	case unused:
		d.conn.hangUp()
	}
	return c, err
}

// accept records that a device is accepted on the connection.
func (m *Mux) accept(c *connection, resource string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.moving, resource)
	if !c.accepted {
		c.accepted, c.pause, m.pause = true, m.pause, 0
	}
	if m.connected != nil {
		close(m.connected)
		m.connected = nil
	}
}

// steadyTime is how long a connection lasts that was worth its dial.
const steadyTime = 5 * time.Second

// release removes a user. The last one closes the connection. A connection that ended before a
// device was accepted, or soon after its dial, counts as a failed dial: a hub, or a proxy before
// it, may accept connections, and tokens, and then end them.
func (m *Mux) release(c *connection) {
	m.mu.Lock()
	c.users--
	if c.Gone() && !c.judged {
		c.judged = true
		if !c.accepted || time.Since(c.began) < steadyTime {
			m.pause = max(m.pause, c.pause)
			m.failedLocked(c.dial, c.Loss())
		}
	}
	unused := m.unusedLocked(c)
	m.mu.Unlock()
	if unused {
		c.hangUp()
	}
}

// unusedLocked reports whether a connection has no user, and no waiter of its dial can become one.
// It returns true once, to the caller that must close the connection. mu is held.
func (m *Mux) unusedLocked(c *connection) bool {
	if c == nil || c.users > 0 || c.dial.waiters > 0 {
		return false
	}
	if m.conn == c {
		m.conn = nil
	}
	m.retired = slices.DeleteFunc(m.retired, func(r *connection) bool { return r == c })
	return true
}

// hangUp closes a connection of a Mux, and ends the context of its dial, which callbacks in the
// options may use.
func (c *connection) hangUp() {
	c.close()
	c.dial.cancel(nil)
}

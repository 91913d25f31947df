package amqp

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// Mux is a Transport whose sessions share one connection: a gateway's, for up to a thousand devices
// and modules of one hub. Each has its own session of AMQP, token, links and errors, and a client's
// own loop, retry policy and status; what happens to one does not disturb the others. A device
// joins by opening its client and leaves by closing it, at any time. The connection is made when
// the first joins and closed when the last leaves. When it is lost, all lose their sessions
// together; it is dialed once for all, and Options.Parallel devices at a time come back.
//
// The devices take turns on a connection that is slow: what it has in flight follows its rate. An
// answer is late when the hub has stopped answering what was sent before it, however long that
// takes. A connection whose hub is silent while it owes an answer (Options.IdleTimeout) is lost for
// all.
//
// Devices prove themselves by CBS, so each needs credentials with Sign or Token; or, with
// Options.Addresses, the one that begins a dial does so for all, by SASL or certificate. A Mux is
// safe for concurrent use. There is nothing to close.
type Mux struct {
	opt Options
	err error // what Dial returns for wrong options

	learnt learnt

	places chan struct{} // of devices that are being authenticated
	placed atomic.Uint32 // devices that have waited for a place and got one

	mu      sync.Mutex // guards what follows; held for memory only
	conn    *connection
	dialing *dialing // nil: no dial is under way
	// After a dial that failed, no other device begins one to that host before until. A host is not
	// held against the devices of another one, which may be mistyped.
	gap   time.Duration
	until time.Time
	last  *transport.Error
	host  string        // that was dialed
	by    string        // the device that had begun it; its own policy paces its next one
	news  chan struct{} // closed, and replaced, when a dial begins or has ended

	connected chan struct{} // closed when a device is accepted on a connection; nil unless somebody waits
}

var _ transport.Transport = (*Mux)(nil)

// dialing is a dial on its way, on a goroutine of its own. It belongs to all who wait for it: it
// goes on for as long as one of them does, and for Options.OperationTimeout at most.
type dialing struct {
	creds  *transport.Credentials // of the device that began it
	cancel context.CancelCauseFunc
	over   chan struct{} // closed at its end
	// why it failed; valid then. Guarded by Mux.mu when it made a connection, which may fail before it
	// was of use
	err *transport.Error

	conn    *connection // what it made; guarded by Mux.mu
	waiters int         // guarded by Mux.mu; when the last one leaves, the dial ends, or what it made if nobody uses that
}

// After a failed dial of a shared connection the next one waits for this long, and twice as long
// after each further one, up to the second.
const minGap, maxGap = time.Second, 30 * time.Second

// NewMux returns a Mux with the given options, which are copied; nil means all defaults. Wrong
// options are reported by Dial, with Kind Invalid.
func NewMux(o *Options) *Mux {
	m := &Mux{news: make(chan struct{})}
	m.opt, m.err = o.resolve()
	if m.err == nil && m.opt.Addresses == nil && m.opt.Auth != AuthDefault && m.opt.Auth != CBS {
		m.err = protocol.Invalid("options: Auth is " + m.opt.Auth.String() + ", by which one device only can be proved; a " +
			"Mux needs CBS")
	}
	m.places = make(chan struct{}, max(1, m.opt.Parallel))
	return m
}

// Dial makes the device a session of its own, on the connection that there is or on a new one. The
// errors are those of Transport.Dial, and Quota when Options.Devices have joined already, or as
// many as the peer allows.
//
// There is one dial at a time, which all who come meanwhile wait for. It does not end with the
// device that began it, and fails with Timeout after Options.OperationTimeout. While the hub cannot
// be reached, that device begins the next one, as its policy paces it, or another one when it has
// not done so for a while; the calls of the others wait for a success, and return the latest
// failure when they have waited for 8 s. Their retries begin at once when the Mux is connected
// again (transport.Error.Passed). What the hub itself wants to be waited for is returned at once,
// as RetryAfter.
func (m *Mux) Dial(ctx context.Context, cfg *transport.Config) (transport.Session, error) {
	if m.err != nil {
		return nil, m.err
	}
	if err := cfg.Creds.Validate(); err != nil {
		return nil, protocol.Error(err)
	}
	if m.opt.Addresses == nil && cfg.Creds.Sign == nil && cfg.Creds.Token == nil {
		return nil, protocol.Invalid("credentials have neither Sign nor Token, which a Mux needs; a device with a " +
			"certificate needs a Transport of its own")
	}
	s, err := m.join(ctx, cfg)
	if err != nil {
		return nil, m.untilConnected(dialError(ctx, err))
	}
	return s, nil
}

// untilConnected has the failure of a dial pass when the Mux is connected, if that is what was
// missing. So a device does not add its own delay to the delay of the device that dials.
func (m *Mux) untilConnected(e *transport.Error) *transport.Error {
	switch e.Kind {
	case transport.Network, transport.Timeout, transport.Unavailable:
	default:
		return e
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if e.RetryAfter != 0 || m.conn != nil && m.conn.accepted && !m.conn.gone() {
		return e
	}
	if m.connected == nil {
		m.connected = make(chan struct{})
	}
	own := *e
	own.Passed = m.connected
	return &own
}

// join authenticates a device and gives it a session.
func (m *Mux) join(ctx context.Context, cfg *transport.Config) (*session, error) {
	var l login
	var refusal error
	asked := false
	proof := func() (login, error) { // not sync.OnceValues, which panics when the function ends the goroutine
		if !asked {
			l, refusal = m.prove(ctx, cfg)
			asked = true
		}
		return l, refusal
	}
	conn, err := m.connection(ctx, cfg.Creds, proof)
	if err != nil {
		return nil, err
	}
	var s *session
	defer func() {
		if s == nil { // else it releases the connection itself
			m.release(conn)
		}
	}()
	if _, err := proof(); err != nil {
		return nil, err
	}
	err = m.inPlace(ctx, cfg.Progress, func() error {
		if l.auth == CBS {
			if err := conn.tokens.put(ctx, cfg.Creds.Resource(), l.token.Text.Reveal(), cfg.Progress); err != nil {
				return err
			}
		}
		s = newSession(cfg, &m.opt, conn, &l)
		s.shared = true
		s.release = func() { m.release(conn) }
		return s.check(ctx)
	})
	if err != nil {
		return nil, err
	}
	m.accept(conn)
	return s, nil
}

// prove is for each device. Without tokens, what proves the connection is only asked for when one
// is made.
func (m *Mux) prove(ctx context.Context, cfg *transport.Config) (l login, err error) {
	if m.opt.Addresses != nil {
		return login{auth: m.opt.auth(cfg.Creds)}, nil
	}
	err = m.inPlace(ctx, cfg.Progress, func() error {
		l, err = m.opt.prove(ctx, cfg.Creds)
		return err
	})
	return l, err
}

// placeLimit is after how long a device gives its place to the next one, though its token has not
// come from where it is made, or was not answered: those that take long do not hold up the others.
const placeLimit = time.Second

// inPlace runs f when there is a place for it. It calls told, unless that is nil, while it waits
// and other devices get places.
func (m *Mux) inPlace(ctx context.Context, told func(), f func() error) error {
	if err := m.place(ctx, told); err != nil {
		return err
	}
	leave := sync.OnceFunc(func() { <-m.places })
	defer leave()
	limit := time.AfterFunc(placeLimit, leave)
	defer limit.Stop()
	return f()
}

// place waits for a place.
func (m *Mux) place(ctx context.Context, told func()) error {
	select {
	case m.places <- struct{}{}:
		return nil
	default:
	}
	every := time.NewTicker(progressInterval)
	defer every.Stop()
	for {
		before := m.placed.Load()
		select {
		case m.places <- struct{}{}:
			m.placed.Add(1)
			return nil
		case <-every.C:
			if told != nil && m.placed.Load() != before {
				told()
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// awaitLimit is how long a device that must not dial waits for the one that may, before it is told
// why there is no connection: less than the DialTimeout of most, which would not know.
const awaitLimit = 8 * time.Second

// connection returns the one that lives, with the caller counted as a user of it, or the one that
// comes of a dial, which the caller waits for or begins. proof is the caller's, which is asked for
// before a dial: a device that cannot prove itself does not begin one.
func (m *Mux) connection(ctx context.Context, creds *transport.Credentials, proof func() (login, error)) (*connection,
	error) {
	limit := time.Now().Add(awaitLimit)
	proven := false
	for ctx.Err() == nil {
		m.mu.Lock()
		c, err := m.livingLocked(creds)
		if c != nil || err != nil {
			m.mu.Unlock()
			return c, err
		}
		news := m.news
		refused, wait := m.heldLocked(creds)
		switch d := m.dialing; {
		case d != nil && d.waiters > 0 && d.creds.DialHost() == creds.DialHost():
			d.waiters++
			m.mu.Unlock()
			if c, err := m.wait(ctx, d, creds); c != nil || err != nil {
				return c, err
			}
		case d != nil: // to another host, or about to end
			m.mu.Unlock()
			select {
			case <-d.over:
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
			case <-news:
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
			d := m.beginLocked(creds, &l)
			m.mu.Unlock()
			if c, err := m.wait(ctx, d, creds); c != nil || err != nil {
				return c, err
			}
			if d.err != nil {
				return nil, d.err
			}
		}
	}
	return nil, ctx.Err()
}

// livingLocked returns the connection if there is one, with one user more, or why there can be none
// now, or neither. mu is held.
func (m *Mux) livingLocked(creds *transport.Credentials) (*connection, error) {
	c := m.conn
	switch {
	case c == nil || c.gone():
		return nil, nil
	case c.host != creds.DialHost() && !c.accepted:
		// It passes: by the next try that one was refused, as a device whose host is mistyped is, or
		// accepted, which settles whose Mux it is.
		return nil, &transport.Error{Kind: transport.Unavailable, Err: errors.New("a device of " + strconv.Quote(c.host) +
			" has connected this Mux and was not accepted there yet")}
	case c.host != creds.DialHost():
		return nil, protocol.Invalid("the devices of this Mux are connected to " + strconv.Quote(c.host) +
			", this one belongs to " + strconv.Quote(creds.DialHost()) + "; give it another Mux")
	case c.users >= m.opt.Devices:
		return nil, &transport.Error{Kind: transport.Quota, Err: errFull}
	case c.users >= c.maxDevices():
		return nil, &transport.Error{Kind: transport.Quota, Err: errNoChannel}
	}
	c.users++
	return c, nil
}

var (
	errFull      = errors.New("the connection has as many devices as Options.Devices allows; use another Mux")
	errNoChannel = errors.New("the connection has as many devices as the peer allows sessions of AMQP (channel-max); " +
		"use another Mux")
)

// heldLocked returns the failure for which the device must not dial now, and for how long. mu is
// held.
func (m *Mux) heldLocked(creds *transport.Credentials) (*transport.Error, time.Duration) {
	wait := time.Until(m.until)
	if m.last == nil || wait <= 0 || m.host != creds.DialHost() || m.by == creds.Resource() {
		return nil, 0
	}
	refused := *m.last
	if refused.RetryAfter > 0 {
		refused.RetryAfter = wait
	}
	return &refused, wait
}

// beginLocked begins a dial, for which the caller waits. mu is held.
func (m *Mux) beginLocked(creds *transport.Credentials, l *login) *dialing {
	ctx, cancel := context.WithCancelCause(context.Background())
	d := &dialing{creds: creds, cancel: cancel, over: make(chan struct{}), waiters: 1}
	m.dialing = d
	m.tellLocked()
	go m.dial(ctx, d, l)
	return d
}

// dial is the goroutine of a dial.
func (m *Mux) dial(ctx context.Context, d *dialing, l *login) {
	conn, err := m.connect(ctx, d, l)
	m.dialed(ctx, d, conn, err)
}

// connect makes a connection in time. Without tokens it asks for what proves the connection, too.
func (m *Mux) connect(ctx context.Context, d *dialing, l *login) (*connection, error) {
	limit := time.AfterFunc(m.opt.OperationTimeout, func() { d.cancel(errNoAnswer) })
	defer limit.Stop()
	if m.opt.Addresses != nil {
		all, err := m.opt.prove(ctx, d.creds)
		if err != nil {
			return nil, err
		}
		l = &all
	}
	c, err := m.opt.connect(ctx, d.creds, l, &m.learnt)
	if err == nil && c.maxDevices() < 1 {
		c.close()
		return nil, &transport.Error{Kind: transport.Unsupported, Err: errFewSessions}
	}
	return c, err
}

// errFewSessions is why a peer is of no use for a Mux.
var errFewSessions = errors.New("the peer allows less than three sessions of AMQP on a connection (channel-max); " +
	"give each device a Transport of its own")

// dialed is the end of a dial, with what came of it.
func (m *Mux) dialed(ctx context.Context, d *dialing, conn *connection, err error) {
	defer close(d.over)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if conn != nil && d.waiters == 0 {
		m.mu.Unlock()
		conn.close()
		m.mu.Lock() // nobody has joined meanwhile: a dial without waiters is not waited for
		conn = nil
	}
	m.dialing = nil
	switch {
	case conn != nil:
		conn.dial = d
		m.conn, d.conn, m.last = conn, conn, nil
	default:
		d.cancel(nil)
		if err != nil && d.waiters > 0 { // else it was given up
			m.failedLocked(d, err)
		}
	}
	m.tellLocked()
}

// tellLocked wakes those who wait for what changes. mu is held.
func (m *Mux) tellLocked() {
	close(m.news)
	m.news = make(chan struct{})
}

// failedLocked notes a failed dial, so that a thousand devices do not try the same one after the
// other. What no other try can mend is not noted: clients stop by themselves. Only the first
// failure of a dial counts. mu is held.
func (m *Mux) failedLocked(d *dialing, err error) {
	if d.err != nil {
		return
	}
	d.err = protocol.Error(err)
	switch e := d.err; e.Kind {
	case transport.Network, transport.Timeout, transport.Unavailable, transport.Throttled, transport.Quota:
		if host := d.creds.DialHost(); m.host != host {
			m.gap, m.host = 0, host
		}
		m.gap = min(max(2*m.gap, minGap), maxGap)
		m.until, m.last, m.by = time.Now().Add(max(m.gap, e.RetryAfter)), e, d.creds.Resource()
	}
}

// wait waits for the end of a dial, or of ctx, of which the caller is one of the waiters, which it
// is not any more then. It returns the connection with the caller as a user, or why the caller
// cannot have one; neither when the dial failed.
func (m *Mux) wait(ctx context.Context, d *dialing, creds *transport.Credentials) (c *connection, err error) {
	select {
	case <-d.over:
	case <-ctx.Done():
	}
	m.mu.Lock()
	if err = ctx.Err(); err == nil {
		c, err = m.livingLocked(creds)
	}
	if c == nil && err == nil && d.conn != nil { // the hub took the connection and has ended it
		m.failedLocked(d, d.conn.loss())
		err = d.err
	}
	d.waiters--
	last, underWay := d.waiters == 0, m.dialing == d
	unused := m.unusedLocked(d.conn)
	m.mu.Unlock()
	switch {
	case last && underWay:
		d.cancel(context.Canceled)
		<-d.over
	case unused:
		d.conn.hangUp()
	}
	return c, err
}

// accept notes that the connection is that of a host which has accepted a device.
func (m *Mux) accept(c *connection) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c.accepted, m.gap = true, 0
	if m.connected != nil {
		close(m.connected)
		m.connected = nil
	}
}

// release takes a user off. The last one closes the connection. One that ended before it was of use
// to anybody counts as a dial that failed: a hub, or what stands before it, may take each
// connection only to end it.
func (m *Mux) release(c *connection) {
	m.mu.Lock()
	c.users--
	if !c.accepted && c.gone() {
		m.failedLocked(c.dial, c.loss())
	}
	unused := m.unusedLocked(c)
	m.mu.Unlock()
	if unused {
		c.hangUp()
	}
}

// unusedLocked reports whether a connection has no user, and nobody who waited for its dial can
// become one. Whoever it says that to, which is one, closes it. mu is held.
func (m *Mux) unusedLocked(c *connection) bool {
	if c == nil || c.users > 0 || c.dial.waiters > 0 {
		return false
	}
	if m.conn == c {
		m.conn = nil
	}
	return true
}

// hangUp closes a connection of a Mux's, and ends the context that it was dialed with, which
// functions of the options may go by.
func (c *connection) hangUp() {
	c.close()
	c.dial.cancel(nil)
}

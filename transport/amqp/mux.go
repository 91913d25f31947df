package amqp

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// Mux is a Transport whose sessions share one connection: a gateway's, for up to a thousand devices and modules of one hub. Each has its own session of AMQP, token, links
// and errors, and a client's own loop, retry policy and status; what happens to one does not disturb the others. A device joins by opening its client and leaves by closing it, at any time. The connection is
// made when the first joins and closed when the last leaves. When it is lost, all lose their sessions together; it is dialed once for all, and Options.Parallel devices at a time come back.
//
// Devices prove themselves by CBS, so each needs credentials with Sign or Token; or, with Options.Addresses, the first that dials does so for all, by SASL or certificate. A Mux is safe for
// concurrent use. There is nothing to close.
type Mux struct {
	opt Options
	err error // what Dial returns for wrong options

	places chan struct{} // of devices that are being authenticated
	dial   chan struct{} // capacity 1: held to make the connection

	mu   sync.Mutex // guards what follows; held for memory only
	conn *connection
	// After a dial that failed, no other device makes one to that host before until. A host is not held against the devices of another one, which may be mistyped.
	gap   time.Duration
	until time.Time
	last  *transport.Error
	host  string        // that was dialed
	by    string        // the device that met it; its own policy paces its next one
	news  chan struct{} // closed when a connection is made; nil unless somebody waits for that
}

var _ transport.Transport = (*Mux)(nil)

// After a failed dial of a shared connection the next one waits for this long, and twice as long after each further one, up to the second.
const minGap, maxGap = time.Second, 30 * time.Second

// NewMux returns a Mux with the given options, which are copied; nil means all defaults. Wrong options are reported by Dial, with Kind Invalid.
func NewMux(o *Options) *Mux {
	m := &Mux{dial: make(chan struct{}, 1)}
	m.opt, m.err = o.resolve()
	if m.err == nil && m.opt.Addresses == nil && m.opt.Auth != AuthDefault && m.opt.Auth != CBS {
		m.err = protocol.Invalid("options: Auth is " + m.opt.Auth.String() + ", by which one device only can be proved; a Mux needs CBS")
	}
	m.places = make(chan struct{}, max(1, m.opt.Parallel))
	return m
}

// Dial makes the device a session of its own, on the connection that there is or on a new one. The errors are those of Transport.Dial, and Quota when Options.Devices have joined already, or as many as the peer allows. While the
// hub cannot be reached, one device dials, as its policy paces it; the calls of the others wait for its success, 8 s at most, and return its latest failure then. What the hub itself wants to be
// waited for is returned at once, as RetryAfter.
func (m *Mux) Dial(ctx context.Context, cfg *transport.Config) (transport.Session, error) {
	if m.err != nil {
		return nil, m.err
	}
	if err := cfg.Creds.Validate(); err != nil {
		return nil, protocol.Error(err)
	}
	if err := m.await(ctx, cfg.Creds); err != nil {
		return nil, dialError(ctx, err)
	}
	select {
	case m.places <- struct{}{}:
	case <-ctx.Done():
		return nil, dialError(ctx, ctx.Err())
	}
	leave := sync.OnceFunc(func() { <-m.places })
	defer leave()
	s, err := m.join(ctx, cfg, leave)
	if err != nil {
		return nil, dialError(ctx, err)
	}
	return s, nil
}

// placeLimit is after how long a device gives its place to the next one, though its token has not come from where it is made, or was not answered: those that take long do not hold up the others.
const placeLimit = time.Second

// awaitLimit is how long a device waits for the one that dials before it is told why there is no connection: less than the DialTimeout of most, which would not know.
const awaitLimit = 8 * time.Second

// join authenticates a device and gives it a session. leave gives its place up.
func (m *Mux) join(ctx context.Context, cfg *transport.Config, leave func()) (*session, error) {
	if m.opt.Addresses == nil && cfg.Creds.Sign == nil && cfg.Creds.Token == nil {
		return nil, protocol.Invalid("credentials have neither Sign nor Token, which a Mux needs; a device with a certificate needs a Transport of its own")
	}
	limit := time.AfterFunc(placeLimit, leave)
	l, err := m.prove(ctx, cfg.Creds)
	limit.Stop()
	if err != nil {
		return nil, err
	}
	conn, err := m.connection(ctx, cfg.Creds, &l)
	if err != nil {
		return nil, err
	}
	if l.auth == CBS {
		limit := time.AfterFunc(placeLimit, leave)
		defer limit.Stop()
		if err := conn.tokens.put(ctx, cfg.Creds.Resource(), l.token.Text); err != nil {
			m.release(conn)
			return nil, err
		}
	}
	s := newSession(cfg, &m.opt, conn, &l)
	s.shared = true
	s.leave = func() { m.release(conn) }
	return s, s.check(ctx)
}

// prove is for each device. Without tokens, what proves the connection is only asked for when one is made.
func (m *Mux) prove(ctx context.Context, creds *transport.Credentials) (login, error) {
	if m.opt.Addresses != nil {
		return login{auth: m.opt.auth(creds)}, nil
	}
	return m.opt.prove(ctx, creds)
}

// connection returns the one that lives, with the caller counted as a user, or makes one.
func (m *Mux) connection(ctx context.Context, creds *transport.Credentials, l *login) (*connection, error) {
	if c, err := m.living(creds); c != nil || err != nil {
		return c, err
	}
	select {
	case m.dial <- struct{}{}:
		defer func() { <-m.dial }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if c, err := m.living(creds); c != nil || err != nil {
		return c, err
	}
	if m.opt.Addresses != nil {
		all, err := m.opt.prove(ctx, creds)
		if err != nil {
			return nil, err
		}
		l = &all
	}
	c, err := m.opt.connect(ctx, creds, l)
	if err != nil {
		return nil, m.failed(ctx, creds, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gap, m.last = 0, nil
	c.users = 1
	m.conn = c
	if m.news != nil {
		close(m.news)
		m.news = nil
	}
	return c, nil
}

// await returns when there is a connection or the device may make one, or why there is none.
func (m *Mux) await(ctx context.Context, creds *transport.Credentials) error {
	limit := time.NewTimer(awaitLimit)
	defer limit.Stop()
	for {
		m.mu.Lock()
		refused, wait := m.heldLocked(creds)
		if refused == nil || m.conn != nil && !m.conn.gone() {
			m.mu.Unlock()
			return nil
		}
		if refused.RetryAfter > 0 {
			m.mu.Unlock()
			return refused
		}
		if m.news == nil {
			m.news = make(chan struct{})
		}
		news := m.news
		m.mu.Unlock()
		again := time.NewTimer(wait)
		select {
		case <-news:
		case <-again.C:
		case <-limit.C:
			again.Stop()
			return refused
		case <-ctx.Done():
			again.Stop()
			return ctx.Err()
		}
		again.Stop()
	}
}

// heldLocked returns the failure for which the device must not dial now, and for how long. mu is held.
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

// living returns the connection if there is one, or why there can be none now, or neither.
func (m *Mux) living(creds *transport.Credentials) (*connection, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.conn; c != nil && !c.gone() {
		switch {
		case c.host != creds.DialHost():
			return nil, protocol.Invalid("the devices of this Mux are connected to " + strconv.Quote(c.host) + ", this one belongs to " + strconv.Quote(creds.DialHost()) + "; give it another Mux")
		case c.users >= m.opt.Devices:
			return nil, &transport.Error{Kind: transport.Quota, Err: errFull}
		case c.users >= c.places():
			return nil, &transport.Error{Kind: transport.Quota, Err: errNoChannel}
		}
		c.users++
		return c, nil
	}
	if refused, _ := m.heldLocked(creds); refused != nil {
		return nil, refused
	}
	return nil, nil
}

var (
	errFull      = errors.New("the connection has as many devices as Options.Devices allows; use another Mux")
	errNoChannel = errors.New("the connection has as many devices as the peer allows sessions of AMQP (channel-max); use another Mux")
)

// failed notes a failed dial, so that a thousand devices do not try the same one after the other. What no other try can mend is not noted: clients stop by themselves.
func (m *Mux) failed(ctx context.Context, creds *transport.Credentials, cause error) error {
	if ctx.Err() != nil {
		return cause // the device was closed, or had no more time
	}
	e := protocol.Error(cause)
	m.mu.Lock()
	defer m.mu.Unlock()
	switch e.Kind {
	case transport.Network, transport.Timeout, transport.Unavailable, transport.Throttled, transport.Quota:
		if host := creds.DialHost(); m.host != host {
			m.gap, m.host = 0, host
		}
		m.gap = min(max(2*m.gap, minGap), maxGap)
		m.until, m.last, m.by = time.Now().Add(max(m.gap, e.RetryAfter)), e, creds.Resource()
	}
	return e
}

// release takes a user off. The last one closes the connection.
func (m *Mux) release(c *connection) {
	m.mu.Lock()
	c.users--
	last := c.users == 0
	if last && m.conn == c {
		m.conn = nil
	}
	m.mu.Unlock()
	if last {
		c.close()
	}
}
